"""Plans: as many tasks as pay, fewer where little is asked for, and seams that are known."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import pytest

from kraftlib.analysis.conditions import Pruning
from kraftlib.analysis.options import Bounds, Range, ReadOptions, pin_text
from kraftlib.analysis.reading import options_of, read_table
from kraftlib.analysis.splits import Split, pack, pin, plan, settled, target_bytes
from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.types import OffsetAndEpoch
from tests.analysis.logs import values_batch, write_log, write_snapshot
from tests.captured import DATA

SIZE = 3_000


@pytest.fixture(params=[True, False], ids=["index", "walk"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two segments of thirty batches each."""
    batches = [values_batch([bytes(SIZE), b"v"], base_offset=2 * n, epoch=1 + n // 20) for n in range(60)]
    write_log(tmp_path, batches, cuts=[30], index=request.param)
    return tmp_path


def splits(options: ReadOptions, pruning: Pruning = Pruning()) -> list[Split]:
    return [split for group in plan(options, pruning) for one in group if (split := settled(one)) is not None]


def test_splits_cover_every_byte_once_and_know_their_seams(log: Path) -> None:
    found = splits(options_of(log, maxPartitionBytes=20_000))
    assert len(found) > 8
    for before, after in pairwise(found):
        if before.file == after.file:
            assert before.end == after.start
            assert before.end_offset == after.start_offset is not None
            assert before.end_epoch is not None
            assert after.start_epoch is not None
        else:
            assert before.is_end_of_file
            assert (before.end_offset, after.start, after.start_offset) == (60, 0, 60)
    assert found[-1].is_end_of_file


@pytest.mark.parametrize("offset", [0, 1, 59, 60, 77, 119])
def test_one_offset_is_one_task_of_a_few_batches(log: Path, offset: int) -> None:
    (found,) = splits(options_of(log), Pruning(bounds=Bounds(offset=Range(start=offset, end=offset + 1))))
    assert found.size <= 4 * (SIZE + 100)
    table = read_table(log, startOffset=offset, endOffset=offset + 1, columns="offset")
    assert table["offset"].to_pylist() == [offset]


def test_no_offsets_are_no_task(log: Path) -> None:
    assert splits(options_of(log, startOffset=60, endOffset=60)) == []


def test_epochs_and_times_leave_out_what_cannot_hold_them(log: Path) -> None:
    whole = sum(split.size for split in splits(options_of(log)))
    for bounds in (Bounds(epoch=Range(start=2, end=3)), Bounds(timestamp=Range(start=1_700_000_000_100))):
        assert sum(split.size for split in splits(options_of(log), Pruning(bounds=bounds))) < whole / 2 + SIZE


def test_where_damage_is_tolerated_only_the_index_cuts_a_file(log: Path) -> None:
    found = splits(options_of(log, maxPartitionBytes=20_000, mode="PERMISSIVE"))
    assert (len(found) > 8) == (log / "00000000000000000000.index").exists()


def test_a_wrong_index_is_not_used(log: Path) -> None:
    index = log / "00000000000000000000.index"
    if index.exists():
        entries = bytearray(index.read_bytes())
        for at in range(4, len(entries), 8):
            entries[at : at + 4] = (int.from_bytes(entries[at : at + 4]) + 1).to_bytes(4)
        index.write_bytes(entries)
        assert read_table(log, maxPartitionBytes=20_000).num_rows == 120
        assert len(splits(options_of(log, mode="PERMISSIVE", maxPartitionBytes=20_000))) > 1


def test_small_splits_share_a_task_and_every_processor_gets_two(log: Path) -> None:
    (file,) = {split.file for split in splits(options_of(log))} - {splits(options_of(log))[-1].file}
    pieces = [Split(file=file, start=n, end=n + 10) for n in range(0, 100, 10)]
    assert [len(group) for group in pack(pieces, 30)] == [3, 3, 3, 1]
    assert target_bytes(10 << 30, ReadOptions(parallelism=8)) == 128 << 20
    assert target_bytes(64 << 20, ReadOptions(parallelism=2)) == 16 << 20
    assert target_bytes(100, ReadOptions(parallelism=8)) == 8 << 20
    assert target_bytes(1 << 40, ReadOptions(parallelism=100)) == (1 << 40) // 2_000


def test_splits_can_be_sent_to_another_process(log: Path) -> None:
    groups = plan(options_of(log, maxPartitionBytes=20_000))
    assert pickle.loads(pickle.dumps(groups)) == groups


def test_a_pin_holds_files_and_sizes(log: Path) -> None:
    before = dict(pin(options_of(log)))
    assert len(before) == 2
    batches = [values_batch([b"v"], base_offset=120)]
    write_log(log, batches)
    with (log / f"{60:020d}.log").open("ab") as segment:
        segment.write(b"\x00" * 7)
    held = pin(options_of(log))
    assert dict(held)[str(log / f"{60:020d}.log")] == before[str(log / f"{60:020d}.log")] + 7
    assert splits(options_of(log, pin=pin_text(list(before.items())[:1])))[-1].file.is_last


def test_include_chooses_and_says_when_nothing_is_left(tmp_path: Path) -> None:
    write_snapshot(tmp_path, [b"a"], at=OffsetAndEpoch(offset=5, epoch=1))
    write_snapshot(tmp_path, [b"a"], at=OffsetAndEpoch(offset=7, epoch=1))
    with pytest.raises(ConfigError, match="nothing that include=log asks for; try include=all"):
        plan(options_of(tmp_path))
    assert len(splits(options_of(tmp_path, include="snapshot"))) == 2
    assert [split.file.offset for split in splits(options_of(tmp_path, include="latest"))] == [7]


def test_a_newest_segment_that_was_emptied_is_no_log_without_records(tmp_path: Path) -> None:
    (path,) = write_log(tmp_path, [values_batch([bytes(3_000)], base_offset=n) for n in range(4)], index=True)
    path.write_bytes(b"")
    with pytest.raises(CorruptBatchError, match="is empty, and its index names batches: the segment was emptied"):
        read_table(tmp_path)
    assert len(read_table(tmp_path, mode="PERMISSIVE")) == 0
    path.with_suffix(".index").write_bytes(bytes(80))
    assert len(read_table(tmp_path)) == 0, "a new log has space for its index, and nothing in it"


def test_the_bootstrap_checkpoint_of_a_node_is_read_with_all_that_there_is() -> None:
    node = DATA / "kafka-4.3.1" / "n1"
    everything, log = (read_table(node, include=include, columns="origin,segment,type") for include in ("all", "log"))
    rows = [row for row in everything.to_pylist() if row["segment"].endswith("bootstrap.checkpoint")]
    assert [row["type"] for row in rows] == [None, *(5 * [12]), 12, None]  # header, FeatureLevelRecords, footer
    assert {row["origin"] for row in rows} == {"snapshot"}
    assert not any(path.endswith("bootstrap.checkpoint") for path in log["segment"].to_pylist())


def test_a_file_is_one_row_however_large_it_is(log: Path) -> None:
    found = read_table(log, view="files", maxPartitionBytes=20_000)
    assert found["batches"].to_pylist() == [30, 30]
    assert found["complete"].to_pylist() == [True, True]
