"""Who is at the other end of a Unix socket, as the system tells it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kraftlib.find_leader import question
from kraftlib.security.access import EVERY_ROLE, AccessConfig
from kraftlib.security.authorizer import Authorizer
from kraftlib.security.unix_users import UnixUser, on_unix_socket, replica_users, user_of, why_not_the_server
from tools.scenarios import handmade as msg

OWN = f"unix:{os.geteuid()}"
OTHER = UnixUser(7, os.geteuid() + 1)


def test_both_ends_learn_the_process_and_the_user_of_the_other(tmp_path: Path) -> None:
    for end in socket.socketpair(socket.AF_UNIX):
        with end:
            assert user_of(end) == UnixUser(os.getpid(), os.geteuid())
    with socket.socket(socket.AF_UNIX) as alone, pytest.raises(BlockingIOError):
        user_of(alone)


def test_a_system_that_does_not_tell_the_user_has_no_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other, pytest.raises(OSError, match="does not tell who is at the other end"):
        user_of(one)


def test_our_user_and_listed_ones_are_replicas() -> None:
    listed = ("unix:7", "User:kafka", "cert:unix:9")
    assert replica_users(listed) == {OWN, "unix:7"}
    assert on_unix_socket(("unix:7",))
    assert not on_unix_socket(listed[1:])


def test_a_server_is_our_user_a_listed_one_or_the_owner_of_the_directory(tmp_path: Path) -> None:
    path = str(tmp_path / "1.sock")
    owner = UnixUser(7, tmp_path.stat().st_uid)
    assert why_not_the_server(owner, path) is None
    assert why_not_the_server(OTHER, path, [OTHER.principal]) is None
    assert f"runs as {OTHER.principal}" in (why_not_the_server(OTHER, path) or "")


def test_our_own_user_may_do_everything_and_another_what_the_lists_give_it() -> None:
    """Also DescribeQuorum, which every peer with a certificate or a password may ask: all users have an id."""
    access = AccessConfig(admins=("unix:7",))
    judge = Authorizer(access=access, cluster_id="blue", nobody=EVERY_ROLE, is_voter=lambda _: True)
    vote = msg.begin(2, 3, cluster_id="blue")
    assert judge.complaint((OWN,), vote) is None
    assert judge.complaint(("unix:7",), vote) is not None
    assert judge.complaint(("unix:7",), question()) is None, "an admin is a client, too"
    assert judge.complaint(("unix:8",), question()) is not None
    assert judge.complaint(("User:grafana",), question()) is None
    assert AccessConfig(clients=("unix:8",)).roles_of("unix:8") == access.roles_of("User:grafana")
