"""Who is at the other end of a Unix socket, as the system tells it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.find_leader import question
from kraftlib.runtime.net.unix_sockets import bind_unix
from kraftlib.security.access import EVERY_ROLE, AccessConfig
from kraftlib.security.authorizer import Authorizer
from kraftlib.security.unix_users import (
    UnixUser,
    on_unix_socket,
    replica_users,
    user_of,
    why_not_the_directory,
    why_not_the_server,
)
from tools.scenarios import handmade as msg

OWN = f"unix:{os.geteuid()}"
OTHER = UnixUser(7, os.geteuid() + 1)
REALLY = os.stat


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


def owned_by(monkeypatch: pytest.MonkeyPatch, **owners: int) -> None:
    """Let files of these names belong to these users, and all directories above to root, with no right for others."""

    def stat(path: Any, **how: Any) -> os.stat_result:
        found, name = REALLY(path, **how), Path(path).name
        mode = found.st_mode if name in owners else 0o40755
        return os.stat_result((mode, *found[1:4], owners.get(name, 0), *found[5:]))

    monkeypatch.setattr(os, "stat", stat)


def test_a_server_is_our_user_a_listed_one_or_the_owner_of_a_directory_that_root_has_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise whoever makes the directory first is taken for every replica."""
    path = str(tmp_path / "run" / "kraft" / "1.sock")
    Path(path).parent.mkdir(parents=True)
    root, own = UnixUser(7, 0), UnixUser(7, os.geteuid())
    monkeypatch.setattr(os, "geteuid", lambda: own.user_id)
    owned_by(monkeypatch, kraft=OTHER.user_id)
    assert [why_not_the_server(user, path) is None for user in (own, OTHER)] == [True, True]
    assert why_not_the_server(UnixUser(7, OTHER.user_id + 1), path) is not None
    assert why_not_the_server(UnixUser(7, 77), path, ["unix:77"]) is None
    owned_by(monkeypatch, kraft=0)
    assert why_not_the_server(root, path) is None
    assert f"runs as {OTHER.principal}" in (why_not_the_server(OTHER, path) or "")

    for placed_by, mode, listed, trusted in (
        (OTHER.user_id, 0o755, (), False),
        (77, 0o755, ("unix:77",), True),
        (0, 0o1777, (), False),
        (0, 0o1777, (OTHER.principal,), True),
    ):
        (tmp_path / "run").chmod(mode)
        owned_by(monkeypatch, run=placed_by, kraft=OTHER.user_id)
        assert (why_not_the_server(OTHER, path, listed) is None) == trusted


@pytest.mark.parametrize(
    ("above", "mode", "refused"),
    [
        (0o755, 0o777, "kraft"),
        (0o755, 0o1777, "kraft"),
        (0o755, 0o770, "kraft"),
        (0o777, 0o700, "run"),
        (0o775, 0o700, "run"),
    ],
)
def test_a_directory_that_others_may_write_or_move_is_nobodys(
    tmp_path: Path, above: int, mode: int, refused: str
) -> None:
    directory = tmp_path / "run" / "kraft"
    directory.mkdir(parents=True)
    assert why_not_the_directory(f"{directory}/1.sock") is None
    directory.chmod(mode)
    directory.parent.chmod(above)
    own = UnixUser(os.getpid(), os.geteuid())
    assert f"/{refused}: chmod go-w" in (why_not_the_server(own, f"{directory}/1.sock") or "")
    (tmp_path / "link").symlink_to(directory)
    assert f"others may write in {tmp_path}" in (why_not_the_directory(f"{tmp_path}/link/1.sock") or "")
    with pytest.raises(ConfigError, match=f"/{refused}: chmod go-w"):
        bind_unix(f"{directory}/1.sock", 0o600)
    directory.chmod(0o700)
    directory.parent.chmod(0o1777)
    assert why_not_the_directory(f"{directory}/1.sock") is None


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
