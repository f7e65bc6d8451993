from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from kraftlib.records.checksum import crc32c
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.prefix import KnownPrefix, SealedSegment, read_prefix, tells_of_voters, write_prefix
from kraftlib.storage.log.sync_point import Mark
from kraftlib.testing.log_contract import read_all
from kraftlib.types import EpochStart, OffsetAndEpoch
from tests.storage.builders import a_batch, some_batches

VERSION = encode_control_batch([KRaftVersionRecord(kraft_version=1)], timestamp_ms=1, base_offset=4, epoch=2)
LEADER = encode_control_batch(
    [LeaderChangeMessage(leader_id=1, voters=(), granting_voters=())], timestamp_ms=1, base_offset=5, epoch=2
)
KNOWN = KnownPrefix(
    mark=Mark(100, 7, 4_096, 150, 3, 99),
    start_offset=10,
    index_entries=3,
    sealed=(SealedSegment(0, 8_192, 17, 6),),
    epochs=(EpochStart(epoch=1, start_offset=0), EpochStart(epoch=3, start_offset=40)),
    controls=(VERSION,),
)


def written(directory: Path, known: KnownPrefix = KNOWN) -> Path:
    write_prefix(directory, known, file_mode=0o600, durable=False)
    return directory / "kraftlib-prefix.json"


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path)

    assert read_prefix(tmp_path) == KNOWN


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_prefix(tmp_path) is None
        path.write_bytes(whole[:at])
        assert read_prefix(tmp_path) is None
    path.unlink()
    assert read_prefix(tmp_path) is None


@pytest.mark.parametrize(
    "change", [{"layout": 2}, {"mark": [1, 2]}, {"sealed": [[1, "x", 3, 4]]}, {"controls": ["?"]}, {"epochs": 7}]
)
def test_another_layout_is_left_alone(change: dict[str, object], tmp_path: Path) -> None:
    """Written by a newer release, perhaps: its CRC fits, and what it says is not for us."""
    path = written(tmp_path)
    fields = json.loads(path.read_bytes())
    del fields["crc"]
    line = json.dumps({**fields, **change}, separators=(",", ":")).encode()
    path.write_bytes(b'%s,"crc":%d}' % (line[:-1], crc32c(line)))

    assert read_prefix(tmp_path) is None


def test_a_change_of_leader_tells_nothing_of_voters() -> None:
    assert tells_of_voters(VERSION)
    assert not tells_of_voters(LEADER)


# In use ---------------------------------------------------------------------------------------------


def a_closed_log(directory: Path) -> FileReplicatedLog:
    log = FileReplicatedLog.open(directory, segment_bytes=9_000)
    for batch in some_batches(*[1] * 50, *[2] * 40, *[5] * 30, size=200):
        log.append([batch])
    log.append([VERSION.stamp(base_offset=120, epoch=5)])
    log.close()
    return log


def test_after_a_clean_end_nothing_is_read_and_all_is_known(tmp_path: Path) -> None:
    a_closed_log(tmp_path)
    again = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)
    shutil.copytree(tmp_path, tmp_path.parent / "scanned", ignore=shutil.ignore_patterns("kraftlib*"))
    scanned = FileReplicatedLog.open(tmp_path.parent / "scanned")

    assert again.bytes_read_at_start == 0
    assert scanned.bytes_read_at_start > 30_000
    assert again.epoch_starts() == scanned.epoch_starts()
    assert again.control_batches() == scanned.control_batches() != ()
    assert (again.start_offset, again.end_offset) == (scanned.start_offset, scanned.end_offset)
    assert read_all(again) == read_all(scanned)


def test_after_a_kill_only_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlib.storage.log.growing_log.PREFIX_BYTES", 3_000)
    log = FileReplicatedLog.open(tmp_path, segment_bytes=20_000)
    batches = some_batches(*[1] * 150, *[2] * 50, size=200)
    for batch in batches:
        log.append([batch])
        log.flush()
    again = FileReplicatedLog.open(tmp_path, segment_bytes=20_000)

    assert again.bytes_read_at_start <= 4_000
    assert read_all(again) == batches
    again.append([a_batch(200, 2)])
    again.close()
    assert FileReplicatedLog.open(tmp_path).end_offset == 201


def copied(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    path.rename(path.with_suffix(".was"))
    shutil.copy(path.with_suffix(".was"), path)


def kafka_ran(path: Path) -> None:
    fields = '{"leaderId":1,"leaderEpoch":9,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    (path.parent / "quorum-state").write_text(fields)


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def without_sync_point(path: Path) -> None:
    (path.parent / "kraftlib-sync.json").unlink()


@pytest.mark.parametrize("change", [copied, kafka_ran, touched, without_sync_point])
def test_what_somebody_else_may_have_changed_is_read_again(change: Callable[[Path], None], tmp_path: Path) -> None:
    log = a_closed_log(tmp_path)
    last = max(tmp_path.glob("*.log"))
    change(last)
    again = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)

    assert again.bytes_read_at_start == sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    assert again.end_offset == log.end_offset


def test_a_prefix_beyond_the_sync_point_is_not_believed(tmp_path: Path) -> None:
    a_closed_log(tmp_path)
    known = read_prefix(tmp_path)
    assert known is not None
    ahead = attrs.evolve(known, mark=known.mark._replace(end_offset=known.mark.end_offset + 1))
    written(tmp_path, ahead)

    assert FileReplicatedLog.open(tmp_path).bytes_read_at_start > 30_000


def test_an_index_that_was_lost_is_made_by_reading(tmp_path: Path) -> None:
    a_closed_log(tmp_path)
    known = read_prefix(tmp_path)
    assert known is not None
    assert known.index_entries > 0
    max(tmp_path.glob("*.index")).unlink()
    again = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)

    assert again.bytes_read_at_start > 30_000
    assert [again.read(n, 1)[0].base_offset for n in range(121)] == list(range(121))


def test_nothing_that_was_known_survives_a_truncation(tmp_path: Path) -> None:
    """It would be about batches that are no more, or others by now."""
    a_closed_log(tmp_path)
    log = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)
    log.truncate(20)
    assert not (tmp_path / "kraftlib-prefix.json").exists()
    log.append([a_batch(20, 7)])
    log.flush()
    again = FileReplicatedLog.open(tmp_path)

    assert [start.epoch for start in again.epoch_starts()] == [1, 7]
    assert again.control_batches() == ()


def test_what_is_not_believed_at_a_start_is_not_believed_once_the_log_has_grown(tmp_path: Path) -> None:
    """Power went amid a truncation: the sync point was lowered, and the prefix was not removed yet."""
    a_closed_log(tmp_path)
    prefix = tmp_path / "kraftlib-prefix.json"
    before = prefix.read_bytes()
    log = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)
    log.truncate(110)
    prefix.write_bytes(before)
    log = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)
    assert not prefix.exists()
    log.append(some_batches(*[6] * 20, size=200, base_offset=110))
    log.flush()
    again = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)

    assert [start.epoch for start in again.epoch_starts()] == [1, 2, 5, 6]
    assert again.control_batches() == ()


def test_deleted_segments_are_no_reason_to_read(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)
    for batch in some_batches(*[1] * 50, *[2] * 70, size=200):
        log.append([batch])
    log.flush()
    snapshot_id = OffsetAndEpoch(offset=90, epoch=2)
    log.create_snapshot(snapshot_id).freeze()
    log.delete_before(snapshot_id)
    log.close()
    again = FileReplicatedLog.open(tmp_path, segment_bytes=9_000)

    assert again.bytes_read_at_start == 0
    assert again.start_offset == 90
    assert again.epoch_starts() == (EpochStart(epoch=2, start_offset=90),)
