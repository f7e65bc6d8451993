from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import StorageError
from kraftlib.storage import notes
from kraftlib.storage.notes import NoteError

FIELDS = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text())


@given(FIELDS)
def test_what_is_encoded_is_parsed(fields: dict[str, object]) -> None:
    assert notes.parse(notes.encode(fields)) == notes.parse(notes.encode(fields, compact=False)) == fields


@given(FIELDS, st.data())
def test_no_changed_byte_of_a_sealed_note_is_believed(fields: dict[str, object], data: st.DataObject) -> None:
    line = bytearray(notes.seal(notes.encode({"version": 1, **fields})))
    place = data.draw(st.integers(0, len(line) - 1))
    line[place] ^= data.draw(st.integers(1, 255))

    with pytest.raises(NoteError, match=r"CRC|JSON"):
        notes.parse_sealed(bytes(line))


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"{", b"\xff", b"", b"[1]", b"7"])
def test_what_is_no_object_or_nested_too_deep_is_one_error(text: bytes) -> None:
    with pytest.raises(NoteError, match=r"nested|JSON"):
        notes.parse(text)


def test_a_note_without_a_crc_is_no_sealed_one() -> None:
    assert not notes.is_sealed(b'{"version":1}')
    with pytest.raises(NoteError, match="no CRC"):
        notes.parse_sealed(b'{"version":1}')


@pytest.mark.parametrize("value", [None, True, 1.0, "1", -1, 8])
def test_a_field_that_is_no_number_in_range_is_named(value: object) -> None:
    with pytest.raises(NoteError, match=f"size is {value!r}"):
        notes.integer({"size": value}, "size", high=7)


def test_another_version_is_named() -> None:
    notes.check_version({"version": 1}, 1)
    with pytest.raises(NoteError, match="its version is 2, known is 1"):
        notes.check_version({"version": 2}, 1)


def test_a_note_larger_than_its_bound_is_not_read(tmp_path: Path) -> None:
    assert notes.read(tmp_path / "note", max_bytes=10) is None
    (tmp_path / "note").write_bytes(b'{"a": 1}   ')
    with pytest.raises(StorageError, match="larger than 10 bytes"):
        notes.read(tmp_path / "note", max_bytes=10)
    assert notes.read(tmp_path / "note", max_bytes=11) == {"a": 1}
