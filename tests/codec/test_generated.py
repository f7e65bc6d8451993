"""Generated codecs do what the steps do, to the last byte and the last word of an error."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.codec import declared
from kraftlib.codec.declared import Message, Struct, array, binary, boolean, int8, int32, int64, message, string, uuid
from kraftlib.codec.field_types import FieldCodec
from kraftlib.codec.reader import Reader
from kraftlib.codec.struct_codec import struct_codec
from kraftlib.coordination.messages import Answer, Identity, KeepAlive, Question, Result, Transact
from kraftlib.errors import InvariantError, LocalProtocolError, ProtocolError, RemoteProtocolError
from kraftlib.frozen import frozen
from kraftlib.wire.messages.call import CallRequest, CallResponse


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Every(Message):
    """One field of each kind that there is."""

    flag: bool = boolean("0+")
    number: int = int32("0+")
    text: str = string("0+")
    maybe: str | None = string("0+", nullable="0+")
    few: bytes = binary("0+", most=5)
    data: bytes | None = binary("0+", nullable="0+")
    id: UUID = uuid("0+")
    numbers: tuple[int, ...] = array("int32", "0+")
    texts: tuple[str, ...] | None = array("string", "0+", nullable="0+")
    inners: tuple[Every.Inner, ...] = array("Inner", "0+", most=150)
    last: int = int8("0+")

    @frozen(kw_only=True, eq=False, repr=False)
    class Inner(Struct):
        """A struct with structs."""

        name: str = string("0+")
        leaves: tuple[Every.Leaf, ...] = array("Leaf", "0+", most=3)

    @frozen(kw_only=True, eq=False, repr=False)
    class Leaf(Struct):
        """The innermost."""

        number: int = int64("0+")


KINDS = (Every, Identity, KeepAlive, Transact, Result, Question, Answer, CallRequest, CallResponse)
STEPS: dict[type[Message], FieldCodec] = {kind: struct_codec(kind, kind, 0) for kind in KINDS}

SIZES = st.one_of(st.integers(0, 6), st.sampled_from([125, 126, 127, 128, 129, 300, 16_382, 16_383, 16_384]))
TEXTS = st.one_of(st.text(max_size=5), SIZES.map("x".__mul__), st.just("\ud800"))
BYTES = st.one_of(st.binary(max_size=6), SIZES.map(bytes))
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, 2**31, 2**63]))
LEAVES = st.lists(st.builds(Every.Leaf, number=NUMBERS), max_size=4).map(tuple)
INNERS = st.builds(Every.Inner, name=TEXTS, leaves=LEAVES)
EVERY = st.builds(
    Every,
    flag=st.booleans(),
    number=NUMBERS,
    text=st.one_of(TEXTS, st.none()),
    maybe=st.one_of(TEXTS, st.none()),
    few=BYTES,
    data=st.one_of(BYTES, BYTES.map(memoryview), st.none()),
    id=st.one_of(st.uuids(), st.just("no uuid")),
    numbers=st.lists(NUMBERS, max_size=3).map(tuple),
    texts=st.one_of(st.none(), st.lists(TEXTS, max_size=3).map(tuple)),
    inners=st.one_of(st.lists(INNERS, max_size=3), st.builds(lambda one, times: (one,) * times, INNERS, SIZES)),
    last=NUMBERS,
    unknown_tagged_fields=st.sampled_from([(), (), (), ((7, b"x"),)]),
)


def written(write: Any, value: Message) -> bytes | str:
    out = bytearray(b"before")
    try:
        write(out, value)
    except LocalProtocolError as error:
        return str(error)
    return bytes(out)


def taken(read: Any, data: bytes) -> tuple[Any, int, int] | str:
    reader = Reader(data)
    reader.elements_left = 200
    try:
        value = read(reader)
    except RemoteProtocolError as error:
        return str(error)
    return value, reader.position, reader.elements_left


def test_the_codecs_compared_are_two() -> None:
    for kind in KINDS:
        declared.write(kind(), 0)
        assert declared._codecs[kind, 0].read.__code__ is not STEPS[kind].read.__code__  # type: ignore[attr-defined]


@settings(max_examples=400)
@given(EVERY)
def test_they_write_the_same(value: Every) -> None:
    by_steps = written(lambda out, value: STEPS[Every].write(value, out), value)
    assert written(lambda out, value: declared.write_into(out, value, 0), value) == by_steps


@settings(max_examples=400)
@given(EVERY, st.integers())
def test_they_read_the_same_of_whatever_bytes(value: Every, seed: int) -> None:
    out = bytearray()
    try:
        STEPS[Every].write(value, out)
    except ProtocolError:
        out = bytearray(200)
    chance = random.Random(seed)
    for _ in range(chance.randrange(4)):
        out[chance.randrange(len(out))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    data = bytes(out[: chance.choice((len(out), len(out), chance.randrange(len(out) + 1)))])
    for source in (data, memoryview(data), data + b"more"):
        by_steps = taken(STEPS[Every].read, source)  # type: ignore[arg-type]
        assert taken(lambda reader: declared.read(Every, reader, 0), source) == by_steps  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_frequent_message_is_read_and_refused_alike(kind: type[Message]) -> None:
    chance = random.Random(kind.__name__)
    whole = declared.write(kind(), 0)
    for _ in range(2_000):
        data = bytearray(whole + bytes(chance.randrange(3)))
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 3, chance.randrange(256)))
        by_steps = taken(STEPS[kind].read, bytes(data))
        assert taken(lambda reader: declared.read(kind, reader, 0), bytes(data)) == by_steps


def test_what_cannot_be_frequent_is_our_own_bug() -> None:
    @message(kind="data", versions="0", flexible="0+", frequent=True)
    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Tagged(Message):
        late: int = int8("0+", tag=0)

    with pytest.raises(InvariantError, match=r"Tagged\.late is no field of a frequent message"):
        declared.write(Tagged(), 0)
