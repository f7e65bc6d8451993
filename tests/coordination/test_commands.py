"""Commands as bytes: what a server refuses before it appends."""

from __future__ import annotations

import pytest

from kraftlib.codec.declared import Message
from kraftlib.coordination.commands import (
    COMMAND_BYTES_MAX,
    NAME_BYTES_MAX,
    check_command,
    decode_command,
    encode,
    encode_command,
)
from kraftlib.coordination.messages import (
    KINDS,
    OPERATIONS_MAX,
    Acquire,
    Expire,
    KeepAlive,
    OpenSession,
    Question,
    Release,
    Transact,
)
from kraftlib.errors import ConfigError, RemoteProtocolError
from tests.coordination.driver import A
from tests.declared_messages import any_message


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("seed", range(20))
def test_a_command_comes_back_as_it_was_written(kind: int, seed: int) -> None:
    body = any_message(KINDS[kind], 0, seed)
    command = decode_command(encode_command(body, session=A, sequence=7, acknowledged=3))
    assert (command.kind, command.body) == (kind, body)
    assert (command.identity.session, command.identity.sequence, command.identity.acknowledged) == (A, 7, 3)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (Expire(epoch=1), "only the leader"),
        (OpenSession(ttl_ms=99), "ttl_ms=99"),
        (OpenSession(ttl_ms=86_400_001), "ttl_ms=86400001"),
        (Acquire(lock="", limit=1), "must not be empty"),
        (Acquire(lock="x", limit=2, permits=3), "permits=3"),
        (Acquire(lock="x", replace=True), "must not be empty"),
        (Acquire(lock="é" * (NAME_BYTES_MAX // 2 + 1)), "longer than"),
        (Transact(then=(Transact.Operation(do=99, key="x"),)), "operation 99"),
        (Transact(otherwise=(Transact.Operation(do=1),)), "must not be empty"),
        (Transact(then=(Transact.Operation(do=1, key="x", ttl_ms=1),)), "ttl_ms=1"),
        (Transact(then=(Transact.Operation(do=7, key="x\0"),)), "ADD before it"),
        (
            Transact(then=(Transact.Operation(do=4, key="n"), Transact.Operation(do=7, key="x"))),
            "no place for its number",
        ),
        (Transact(fences=(Transact.Fence(),)), "must not be empty"),
        (Transact(conditions=(Transact.Condition(),)), "must not be empty"),
        (Transact(then=(Transact.Operation(do=1, key="x"),) * (OPERATIONS_MAX + 1)), "257"),
        (Transact(then=(Transact.Operation(do=1, key="x", value=bytes(COMMAND_BYTES_MAX)),)), "larger than"),
    ],
)
def test_a_command_that_breaks_a_rule_is_refused_with_the_value(body: Message, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_command(encode_command(body, session=A, sequence=1))


@pytest.mark.parametrize(("sequence", "acknowledged"), [(-1, 0), (1, 2), (1, -1)])
def test_numbers_of_calls_that_make_no_sense_are_refused(sequence: int, acknowledged: int) -> None:
    with pytest.raises(ConfigError, match=f"sequence={sequence}"):
        check_command(encode_command(KeepAlive(), session=A, sequence=sequence, acknowledged=acknowledged))


def test_a_command_without_session_and_a_bid_without_number_are_refused() -> None:
    with pytest.raises(ConfigError, match="names none"):
        check_command(encode_command(Release(number=1), sequence=1))
    with pytest.raises(ConfigError, match="needs a sequence number"):
        check_command(encode_command(Acquire(lock="x"), session=A))


@pytest.mark.parametrize(("number", "sequence"), [(0, 1), (-1, 1), (1, 0), (1, 1), (2, 1)])
def test_only_an_earlier_call_is_released_and_only_by_a_numbered_one(number: int, sequence: int) -> None:
    with pytest.raises(ConfigError, match=f"number={number} with sequence={sequence}"):
        check_command(encode_command(Release(number=number), session=A, sequence=sequence))


def test_garbage_is_refused_wherever_it_is_cut() -> None:
    data = encode_command(Transact(then=(Transact.Operation(do=1, key="k", value=b"v"),)), session=A, sequence=1)
    check_command(data)
    for end in range(len(data)):
        with pytest.raises(ConfigError):
            check_command(data[:end])
    with pytest.raises(RemoteProtocolError):
        decode_command(data + b"x")


def test_a_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match="99999999999"):
        encode_command(OpenSession(ttl_ms=99999999999), session=A)
    with pytest.raises(ConfigError, match="70000"):
        encode(Question(ask=70000))
