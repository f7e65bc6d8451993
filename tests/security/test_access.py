"""The table `[access]`: which roles principals have, and what is refused in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.security.access import EVERY_ROLE, NO_ROLE, AccessConfig, Role, is_loopback_host, of_super_users

CLIENT = frozenset({Role.CLIENT})
OBSERVER = frozenset({Role.OBSERVER, Role.CLIENT})


def all_lists(*principals: str) -> dict[str, Any]:
    """The table that gives every role to these."""
    return {name: list(principals) for name in ("replicas", "admins", "brokers")}


def test_the_table_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text(
        """
        node_id = 1
        [access]
        replicas = ["User:kraft", "cert:CN=controller-1"]
        admins = ["User:ops", "https://ops.example/ann"]
        observers = ["User:broker"]
        brokers = ["User:broker-1"]
        writers = ["User:service"]
        anonymous = "client"
        audit_file = "audit.jsonl"
        """
    )

    assert RaftConfig.from_toml(path).access == AccessConfig(
        replicas=("User:kraft", "cert:CN=controller-1"),
        admins=("User:ops", "https://ops.example/ann"),
        observers=("User:broker",),
        brokers=("User:broker-1",),
        writers=("User:service",),
        anonymous="client",
        audit_file=tmp_path / "audit.jsonl",
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"admin": ["User:ops"]}, "did you mean 'admins'"),
        ({"admins": ["ops"]}, r"\[access\]: admins='ops' is no principal: expected User:NAME"),
        ({"admins": [""]}, "is no principal"),
        ({"admins": ["User:"]}, "is no principal"),
        ({"admins": ["cert:ann"]}, "is no principal: .*the whole subject"),
        ({"admins": ["cert:CN=ann,1.2.3=#1603"]}, "is no principal"),
        ({"admins": ["unix:ann"]}, "is no principal: .*the number of a user"),
        ({"replicas": ["kraft://blue"]}, "is no principal"),
        ({"replicas": ["User:a\nb"]}, "is no principal"),
        ({"observers": ["User:" + "a" * 2_000]}, "is no principal"),
        ({"anonymous": "admin"}, "anonymous='admin' must be one of nothing, client, observer, everything"),
    ],
)
def test_a_wrong_table_is_refused_with_a_remedy(table: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RaftConfig.from_mapping({"node_id": 1, "access": table})


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LOCALHOST", True)]
    + [(host, False) for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "db1", "::ffff:10.0.0.1")],
)
def test_beyond_loopback_nobody_has_a_role_unless_that_was_said(host: str, is_loopback: bool) -> None:
    """A name that could be looked up is not: it may lead elsewhere tomorrow."""
    assert is_loopback_host(host) is is_loopback
    assert AccessConfig().roles_of_nobody(host, insecure=False) == (EVERY_ROLE if is_loopback else NO_ROLE)
    assert AccessConfig().roles_of_nobody(host, insecure=True) == EVERY_ROLE
    assert AccessConfig(anonymous="nothing").roles_of_nobody(host, insecure=True) == NO_ROLE
    assert AccessConfig(anonymous="observer").roles_of_nobody(host, insecure=False) == OBSERVER


def test_a_principal_has_the_roles_of_all_lists_that_name_it() -> None:
    access = AccessConfig(replicas=("User:kafka",), admins=("User:ops", "User:kafka"), observers=("User:broker",))

    assert access.roles_of("User:ops") == {Role.ADMIN, Role.CLIENT}
    assert access.roles_of("User:broker") == OBSERVER
    assert access.roles_of("User:kafka") == EVERY_ROLE - {Role.BROKER}
    assert access.roles_of("User:OPS") == access.roles_of("User:somebody") == CLIENT


def test_where_clients_are_named_others_may_not_even_look() -> None:
    access = AccessConfig(admins=("User:ops",), clients=("User:grafana",))

    assert access.roles_of("User:grafana") == CLIENT
    assert access.roles_of("User:somebody") == NO_ROLE
    assert access.roles_of("User:ops") == {Role.ADMIN, Role.CLIENT}


@pytest.mark.parametrize(
    ("users", "table"),
    [
        ("", {}),
        ("User:ops; User:kafka;", all_lists("User:ops", "User:kafka")),
        (
            "User:CN=ctl-1,OU=x,C=de",
            {**all_lists("cert:CN=ctl-1,OU=x,C=de"), "admins": ["cert:CN=ctl-1,OU=x,C=de", "User:CN=ctl-1,OU=x,C=de"]},
        ),
        ("User:ANONYMOUS", {"anonymous": "everything", "admins": ["User:ANONYMOUS"]}),
    ],
)
def test_kafkas_super_users_may_do_everything(users: str, table: dict[str, object]) -> None:
    """A certificate of the same common name and another unit is not one of them, so the whole subject counts.

    As Kafka's StandardAuthorizer has it, they may do it through a broker, too, which writes names as Kafka does.
    """
    assert of_super_users(users) == table
    AccessConfig(**table)  # type: ignore[arg-type]


def test_super_users_are_read_from_kafkas_own_file() -> None:
    words: list[str] = []
    lines = {
        "process.roles": "controller",
        "node.id": "3",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9091",
        "super.users": "User:kafka",
    }
    config = RaftConfig.from_properties(lines, tell=words.append)

    assert config.access == AccessConfig(**all_lists("User:kafka"))
    assert words == []
