"""What an older release has left is opened, what a newer one has left is not misread: accepted, ignored or refused."""

from __future__ import annotations

import io
import json
import shutil
import socket
from pathlib import Path

import pytest

from kraftlib import blocking
from kraftlib.cli.key_value import KeyValueStore
from kraftlib.codec.declared import write
from kraftlib.config import RaftConfig
from kraftlib.errors import CorruptBatchError, RemoteProtocolError
from kraftlib.offline.verify import verify_directory
from kraftlib.records.batch import CONTROL, assemble, encode_batch
from kraftlib.records.checksum import crc32c
from kraftlib.records.control import decode_control_batch, encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, SnapshotHeaderRecord
from kraftlib.records.record import Record, encode_block
from kraftlib.records.serde import JsonSerde
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter, StreamSource
from kraftlib.storage import names
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.holds_file import StoredHold, read_holds
from kraftlib.storage.log.sync_point import read_sync_point
from kraftlib.types import Endpoint, OffsetRange

RELEASES = [Path(__file__).parent.parent / "data" / "kraftlib-0.1" / "n1"]


def opened(directory: Path) -> tuple[dict[str, str], int]:
    """Run the replica for one more record; return what its store has, and where its log ended before."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = KeyValueStore()
    config = RaftConfig(node_id=1, directory=directory, listen=Endpoint("127.0.0.1", port))
    with blocking.RaftClient(config, state_machine=store, serde=JsonSerde()) as client:
        end = client.log_end_offset()
        client.wait_for_leader(timeout_ms=20_000)
        client.propose({"key": "new", "value": "life"})
        return store.items, end


def expected() -> dict[str, str]:
    return {f"k{n}": str(n if n < 10 else -n) for n in range(30)} | {"new": "life"}


@pytest.fixture(params=RELEASES, ids=lambda path: path.parent.name)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(request.param, tmp_path / "n1")
    return tmp_path / "n1"


def test_a_directory_of_an_older_release_has_lost_nothing(directory: Path) -> None:
    assert {finding.verdict for finding in verify_directory(directory)} == {"ok"}
    assert read_holds(directory / names.PARTITION_DIRECTORY)[0] == StoredHold(name="feed", offset=5, max_bytes=1 << 30)
    items, end = opened(directory)
    assert (items, end >= 43) == (expected(), True)
    assert {finding.verdict for finding in verify_directory(directory)} == {"ok"}


def test_side_files_of_a_newer_release_are_as_good_as_none(directory: Path) -> None:
    partition = directory / names.PARTITION_DIRECTORY
    newer = json.dumps({"version": 99, "layout": 99, "anything": []}).encode()
    wanted_again = (names.HOLDS, names.HAS_RUN, "kraftlib-future.json")
    for name in (names.DOWNLOAD, names.SYNC_POINT, names.PREFIX, *wanted_again):
        (partition / name).write_bytes(newer)
    items, _ = opened(directory)
    assert items == expected()
    assert [(partition / name).read_bytes() for name in wanted_again] == [newer] * 3


def test_a_note_of_another_layout_is_none_even_if_it_is_whole(directory: Path) -> None:
    """Its fields may mean something else: what they say must not pass for how far the log was durable."""
    path = directory / names.PARTITION_DIRECTORY / names.SYNC_POINT
    found = read_sync_point(path.parent)
    assert found is not None, "the first release named no layout"
    line = json.dumps({**json.loads(path.read_bytes()[:512]), "layout": 2}, separators=(",", ":"))
    fields = json.loads(line)
    del fields["crc"]
    plain = json.dumps(fields, separators=(",", ":")).encode()
    slot = plain[:-1] + b',"crc":%d}' % crc32c(plain)
    path.write_bytes(2 * (slot.ljust(511) + b"\n"))
    assert read_sync_point(path.parent) is None
    items, _ = opened(directory)
    assert items == expected()


def test_the_release_before_finds_all_that_it_reads_in_what_this_one_writes(directory: Path, tmp_path: Path) -> None:
    """So going back to it costs nothing; what is new it does not look at."""
    before = directory / names.PARTITION_DIRECTORY
    shutil.copytree(before, tmp_path / "before")
    opened(directory)
    for name in (names.SYNC_POINT, names.PREFIX, names.HAS_RUN, names.HOLDS, names.QUORUM_STATE_MIRROR):
        old, new = (json.loads((place / name).read_bytes().split(b"\n")[0]) for place in (tmp_path / "before", before))
        assert set(old) <= set(new), name
        for version in ("layout", "version"):
            assert old.get(version, 1) == new.get(version, 1), name


def test_a_batch_of_an_unknown_magic_is_damage_and_never_cut(directory: Path) -> None:
    """Whoever wrote it has noted that it is durable, and this release cannot tell what is in it."""
    partition = directory / names.PARTITION_DIRECTORY
    log = FileReplicatedLog.open(partition)
    position, end_offset = log.size_bytes, log.end_offset
    log.append([encode_batch([b"later"], timestamp_ms=1, base_offset=end_offset, epoch=1)])
    log.flush()  # and the process is killed
    segment = partition / names.segment_name(0)
    with segment.open("r+b") as file:
        file.seek(position + 16)
        file.write(b"\x03")
    size = segment.stat().st_size
    with pytest.raises(CorruptBatchError, match="nothing was cut"):
        FileReplicatedLog.open(partition)
    again = FileReplicatedLog.open(partition, keep_damage=True)
    assert again.holes() == (OffsetRange(end_offset, end_offset + 1),)
    assert segment.stat().st_size == size


def test_without_any_side_file_nothing_is_lost_either(directory: Path) -> None:
    partition = directory / names.PARTITION_DIRECTORY
    for path in [*partition.glob("kraftlib*"), partition / names.QUORUM_STATE_MIRROR]:
        path.unlink()
    items, _ = opened(directory)
    assert items == expected()


# Records --------------------------------------------------------------------------------------------------------------


def control_batch(key: bytes, value: bytes) -> object:
    block = encode_block([Record(0, 0, key, value, ())], base_offset=0, base_timestamp=0)
    return assemble([block], 1, CONTROL, 0, 0, 0, 1)


def test_a_control_record_that_is_not_known_is_refused_with_its_place() -> None:
    """It may change who votes: neither to be skipped nor to be guessed."""
    unknown = control_batch(b"\x00\x00\x00\x63", b"\x00\x00\x00")
    with pytest.raises(RemoteProtocolError, match="offset 0 is of unknown type 99"):
        list(decode_control_batch(unknown))  # type: ignore[arg-type]
    newer = control_batch(b"\x00\x00\x00\x05", b"\x00\x09\x00\x01\x00")
    with pytest.raises(RemoteProtocolError):
        list(decode_control_batch(newer))  # type: ignore[arg-type]


def test_an_unknown_tagged_field_is_ignored() -> None:
    plain = write(KRaftVersionRecord(kraft_version=1), 0)
    tagged = bytes(plain[:-1]) + b"\x01\x63\x02hi"
    ((_, record),) = decode_control_batch(control_batch(b"\x00\x00\x00\x05", tagged))  # type: ignore[arg-type]
    assert isinstance(record, KRaftVersionRecord)
    assert record.kraft_version == 1


def test_a_header_of_before_kraft_version_1_is_accepted() -> None:
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=1, last_contained_log_timestamp=5)
    writer.freeze()
    header = encode_control_batch([SnapshotHeaderRecord(last_contained_log_timestamp=5)], timestamp_ms=5, epoch=1)
    assert bytes(out).startswith(bytes(header.data))
    with SnapshotReader(StreamSource(io.BytesIO(bytes(out)))) as reader:
        assert (reader.kraft_version, reader.voters, reader.verify()) == (0, None, 0)
