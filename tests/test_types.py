"""kraftlib.types: the values that every layer speaks in."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError
from kraftlib.types import (
    HOST_MAX,
    METADATA_TOPIC_ID,
    UNIX_PORT,
    Endpoint,
    OffsetAndEpoch,
    ReplicaKey,
    is_host,
    is_reachable,
    new_uuid,
    parse_endpoint,
    parse_uuid,
    socket_path,
    uuid_text,
)
from tools.rules.changing import places_of

uuids = st.uuids()


@given(uuids)
def test_the_text_of_an_id_reads_back(value: uuid.UUID) -> None:
    assert parse_uuid(uuid_text(value)) == value


def test_the_metadata_topic_has_the_id_that_kafka_gave_it() -> None:
    assert uuid_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAAAAAAAAAAAAAAAAAA+/", "é" * 22]
)
def test_what_is_no_id_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ConfigError, match="is no id"):
        parse_uuid(text)


def test_new_ids_differ_and_never_look_like_an_option() -> None:
    ids = {new_uuid() for _ in range(500)}
    assert len(ids) == 500
    assert not [value for value in ids if uuid_text(value).startswith("-")]


@given(st.integers(0, 9), uuids, uuids)
def test_a_voter_matches_its_directory_and_any_while_it_knows_none(id: int, one: uuid.UUID, other: uuid.UUID) -> None:
    assert ReplicaKey(id).matches(ReplicaKey(id, one))
    assert ReplicaKey(id, one).matches(ReplicaKey(id, one))
    assert ReplicaKey(id, one).matches(ReplicaKey(id, other)) == (one == other)
    assert not ReplicaKey(id, one).matches(ReplicaKey(id))
    assert not ReplicaKey(id).matches(ReplicaKey(id + 1))


@given(*[st.integers(0, 5)] * 4)
def test_the_log_with_the_later_epoch_is_ahead_and_then_the_longer_one(e1: int, o1: int, e2: int, o2: int) -> None:
    ahead = OffsetAndEpoch(epoch=e1, offset=o1) > OffsetAndEpoch(epoch=e2, offset=o2)
    assert ahead == (e1 > e2 or (e1 == e2 and o1 > o2))


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint("localhost", 9093),
        Endpoint("::1", 1),
        Endpoint("10.0.0.1", 65535),
        Endpoint("unix:/" + "a" * 106, UNIX_PORT),
    ],
)
def test_the_text_of_an_endpoint_reads_back(endpoint: Endpoint) -> None:
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9093", "host:0", "host:65536", "::1:9093", "a b:1", "[]:1", "h:1x"]
)
def test_what_is_no_endpoint_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ConfigError, match="is no endpoint"):
        parse_endpoint(text)


HOSTS = [
    "db",
    "db-1.example.com",
    "kraft_controller_1",
    "EXAMPLE.com.",
    "3com.example",
    "10.0.0.1",
    "::1",
    "fe80::1%eth0",
]
HOSTS += ["a" * 63, ".".join(["a" * 63] * 3 + ["b" * 62]), "xn--bcher-kva.example", "::ffff:10.0.0.1", "0x7f"]
NO_HOSTS = ["", ".", "a..b", ".a", "-a", "a-", "a.-b", "a" * 64, ".".join(["a" * 63] * 4 + ["b"]), "a b", "a\n", "a\nb"]
NO_HOSTS += [
    "evil.example\nforged",
    "bücher.example",
    "a/b",
    "a:b",
    "user@host",
    "[::1]",
    "::1%",
    "fe80::1%a\nb",
    "a\0",
]
NO_HOSTS += [
    "1.2.3",
    "256.1.1.1",
    "127.1",
    "2130706433",
    "1.2.3.4.",
    "01.2.3.4",
    "10.0.0.1%eth0",
    "٣.example",
    "a%b",
    "$(id)",
]


@pytest.mark.parametrize("text", HOSTS)
def test_hosts_are_names_and_addresses(text: str) -> None:
    assert len(text) <= HOST_MAX
    assert is_host(text)
    assert "'" not in str(Endpoint(text, 9093))


@pytest.mark.parametrize("text", NO_HOSTS, ids=ascii)
def test_what_is_no_host_is_said_so_and_shown_quoted(text: str) -> None:
    shown = str(Endpoint(text, 9093))

    assert not is_host(text)
    assert shown == f"{text[:HOST_MAX]!a}:9093"
    assert shown.isprintable()


@given(
    st.text(max_size=12)
    | st.text("ab1.-_:%", max_size=12)
    | st.text("a/.,: ~\x7fé", max_size=12).map("unix:/".__add__)
    | st.integers(100, 112).map(lambda length: "unix:/" + "a" * length)
)
def test_what_is_reachable_agrees_with_the_rules(text: str) -> None:
    """The referee of the simulator reads RFC 1123, and paths, with expressions of its own."""
    place = SimpleNamespace(name="CONTROLLER", host=text, port=9093)

    assert is_reachable(text) == (places_of([place]) is not None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unix:/", "expected the path of a socket from the root"),
        ("unix:/run/", "expected the path of a socket from the root"),
        ("unix:run/1.sock", "or unix:/path"),
        ("unix:/" + "a" * 107, "its path has 108 bytes, at most 107 fit: take a shorter one"),
        ("unix:/a b", "printable ASCII"),
        ("unix:/a\n", "printable ASCII"),
        ("unix:/é", "printable ASCII"),
    ],
)
def test_what_is_no_unix_socket_is_refused_with_the_remedy(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_endpoint(text)
    assert socket_path(text) is None
    assert str(Endpoint(text, 1)).isprintable()


def test_the_text_of_an_endpoint_is_bounded_whatever_its_host() -> None:
    assert len(str(Endpoint("\n" * 10_000, 9093))) < 5 * HOST_MAX


def test_an_endpoint_of_a_configuration_has_a_host() -> None:
    with pytest.raises(ConfigError, match="host must be a host name, an IPv4 or an IPv6 address"):
        parse_endpoint("a$b:9093")
