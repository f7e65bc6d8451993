from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files
from kraftlib.storage.damage.recovery import recover
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.epochs import decode_epochs
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import read_sync_point
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink
from kraftlib.testing.log_contract import read_all
from kraftlib.types import ElectionState, OffsetAndEpoch
from tests.storage.builders import a_batch, offsets, some_batches

DATA = Path(__file__).parent.parent.parent / "data"
BATCHES = [a_batch(0, 1), a_batch(1, 1, records=3), a_batch(4, 2, size=50), a_batch(5, 2), a_batch(6, 4, records=2)]
WHOLE = b"".join(bytes(batch.data) for batch in BATCHES)
ENDS = [sum(batch.size for batch in BATCHES[:n]) for n in range(len(BATCHES) + 1)]


def write_segment(directory: Path, base_offset: int, data: bytes) -> Path:
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return path


def joined(batches: Sequence[Batch]) -> bytes:
    return b"".join(bytes(batch.data) for batch in batches)


def write_snapshot(directory: Path, offset: int, epoch: int) -> OffsetAndEpoch:
    snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
    FileSnapshotSink(directory, snapshot_id).freeze()
    return snapshot_id


def opened(directory: Path) -> FileReplicatedLog:
    return FileReplicatedLog.open(directory, segment_bytes=1_000)


def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


# Torn tails ---------------------------------------------------------------------------------------


def test_a_log_cut_at_any_byte_is_recovered_to_its_last_whole_batch(tmp_path: Path) -> None:
    """Physically: what is appended next must not be swallowed by the length of half a batch."""
    for size in range(len(WHOLE) + 1):
        path = write_segment(tmp_path, 0, WHOLE[:size])
        whole = max(n for n, end in enumerate(ENDS) if end <= size)
        log = recover(tmp_path, file_mode=0o600)

        assert log.end_offset == (BATCHES[whole - 1].end_offset if whole else 0)
        assert path.stat().st_size == ENDS[whole]
        assert [start.epoch for start in log.epochs.starts()] == sorted({b.epoch for b in BATCHES[:whole]})


@pytest.mark.parametrize("tail", [b"\0" * 5_000, b"\xff" * 200, b"rubbish" * 20, bytes(a_batch(8, 4).data)[:-1] + b"?"])
def test_what_is_no_batch_behind_the_last_one_is_cut(tail: bytes, tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, WHOLE + tail)
    log = opened(tmp_path)

    assert (log.end_offset, log.flushed_offset) == (8, 8)
    assert path.read_bytes() == WHOLE
    log.append([a_batch(8, 5)])
    log.close()
    assert read_all(opened(tmp_path)) == [*BATCHES, a_batch(8, 5)]


def test_a_cut_is_durable_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = [], os.fsync

    def noting(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    write_segment(tmp_path, 0, WHOLE[:-10])
    with caplog.at_level(logging.WARNING):
        recover(tmp_path, file_mode=0o600)

    assert synced[:2] == ["00000000000000000000.log", tmp_path.name]
    assert f"00.log: a torn tail of {BATCHES[-1].size - 10} bytes is cut off at offset 6" in caplog.text


@pytest.mark.parametrize("left", [joined(BATCHES[:3])[:-5], joined(BATCHES[:2])], ids=["torn", "lost whole batches"])
def test_a_full_segment_without_its_end_takes_the_empty_one_behind_with_it(left: bytes, tmp_path: Path) -> None:
    """The machine stopped between the roll and the flush that would have made both durable."""
    write_segment(tmp_path, 0, left)
    write_segment(tmp_path, 5, b"")

    assert opened(tmp_path).end_offset == 4
    assert [path.name for path in tmp_path.glob("*.log")] == ["00000000000000000000.log"]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), cut=st.integers(1, 3_000))
def test_any_log_cut_anywhere_is_recovered(seed: int, cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance, directory, batches = random.Random(seed), fresh(tmp_path_factory), []
    log = FileReplicatedLog.open(directory, segment_bytes=3_000)
    for _ in range(chance.randint(1, 40)):
        end = batches[-1].end_offset if batches else 0
        batches.append(a_batch(end, 1 + len(batches) // 10, records=chance.randint(1, 3), size=chance.randint(1, 300)))
        log.append(batches[-1:])
    last = max(directory.glob("*.log"))
    os.truncate(last, max(0, last.stat().st_size - cut))

    again = opened(directory)
    assert read_all(again) == batches[: len(read_all(again))]
    assert again.end_offset >= int(last.stem)
    assert again.epoch_starts() == decode_epochs((directory / "leader-epoch-checkpoint").read_bytes())


# Damage -------------------------------------------------------------------------------------------

STEPS = [7, pytest.param(1, marks=pytest.mark.slow)]
"""From one bit that is flipped to the next: one in each byte, or every one."""


@pytest.mark.parametrize("step", STEPS)
def test_a_flipped_bit_below_the_last_batch_is_never_cut(step: int, tmp_path: Path) -> None:
    """Any bit of any batch but the last: whole batches behind it say that it was durable once."""
    for bit in range(0, ENDS[-2] * 8, step):
        data = bytearray(WHOLE)
        data[bit // 8] ^= 1 << bit % 8
        path = write_segment(tmp_path, 0, data)
        batch = max(n for n, end in enumerate(ENDS) if end <= bit // 8)
        if is_in_epoch(bit, batch):
            continue
        with pytest.raises(CorruptBatchError, match=r"This is damage, no torn tail") as caught:
            recover(tmp_path, file_mode=0o600)
        assert caught.value.path == path
        if 12 <= bit // 8 - ENDS[batch] < 16:
            continue  # the epoch: nobody can say whether it is wrong, or that of those before it
        assert caught.value.position in (ENDS[batch], ENDS[batch + 1]), bit
        assert path.read_bytes() == data


def is_in_epoch(bit: int, batch: int) -> bool:
    """Whether the bit is one of the epoch, which no checksum covers, and leaves an epoch that could be."""
    at = bit // 8 - ENDS[batch] - 12
    if not 0 <= at < 4:
        return False
    epoch = BATCHES[batch].epoch ^ 1 << ((3 - at) * 8 + bit % 8)
    before = BATCHES[batch - 1].epoch if batch else 0
    return before <= epoch <= BATCHES[batch + 1].epoch


def test_a_flipped_bit_of_the_last_batch_is_a_torn_tail_or_damage_but_never_read(tmp_path: Path) -> None:
    start = ENDS[-2]
    for bit in range(start * 8, len(WHOLE) * 8):
        data = bytearray(WHOLE)
        data[bit // 8] ^= 1 << bit % 8
        path = write_segment(tmp_path, 0, data)
        if 12 <= bit // 8 - start < 16:
            continue  # the epoch: no checksum covers it
        try:
            assert recover(tmp_path, file_mode=0o600).end_offset == 6
        except CorruptBatchError:
            assert bit // 8 - start < 8, "only a whole batch in the wrong place is damage here"
            assert path.read_bytes() == data


def test_several_segments_that_were_never_synced_are_one_torn_tail(tmp_path: Path) -> None:
    """Of three segments begun between two flushes the disk may have kept the last one's name, and nothing else."""
    write_segment(tmp_path, 0, joined(some_batches(1, 1)))
    (tmp_path / f"{3:020d}.log").write_bytes(b"")
    (tmp_path / f"{4:020d}.log").write_bytes(bytes(a_batch(4).data[:40]))

    log = FileReplicatedLog.open(tmp_path)

    assert log.end_offset == 2
    assert log.holes() == ()
    log.close()
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [f"{0:020d}.log"]


def test_a_whole_batch_in_the_wrong_place_is_damage(tmp_path: Path) -> None:
    """A misdirected or lost write: nobody was interrupted while writing it."""
    for wrong in (a_batch(9, 4), a_batch(7, 4), a_batch(8, 3)):
        path = write_segment(tmp_path, 0, WHOLE + bytes(wrong.data))
        with pytest.raises(CorruptBatchError, match="does not continue a log that ends at 8 in epoch 4"):
            recover(tmp_path, file_mode=0o600)
        assert path.stat().st_size == len(WHOLE) + wrong.size


def test_a_batch_that_ends_beyond_its_segment_is_damage(tmp_path: Path) -> None:
    """Its checksum is right, and both indexes count offsets from the segment's in 32 bits."""
    wrong = bytearray(a_batch(8, 4).data)
    wrong[23:27] = (2**31 - 1).to_bytes(4, "big")  # lastOffsetDelta
    wrong[17:21] = crc32c(bytes(wrong[21:])).to_bytes(4, "big")
    path = write_segment(tmp_path, 0, WHOLE + bytes(wrong))
    with pytest.raises(CorruptBatchError, match="ends beyond what a segment can hold"):
        recover(tmp_path, file_mode=0o600)
    assert path.stat().st_size == len(WHOLE) + len(wrong)


def test_bad_bytes_in_a_full_segment_are_damage_if_the_next_one_holds_a_batch(tmp_path: Path) -> None:
    for first in (joined(BATCHES[:3])[:-5], joined(BATCHES[:2])):
        write_segment(tmp_path, 0, first)
        write_segment(tmp_path, 5, joined(BATCHES[3:]))
        with pytest.raises(CorruptBatchError, match=r"00000000000000000005\.log behind it has whole batches"):
            recover(tmp_path, file_mode=0o600)
        assert len(list(tmp_path.glob("*.log"))) == 2


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, joined(BATCHES[:2]))
    write_segment(tmp_path, 6, joined(BATCHES[4:]))

    with pytest.raises(CorruptBatchError, match="ends at offset 4, the next segment begins at 6"):
        recover(tmp_path, file_mode=0o600)


def test_bad_bytes_below_the_end_of_a_snapshot_are_damage(tmp_path: Path) -> None:
    """The state of offset 8 was durable and committed when the snapshot was taken, and so was the log."""
    path = write_segment(tmp_path, 0, WHOLE[:-1])
    write_snapshot(tmp_path, 8, 4)

    with pytest.raises(CorruptBatchError, match="snapshot 8@4 reaches beyond it"):
        recover(tmp_path, file_mode=0o600)
    assert path.stat().st_size == len(WHOLE) - 1


# What was durable ---------------------------------------------------------------------------------


def flushed_log(directory: Path, batches: Sequence[Batch] = BATCHES) -> Path:
    """Write a log as a replica does that is killed: every batch flushed, nothing closed."""
    log = FileReplicatedLog.open(directory)
    for batch in batches:
        log.append([batch])
        log.flush()
    line = encode_line(ElectionState(epoch=4), kraft_version=1, voters=(), generation=1)
    (directory / "quorum-state").write_bytes(line)
    return directory / f"{0:020d}.log"


def test_a_log_cut_below_its_sync_point_is_damaged(tmp_path: Path) -> None:
    """Also at the end of a batch, and of an epoch: those bytes were durable."""
    path = flushed_log(tmp_path)
    for size in range(len(WHOLE)):
        os.truncate(path, size)
        with pytest.raises(CorruptBatchError, match=r"durable up to 8.*This is damage, no torn tail") as caught:
            recover(tmp_path, file_mode=0o600)
        assert caught.value.position == max(end for end in ENDS if end <= size)
        assert path.stat().st_size == size
        with path.open("r+b") as file:
            file.write(WHOLE)


@pytest.mark.parametrize("step", STEPS)
def test_every_bit_below_the_sync_point_counts_epochs_and_offsets_included(step: int, tmp_path: Path) -> None:
    path = flushed_log(tmp_path)
    for bit in range(0, len(WHOLE) * 8, step):
        data = bytearray(WHOLE)
        data[bit // 8] ^= 1 << bit % 8
        with path.open("r+b") as file:
            file.write(data)
        with pytest.raises(CorruptBatchError, match="This is damage"):
            recover(tmp_path, file_mode=0o600)


@pytest.mark.parametrize("tail", [b"?" * 100, bytes(5_000), bytes(a_batch(8, 4).data)[:-1]])
def test_bad_bytes_behind_the_sync_point_are_a_torn_tail(tail: bytes, tmp_path: Path) -> None:
    path = flushed_log(tmp_path)
    with path.open("ab") as file:
        file.write(tail)

    assert recover(tmp_path, file_mode=0o600).end_offset == 8
    assert path.read_bytes() == WHOLE


@pytest.mark.parametrize("content", [None, b"", b"?" * 1_024])
def test_without_a_sync_point_a_bad_tail_is_doubtful(content: bytes | None, tmp_path: Path) -> None:
    path, sync_point = flushed_log(tmp_path), tmp_path / "kraftlib-sync.json"
    with path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"?")
    if content is None:
        sync_point.unlink()
    else:
        sync_point.write_bytes(content)

    with pytest.raises(CorruptBatchError, match="which would tell a torn tail from damage, is lost"):
        recover(tmp_path, file_mode=0o600)
    assert path.stat().st_size == len(WHOLE)


@pytest.mark.parametrize("tail", [bytes(10_000), b"?" * 60])
def test_what_can_be_no_batch_is_not_doubtful(tail: bytes, tmp_path: Path) -> None:
    path = flushed_log(tmp_path)
    (tmp_path / "kraftlib-sync.json").unlink()
    with path.open("ab") as file:
        file.write(tail)

    assert recover(tmp_path, file_mode=0o600).end_offset == 8


def test_what_kafka_has_cut_is_no_damage(tmp_path: Path) -> None:
    """It knows no sync points, and cuts what diverges from its leader; `quorum-state` without our CRC says it ran."""
    path = flushed_log(tmp_path)
    os.truncate(path, ENDS[2])
    kafka = '{"leaderId":1,"leaderEpoch":9,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    (tmp_path / "quorum-state").write_text(kafka)

    assert recover(tmp_path, file_mode=0o600).end_offset == 4
    note = read_sync_point(tmp_path)
    assert note is not None
    assert note.claims_nothing, "durably, before our next vote brings the CRC back"


def test_a_chain_that_goes_on_in_a_newer_epoch_is_no_damage(tmp_path: Path) -> None:
    path = flushed_log(tmp_path)
    os.truncate(path, ENDS[2])
    with path.open("ab") as file:
        file.write(a_batch(4, 9).data)

    assert recover(tmp_path, file_mode=0o600).end_offset == 5


@pytest.mark.parametrize("stop_at", ["remove", "ftruncate", "remove_index_files"])
def test_a_truncation_that_is_cut_off_is_no_damage(
    stop_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileReplicatedLog.open(tmp_path)
    log.append(BATCHES)
    log.flush()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    owner = {"remove": files, "ftruncate": os, "remove_index_files": Segment}[stop_at]
    monkeypatch.setattr(owner, stop_at, stop)
    with pytest.raises(KeyboardInterrupt):
        log.truncate(4)
    monkeypatch.undo()
    os.truncate(tmp_path / f"{0:020d}.log", ENDS[2])

    assert recover(tmp_path, file_mode=0o600).end_offset == 4


# Snapshots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "epoch"), [(100, 4), (100, 7), (5, 7), (8, 5), (100, 3)])
def test_a_snapshot_that_is_newer_than_the_log_replaces_it(offset: int, epoch: int, tmp_path: Path) -> None:
    """The replica stopped after a download and before the truncation which follows it."""
    write_segment(tmp_path, 0, WHOLE)
    write_snapshot(tmp_path, 4, 1)
    snapshot_id = write_snapshot(tmp_path, offset, epoch)
    log = opened(tmp_path)

    assert (log.start_offset, log.end_offset) == (offset, offset)
    assert log.snapshots() == (snapshot_id,)
    assert log.epoch_starts() == ()
    assert [path.name for path in tmp_path.glob("*.log")] == [f"{offset:020d}.log"]


@pytest.mark.parametrize(("offset", "epoch"), [(8, 4), (4, 1), (0, 0), (7, 4)])
def test_a_snapshot_of_the_log_leaves_it_alone(offset: int, epoch: int, tmp_path: Path) -> None:
    write_segment(tmp_path, 0, WHOLE)
    snapshot_id = write_snapshot(tmp_path, offset, epoch)
    log = opened(tmp_path)

    assert (log.start_offset, log.end_offset) == (0, 8)
    assert log.snapshots() == (snapshot_id,)


def test_snapshots_without_a_log_are_where_it_begins(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 4, 1)
    write_snapshot(tmp_path, 100, 7)
    log = opened(tmp_path)

    assert (log.start_offset, log.end_offset) == (100, 100)


def test_a_log_that_begins_where_no_snapshot_reaches_is_refused(tmp_path: Path) -> None:
    write_segment(tmp_path, 4, joined(BATCHES[2:]))
    write_snapshot(tmp_path, 3, 1)

    with pytest.raises(StorageError, match="begins at 4 and no snapshot of the records before it"):
        recover(tmp_path, file_mode=0o600)


def test_snapshots_below_the_start_of_the_log_are_dropped(tmp_path: Path) -> None:
    write_segment(tmp_path, 4, joined(BATCHES[2:]))
    for offset, epoch in ((0, 0), (3, 1), (4, 1), (6, 2)):
        write_snapshot(tmp_path, offset, epoch)

    assert [str(kept) for kept in opened(tmp_path).snapshots()] == ["4@1", "6@2"]
    assert len(list(tmp_path.glob("*.checkpoint"))) == 2


# Caches and left-overs ----------------------------------------------------------------------------


def test_left_overs_are_removed_and_what_is_not_ours_is_not(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, WHOLE)
    gone = [
        "00000000000000000007-0000000001-123.checkpoint.part",
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "leader-epoch-checkpoint.tmp",
        "quorum-state.tmp",
    ]
    kept = ["notes.txt", "notes.tmp", "quorum-state.bak", "00000000000000000007-0000000001.increment"]
    for name in gone + kept:
        (tmp_path / name).write_bytes(b"x")
    opened(tmp_path)

    names = set(os.listdir(tmp_path))
    assert not names & set(gone)
    assert set(kept) <= names


@pytest.mark.parametrize("index", [None, b"", b"\1" * 7, b"\0" * 80, b"\xff" * 16])
def test_indexes_that_are_missing_or_make_no_sense_are_made_anew(index: bytes | None, tmp_path: Path) -> None:
    batches = some_batches(*[1] * 60, size=200)
    write_segment(tmp_path, 0, joined(batches[:40]))
    write_segment(tmp_path, 40, joined(batches[40:]))
    path = tmp_path / "00000000000000000000.index"
    if index is not None:
        path.write_bytes(index)
    log = FileReplicatedLog.open(tmp_path, tail_bytes=0)

    assert path.stat().st_size == 8 * 2
    assert [offsets(log.read(n, 1)) for n in range(60)] == [[(n, 1)] for n in range(60)]


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"0\n1\n9 9\n"])
def test_epochs_come_from_the_batches_whatever_the_file_says(content: bytes | None, tmp_path: Path) -> None:
    write_segment(tmp_path, 0, WHOLE)
    if content is not None:
        (tmp_path / "leader-epoch-checkpoint").write_bytes(content)
    opened(tmp_path)

    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n3\n1 0\n2 4\n4 6\n"


@pytest.mark.parametrize("name", ["kafka-3.9.2/n1", "kafka-4.3.1/n1", "kafka-4.3.1/n4"])
def test_a_log_of_kafka_is_read_to_its_end_and_written_again_byte_for_byte(name: str, tmp_path: Path) -> None:
    source = DATA / name / "__cluster_metadata-0"
    shutil.copytree(source, tmp_path / "copy")
    log = FileReplicatedLog.open(tmp_path / "copy")
    segment = next(source.glob("*.log"))
    dump = segment.with_suffix(".log.dump.txt")
    assert log.epoch_starts() == decode_epochs((source / "leader-epoch-checkpoint").read_bytes())
    if dump.exists():
        lines = [line.split() for line in dump.read_text().splitlines() if line.startswith("baseOffset:")]
        said = [(int(line[1]), int(line[3]), int(line[line.index("partitionLeaderEpoch:") + 1])) for line in lines]
        assert [(b.base_offset, b.last_offset, b.epoch) for b in log.scan()] == said

    (tmp_path / "ours").mkdir()
    if log.start_offset:
        write_snapshot(tmp_path / "ours", log.start_offset, 1)
    ours = FileReplicatedLog.open(tmp_path / "ours")
    for batch in log.scan():
        ours.append([batch])
    ours.close()
    assert (tmp_path / "ours" / segment.name).read_bytes() == segment.read_bytes()
    for kept in ("leader-epoch-checkpoint", f"{log.end_offset:020d}.snapshot"):
        assert (tmp_path / "ours" / kept).read_bytes() == (source / kept).read_bytes()


def test_control_batches_do_not_keep_what_was_read_with_them(tmp_path: Path) -> None:
    source = DATA / "kafka-4.3.1" / "n1" / "__cluster_metadata-0"
    shutil.copytree(source, tmp_path / "copy")

    batches = recover(tmp_path / "copy", file_mode=0o600).control_batches
    assert len(batches) == 3
    assert all(isinstance(batch.data, bytes) and batch.is_control for batch in batches)
