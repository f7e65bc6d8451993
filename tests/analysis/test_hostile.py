"""What is wrong as no checksum sees it, or was asked for as it cannot be meant, is an error and no rows."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.analysis.reading import options_of, read_table
from kraftlib.errors import ConfigError, CorruptBatchError, KraftError, StorageError
from kraftlib.records.batch import assemble
from kraftlib.records.checksum import crc32c
from kraftlib.records.compression import Codec, compress
from kraftlib.records.values import block_parts
from tests.analysis.logs import values_batch

FIRST, SECOND, THIRD = (bytes(values_batch([b"a", b"b", b"c"], base_offset=base, epoch=5).data) for base in (0, 3, 6))


def lay(directory: Path, segments: dict[int, bytes]) -> Path:
    place = directory / "t-0"
    place.mkdir(exist_ok=True)
    for base, data in segments.items():
        (place / f"{base:020d}.log").write_bytes(data)
    return place


def patched(batch: bytes, at: int, form: str, value: int, *, crc: bool = False) -> bytes:
    data = bytearray(batch)
    struct.pack_into(form, data, at, value)
    if crc:
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


def of_two_frames(codec: Codec) -> bytes:
    block = b"".join(block_parts([b"a", b"b", b"c"]))
    return bytes(assemble((compress(codec, block[:9]), compress(codec, block[9:])), 3, codec, 1, 1, 3, 5).data)


def followed_by_more(codec: Codec) -> bytes:
    block = b"".join(block_parts([b"a", b"b", b"c"]))
    return bytes(assemble((compress(codec, block), b"and more"), 3, codec, 1, 1, 3, 5).data)


LACKING = assemble(block_parts([b"a", b"b"]), 2, 0, 1, 1, 3, 5).data
EMPTIED = patched(patched(assemble((b"",), 1, 0, 1, 1, 3, 5).data, 57, ">i", 0), 23, ">i", 2, crc=True)
CODECS = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)


@pytest.mark.parametrize(
    ("segments", "complaint"),
    [
        ({0: THIRD, 6: FIRST}, "has base offset 6, and 0 was to follow"),
        ({0: FIRST + THIRD + SECOND}, "has base offset 6, and 3 was to follow"),
        ({0: FIRST + SECOND + SECOND + THIRD}, "has base offset 3, and 6 was to follow"),
        ({0: FIRST + THIRD}, "has base offset 6, and 3 was to follow"),
        ({0: FIRST + SECOND + patched(THIRD, 0, ">q", 60)}, "has base offset 60, and 6 was to follow"),
        ({0: FIRST + patched(bytes(LACKING), 23, ">i", 2, crc=True) + THIRD}, "holds 2 records for 3 offsets"),
        ({0: FIRST + EMPTIED + THIRD}, "holds 0 records for 3 offsets"),
        ({0: patched(FIRST, 12, ">i", -1) + SECOND}, "has epoch -1, and no leader has such a one"),
        ({0: FIRST, 3: b"", 6: THIRD}, "the offsets from 3 on are missing, 6 follows"),
        ({0: b"", 3: SECOND}, "the offsets from 0 on are missing, 3 follows"),
        ({0: FIRST + SECOND + THIRD, 6: THIRD}, "9 was to follow, and 6 does"),
        *(({0: FIRST + of_two_frames(codec) + THIRD}, "cannot be decompressed") for codec in CODECS),
        *(({0: FIRST + followed_by_more(codec) + THIRD}, "cannot be decompressed") for codec in CODECS),
    ],
)
def test_a_log_of_which_something_is_gone_doubled_or_moved_is_an_error(
    segments: dict[int, bytes], complaint: str, tmp_path: Path
) -> None:
    place = lay(tmp_path, segments)
    with pytest.raises(CorruptBatchError, match=complaint):
        read_table(place)

    # Tolerated, it is a row that says so, and all others are right.
    rows = read_table(place, mode="PERMISSIVE", columns="offset,value,problem").to_pylist()
    assert [row for row in rows if row["problem"] is not None]
    assert all(row["value"] == b"abc"[row["offset"] % 3 :][:1] for row in rows if row["problem"] is None)


def test_an_empty_segment_is_no_damage_where_the_log_goes_on(tmp_path: Path) -> None:
    assert read_table(lay(tmp_path, {0: FIRST, 3: b""})).num_rows == 3


def a_directory(path: Path) -> None:
    path.mkdir()


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("where-nothing-is")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [a_directory, os.mkfifo])
def test_what_is_named_as_a_segment_and_is_no_file_is_not_passed_over(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    place = lay(tmp_path, {0: FIRST})
    make(place / f"{3:020d}.log")
    with pytest.raises(StorageError, match=r"3\.log is named as a segment or checkpoint and is no file"):
        read_table(place)


@pytest.mark.parametrize("view", ["records", "batches", "files"])
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("make", [a_link_to_nothing, a_link_to_itself])
def test_a_link_that_leads_nowhere_is_not_passed_over(
    make: Callable[[Path], None], mode: str, view: str, tmp_path: Path
) -> None:
    """As the newest segment nothing else would tell that its records are missing."""
    place = lay(tmp_path, {0: FIRST})
    make(place / f"{3:020d}.log")
    for path in (place, tmp_path, tmp_path / "t-*", place / "*.log", f"file://{place}"):
        with pytest.raises(StorageError, match=r"3\.log is named as a segment or checkpoint and links to"):
            read_table(path, mode=mode, view=view)
    assert read_table(place / "*0.log").num_rows == 3, "who does not ask for it is not bothered"


def test_a_link_to_a_segment_is_read_as_the_segment(tmp_path: Path) -> None:
    place = lay(tmp_path, {0: FIRST})
    (tmp_path / "elsewhere").write_bytes(SECOND)
    (place / f"{3:020d}.log").symlink_to(tmp_path / "elsewhere")
    (place / "unrelated").symlink_to("where-nothing-is")

    assert read_table(place, columns="offset")["offset"].to_pylist() == list(range(6))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startOffset": 5, "endOffset": 3}, "startOffset=5 is beyond endOffset=3"),
        ({"minEpoch": 7, "maxEpoch": 6}, "minEpoch=7 is beyond maxEpoch=6"),
        ({"startTimestamp": "2024-01-02", "endTimestamp": "2024-01-01"}, "nothing lies between"),
        ({"startTimestamp": "20240102"}, "write 2024-01-02"),
        ({"endTimestamp": "1704153600"}, "are they seconds"),
        ({"startTimestamp": "1704153600000000"}, "micro- or nanoseconds"),
    ],
)
def test_bounds_that_cannot_be_meant_are_refused_and_not_an_empty_answer(
    options: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        options_of(lay(tmp_path, {0: FIRST}), **options)


def test_bounds_that_meet_are_allowed(tmp_path: Path) -> None:
    place = lay(tmp_path, {0: FIRST})
    assert read_table(place, startOffset=2, endOffset=2).num_rows == 0
    assert read_table(place, minEpoch=5, maxEpoch=5).num_rows == 3


def test_errors_of_hostile_files_are_of_the_library(tmp_path: Path) -> None:
    place = lay(tmp_path, {0: FIRST.replace(b"a", b"\r\n")})
    with pytest.raises(KraftError):
        read_table(place)


@pytest.mark.parametrize(("at", "kind", "value"), [(16, "b", 9), (8, ">i", 1 << 30), (8, ">i", 3)])
@pytest.mark.parametrize("asked", [{}, {"startOffset": 1, "endOffset": 2}, {"minEpoch": 1}])
def test_a_large_log_whose_first_batch_is_not_to_be_believed_is_an_error(
    at: int, kind: str, value: int, asked: dict[str, int], tmp_path: Path
) -> None:
    """It is planned by a walk over its batches, which finds none: that is no reason to read nothing."""
    place = lay(tmp_path, {0: patched(FIRST, at, kind, value) + SECOND + THIRD})
    with pytest.raises(CorruptBatchError, match=r"claims a length|has magic"):
        read_table(place, maxPartitionBytes=50, **asked)


def test_a_batch_of_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    place = lay(tmp_path, {0: FIRST + patched(SECOND, 8, ">i", 1 << 30)})
    (segment,) = place.rglob("*.log")
    os.truncate(segment, len(FIRST) + (1 << 30) + 12)
    with pytest.raises(CorruptBatchError, match="claims a length of 1073741824, which is not within"):
        read_table(place)
