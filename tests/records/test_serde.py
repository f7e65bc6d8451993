"""Values to bytes and back, and what has no bytes or is not a value."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError, ProtocolError
from kraftlib.records.serde import BytesSerde, JsonSerde, RecordSerde, TextSerde

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
TEXT = st.text(st.characters(codec="utf-8"))


@given(JSON)
def test_json_comes_back(value: Any) -> None:
    serde = JsonSerde()

    assert serde.from_bytes(serde.to_bytes(value)) == value


@given(TEXT)
def test_text_comes_back(value: str) -> None:
    assert TextSerde().from_bytes(TextSerde().to_bytes(value)) == value


@given(st.binary())
def test_bytes_stay_as_they_are(value: bytes) -> None:
    assert BytesSerde().to_bytes(memoryview(value)) == BytesSerde().from_bytes(value) == value


def test_json_is_compact_sorted_and_utf8() -> None:
    assert JsonSerde().to_bytes({"b": [1, 2], "a": "é"}) == '{"a":"é","b":[1,2]}'.encode()


@pytest.mark.parametrize("value", [{1}, math.nan, math.inf, {"a": b""}, {(1, 2): 3}, "\ud800"])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"has no JSON form|not JSON"):
        JsonSerde().to_bytes(value)


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="is not JSON"):
        JsonSerde().from_bytes(data)


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not text"):
        TextSerde().to_bytes(b"x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no UTF-8 form"):
        TextSerde().to_bytes("\ud800")
    with pytest.raises(ProtocolError, match="is not UTF-8"):
        TextSerde().from_bytes(b"\xff")


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not bytes"):
        BytesSerde().to_bytes(17)  # type: ignore[arg-type]


@pytest.mark.parametrize("serde", [BytesSerde(), TextSerde(), JsonSerde()])
def test_the_serdes_are_serdes(serde: object) -> None:
    assert isinstance(serde, RecordSerde)
