"""Kafka's keys of SASL, as they stand in files of controllers."""

from __future__ import annotations

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError

SECRET = "correct horse"
MODULE = "org.apache.kafka.common.security"
BASE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://10.0.0.1:9093",
    "controller.quorum.voters": "1@10.0.0.1:9093,2@10.0.0.2:9093",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
}
PLAIN = {
    **BASE,
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{MODULE}.plain.PlainLoginModule required username="admin" password="{SECRET}" '
        f'user_admin="{SECRET}" user_broker="a \\"quoted\\" one";'
    ),
}
SCRAM = {
    **BASE,
    "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
    "listener.name.controller.scram-sha-512.sasl.jaas.config": (
        f"{MODULE}.scram.ScramLoginModule required username=admin password='x';".replace("'x'", f'"{SECRET}"')
    ),
}


def test_plain_in_the_clear_is_what_the_file_says() -> None:
    words: list[str] = []
    config = RaftConfig.from_properties(PLAIN, tell=words.append)

    assert config.sasl is not None
    assert config.access is not None
    assert (config.sasl.mechanism, config.sasl.accepted) == ("PLAIN", ("PLAIN",))
    assert (config.sasl.username, config.sasl.password) == ("admin", SECRET)
    assert config.sasl.users == {"admin": SECRET, "broker": 'a "quoted" one'}
    assert (config.access.replicas, config.access.admins) == (("User:admin",), ("User:admin",))
    assert config.access.observers == ("User:broker",)
    assert config.insecure
    assert [word for word in words if "sasl" in word] == []
    assert SECRET not in repr(config)


def test_super_users_are_added_to_the_user_of_the_controllers() -> None:
    config = RaftConfig.from_properties({**PLAIN, "super.users": "User:ann"})
    assert config.access is not None
    assert config.access.replicas == config.access.admins == ("User:admin", "User:ann")


def test_scram_needs_no_word_that_it_is_insecure() -> None:
    config = RaftConfig.from_properties(SCRAM)

    assert config.sasl is not None
    assert (config.sasl.mechanism, config.sasl.accepted) == ("SCRAM-SHA-512", ("SCRAM-SHA-512", "SCRAM-SHA-256"))
    assert (config.sasl.username, config.sasl.users) == ("admin", {})
    assert not config.insecure


JAAS = "listener.name.controller.plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.mechanism.controller.protocol": "GSSAPI"}, "protocol=GSSAPI: kraftlib has SCRAM-SHA-512"),
        ({"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "mechanisms=OAUTHBEARER: kraftlib has"),
        ({"sasl.mechanism.controller.protocol": "SCRAM-SHA-256"}, "scram-sha-256.sasl.jaas.config is missing"),
        ({JAAS: f'{MODULE}.plain.PlainLoginModule required user_admin="{SECRET}";'}, "names no username and password"),
        ({JAAS: f'com.example.OwnLoginModule required username="a" password="{SECRET}";'}, "expected a PlainLogin"),
        ({JAAS: f'{MODULE}.plain.PlainLoginModule required username="a" password="{SECRET}"'}, "a semicolon"),
    ],
)
def test_what_kraftlib_lacks_is_an_error_with_a_remedy_and_no_password(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        RaftConfig.from_properties({**PLAIN, **changes})
    assert SECRET not in str(refused.value)


def test_what_nobody_has_set_is_gssapi_as_in_kafka() -> None:
    with pytest.raises(ConfigError, match="protocol=GSSAPI: kraftlib has SCRAM-SHA-512"):
        RaftConfig.from_properties(BASE)
