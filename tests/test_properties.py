"""kraftlib.properties: Kafka's own server.properties, with a word on every key that is not a replica's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ConfigError
from kraftlib.properties import NUMBERS, OTHERS, UNKNOWN, parse_properties, settings_of, word_on
from kraftlib.types import Endpoint

DATA = Path(__file__).parent / "data" / "properties"
LOCALHOST = Endpoint("localhost", 9093)
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "3",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
SHIPPED = RaftConfig(
    node_id=1, listen=Endpoint("0.0.0.0", 9093), advertised=LOCALHOST, insecure=True, frame_max_bytes=104_857_600
)


def read(name: str) -> tuple[RaftConfig, list[str]]:
    """Return the configuration in a file that Kafka ships, and what was told of it."""
    told: list[str] = []
    return RaftConfig.from_properties(DATA / name, tell=told.append), told


def of(**changes: str | None) -> RaftConfig:
    """Return the configuration of a controller with some keys (`_` for `.`) changed, or taken away."""
    changed = {**CONTROLLER, **{key.replace("_", "."): value for key, value in changes.items()}}
    return RaftConfig.from_properties(
        {key: value for key, value in changed.items() if value is not None}, tell=lambda text: None
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "kafka-3.9-controller.properties",
            attrs.evolve(SHIPPED, voters=(StaticVoter(1, LOCALHOST),), directory=Path("/tmp/kraft-controller-logs")),
        ),
        (
            "kafka-3.9-server.properties",
            attrs.evolve(SHIPPED, voters=(StaticVoter(1, LOCALHOST),), directory=Path("/tmp/kraft-combined-logs")),
        ),
        (
            "kafka-4.x-controller.properties",
            attrs.evolve(SHIPPED, bootstrap_servers=(LOCALHOST,), directory=Path("/tmp/kraft-controller-logs")),
        ),
        (
            "kafka-4.x-server.properties",
            attrs.evolve(SHIPPED, bootstrap_servers=(LOCALHOST,), directory=Path("/tmp/kraft-combined-logs")),
        ),
        (
            "kafka-4.x-broker.properties",
            RaftConfig(
                node_id=2,
                bootstrap_servers=(LOCALHOST,),
                directory=Path("/tmp/kraft-broker-logs"),
                frame_max_bytes=104_857_600,
            ),
        ),
    ],
)
def test_what_kafka_ships_is_understood(name: str, expected: RaftConfig) -> None:
    config, told = read(name)

    assert config == expected
    assert not [text for text in told if UNKNOWN in text]


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("kafka-*.properties")))
def test_every_key_is_either_used_or_spoken_of(name: str) -> None:
    _, told = read(name)
    spoken_of = {re.match(r".*properties: ([a-z.]+): ", text)[1] for text in told}  # type: ignore[index]

    for key in parse_properties((DATA / name).read_text()):
        assert (key in spoken_of) or (key in NUMBERS) or (key in OTHERS)


def test_each_number_reaches_its_field() -> None:
    given_ms = {key: str(10_000_000 + index) for index, key in enumerate(NUMBERS)}
    given_ms["controller.quorum.fetch.timeout.ms"] = "19999999"
    config = RaftConfig.from_properties({**CONTROLLER, **given_ms}, tell=lambda text: None)

    for key, field in NUMBERS.items():
        assert getattr(config, field) == int(given_ms[key])


def test_words_say_why_and_go_to_the_log_where_nobody_takes_them(caplog: pytest.LogCaptureFixture) -> None:
    RaftConfig.from_properties(
        {**CONTROLLER, "ssl.keystore.location": "k.jks", "log.retention.hours": "1", "no.key": "?"}
    )

    assert "ssl.keystore.location: no effect on a listener that is not SSL" in caplog.text
    assert "log.retention.hours: a broker's" in caplog.text
    assert f"no.key: {UNKNOWN}" in caplog.text


def test_numbers_are_as_large_as_kafkas() -> None:
    """`Long.MAX_VALUE` stands for ever in many a file."""
    most = 2**63 - 1
    config = of(metadata_max_retention_ms=str(most), metadata_max_retention_bytes=str(100 << 30))
    assert (config.retention_ms, config.retention_bytes) == (most, 100 << 30)
    limits = of(connections_max_idle_ms=str(most)).limits
    assert limits is not None
    assert limits.idle_max_ms == 2**31 - 1


def test_a_placeholder_of_a_brokers_key_is_left_alone() -> None:
    assert of(config_providers="env", listeners="CONTROLLER://h:9093", broker_rack="${env:RACK}").node_id == 3


def test_the_log_lies_where_kafka_would_look_for_it() -> None:
    assert of(log_dirs="/a, /b", metadata_log_dir="/m").directory == Path("/m")
    assert of(log_dirs="/a,/b", log_dir="/c").directory == Path("/a")
    assert of(log_dir="/c").directory == Path("/c")
    assert of().directory is None


def test_the_first_controller_listener_counts_whatever_the_case() -> None:
    config = of(
        controller_listener_names="internal,CONTROLLER",
        listeners="INTERNAL://[::1]:9094,CONTROLLER://127.0.0.1:9093",
        advertised_listeners="internal://db1.example:9094",
        listener_security_protocol_map="INTERNAL:SSL,CONTROLLER:PLAINTEXT",
    )

    assert (config.listener_name, config.listen) == ("INTERNAL", Endpoint("::1", 9094))
    assert config.advertised == Endpoint("db1.example", 9094)
    assert not config.insecure


def test_auto_join_and_an_older_name_of_the_node_id() -> None:
    config = of(**{"node.id": None}, broker_id="5", controller_quorum_auto_join_enable="TRUE")
    assert (config.node_id, config.auto_join) == (5, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process.roles": None}, "process.roles is missing"),
        ({"process.roles": "zookeeper"}, "'zookeeper' must be controller, broker, or both"),
        ({"node.id": None}, "node.id is missing"),
        ({"node.id": "one"}, "node.id='one' must be a whole number"),
        ({"broker.id": "4"}, "node.id=3 and broker.id=4 must be the same"),
        ({"controller.listener.names": None}, "controller.listener.names is missing"),
        ({"controller.quorum.bootstrap.servers": None}, "neither controller.quorum.voters nor"),
        ({"controller.quorum.bootstrap.servers": "host"}, "'host' is no endpoint"),
        ({"controller.quorum.voters": "1@0.0.0.0:9093"}, "no replica can connect to 0.0.0.0"),
        ({"controller.quorum.fetch.timeout.ms": "0"}, "fetch_timeout_ms=0"),
        ({"controller.quorum.fetch.timeout.ms": "2 s"}, "'2 s' must be a whole number"),
        ({"controller.quorum.auto.join.enable": "yes"}, "must be true or false"),
        ({"listeners": "PLAINTEXT://:9092"}, "has no CONTROLLER"),
        ({"listeners": "CONTROLLER:9093"}, "is no listener"),
        ({"listeners": "CONTROLLER://h:99999"}, "is no listener"),
        ({"listeners": "CONTROLLER://:9093"}, "must name the host of CONTROLLER"),
        ({"listener.security.protocol.map": "CONTROLLER:SASL_SSL"}, "protocol=GSSAPI: kraftlib has SCRAM-SHA-512"),
        ({"listeners": "CONTROLLER://a:9093,CONTROLLER://a:9094"}, "listeners: CONTROLLER stands there twice"),
        ({"listener.security.protocol.map": "CONTROLER:SASL_SSL"}, "has no protocol for CONTROLLER"),
        ({"listeners": "SSL://:9092,CONTROLLER://h:9093"}, "has no protocol for CONTROLLER"),
        ({"config.providers": "env, file", "log.dirs": "${env:DIR}"}, "log.dirs='${env:DIR}': kraftlib has no config"),
        (
            {"config.providers": "file", "ssl.keystore.key": "${file:/a:b}"},
            "ssl.keystore.key='${file:/a:b}': kraftlib has no config.providers",
        ),
        ({"listener.security.protocol.map": "CONTROLLER:MAGIC"}, "'MAGIC' of CONTROLLER must be one of"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(changes: Mapping[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        of(**dict(changes))


def test_a_cluster_with_zookeeper_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper.properties: process.roles is missing: zookeeper.connect is of"):
        read("zookeeper.properties")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*absent.properties: No such file"):
        RaftConfig.from_properties(tmp_path / "absent.properties")


def test_the_file_format_is_javas() -> None:
    text = (
        "# comment = no\n  ! nor this\n\nnode.id=1\r\nwith\\ blank : a value \n"
        "long = one,\\\n    two\\\n# three\nempty\nno.value=\nunicode=\\u0041\\t\\q\nback=\\\\\nnode.id 2\rlast=\\"
    )
    assert parse_properties(text) == {
        "node.id": "2",
        "with blank": "a value",
        "long": "one,two# three",
        "empty": "",
        "no.value": "",
        "unicode": "A\tq",
        "back": "\\",
        "last": "",
    }


def test_a_bad_escape_is_refused() -> None:
    with pytest.raises(ConfigError, match="bad escape"):
        parse_properties("a=\\u00g1")


@given(st.text(max_size=200))
def test_no_text_does_harm(text: str) -> None:
    """Either it is read, or the error is ours."""
    with contextlib.suppress(ConfigError):
        settings_of({**CONTROLLER, **parse_properties(text)})


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    """With everything escaped, the slow and obvious way."""

    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)

    stripped = {key: value.strip() for key, value in properties.items()}
    assert parse_properties("\n".join(f"{escaped(k)}={escaped(v)}" for k, v in properties.items())) == stripped


def test_a_word_is_there_for_what_kafka_has() -> None:
    for key in (
        "num.partitions",
        "group.initial.rebalance.delay.ms",
        "metadata.max.idle.interval.ms",
        "sasl.enabled.mechanisms",
    ):
        assert word_on(key) != UNKNOWN


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("controller.quorum.fetch.timout.ms", "controller.quorum.fetch.timeout.ms"),
        ("controller.quorum.voter", "controller.quorum.voters"),
        ("metadata.max.retention.byte", "metadata.max.retention.bytes"),
    ],
)
def test_a_misspelt_key_is_told_with_the_key_that_is_meant(key: str, meant: str) -> None:
    assert word_on(key) == f"{UNKNOWN}; did you mean {meant}?"


def test_no_key_of_kafkas_own_is_taken_for_a_misspelt_one() -> None:
    """These resemble the keys of a replica most."""
    for key in (
        "metadata.log.segment.min.bytes",
        "controller.quorum.retry.backoff.max.ms",
        "log.segment.bytes",
        "metadata.max.idle.interval.ms",
        "inter.broker.listener.name",
        "queued.max.request.bytes",
    ):
        assert "did you mean" not in word_on(key)
