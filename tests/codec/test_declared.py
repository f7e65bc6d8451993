from __future__ import annotations

import pytest

from kraftlib.codec import declared
from kraftlib.codec.declared import read, write, write_into
from kraftlib.codec.reader import Reader
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.records.control_messages import SnapshotFooterRecord, SnapshotHeaderRecord

HEADER = SnapshotHeaderRecord(last_contained_log_timestamp=5)
ENCODED = bytes.fromhex("0000 0000000000000005 00")


def test_a_message_is_read_from_bytes_views_and_readers() -> None:
    assert write(HEADER, 0) == ENCODED
    for source in (ENCODED, bytearray(ENCODED), memoryview(ENCODED)):
        assert read(SnapshotHeaderRecord, source, 0) == HEADER
    reader = Reader(b"before" + ENCODED + b"after", 6)
    assert read(SnapshotHeaderRecord, reader, 0) == HEADER
    assert reader.remaining == 5


def test_what_follows_a_message_is_left_alone_unless_it_must_end() -> None:
    assert read(SnapshotHeaderRecord, ENCODED + b"more", 0) == HEADER
    with pytest.raises(RemoteProtocolError, match="4 bytes are left over at byte 11 of 15"):
        read(SnapshotHeaderRecord, ENCODED + b"more", 0, expect_end=True)


def test_a_message_is_written_behind_what_is_there() -> None:
    out = bytearray(b"before")
    write_into(out, HEADER, 0)
    write_into(out, SnapshotFooterRecord(), 0)
    assert out == b"before" + ENCODED + b"\0\0\0"


@pytest.mark.parametrize("version", [-1, 1, 99])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"SnapshotHeaderRecord has no version {version}, only 0"):
        write(HEADER, version)
    with pytest.raises(RemoteProtocolError, match=f"SnapshotHeaderRecord has no version {version}, only 0"):
        read(SnapshotHeaderRecord, ENCODED, version)


def test_a_codec_is_built_once() -> None:
    write(HEADER, 0)
    codec = declared._codecs[SnapshotHeaderRecord, 0]
    read(SnapshotHeaderRecord, ENCODED, 0)
    assert declared._codecs[SnapshotHeaderRecord, 0] is codec
