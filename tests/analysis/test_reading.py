"""The columnar reader against the plain one: same rows, however a log is cut into files, splits and chunks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.reading import read_table
from kraftlib.errors import ConfigError, CorruptBatchError, StorageError
from kraftlib.records.batch import Batch, read_batches
from kraftlib.records.compression import Codec
from kraftlib.records.record import Record
from kraftlib.types import OffsetAndEpoch
from tests.analysis.logs import (
    BASE_MS,
    PLAIN_COLUMNS,
    batch_of,
    log_batches,
    plain_rows,
    rows_of,
    utc,
    values_batch,
    write_log,
    write_snapshot,
)
from tests.captured import logs


def read(path: Path, **options: object) -> list[dict[str, Any]]:
    return read_table(path, columns=PLAIN_COLUMNS, **options).to_pylist()


@pytest.mark.parametrize("path", logs(), ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_captured_files_have_the_rows_of_the_plain_reader(path: Path) -> None:
    assert read(path) == rows_of(path.read_bytes())


@settings(max_examples=50)
@given(log_batches(), st.data())
def test_rows_do_not_depend_on_segments_splits_chunks_or_an_index(batches: list[Batch], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        cuts = data.draw(st.lists(st.integers(1, len(batches)), max_size=2))
        write_log(Path(name), batches, cuts=[c for c in cuts if c < len(batches)], index=data.draw(st.booleans()))
        found = read(
            Path(name),
            chunkBytes=data.draw(st.sampled_from([1, 61, 100, 300, 2000, 8 << 20])),
            maxPartitionBytes=data.draw(st.sampled_from([1, 200, 1000, 8 << 20])),
            parallelism=data.draw(st.sampled_from([1, 7])),
            mode=data.draw(st.sampled_from(["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])),
        )
    assert found == plain_rows(batches)


@settings(max_examples=50)
@given(log_batches(), st.data())
def test_bounds_give_the_rows_within_them(batches: list[Batch], data: st.DataObject) -> None:
    everything = plain_rows(batches)
    first, end = everything[0]["offset"], everything[-1]["offset"] + 1
    start_offset, end_offset = sorted((data.draw(st.integers(first, end)), data.draw(st.integers(first, end))))
    min_epoch, max_epoch = sorted((data.draw(st.integers(0, 8)), data.draw(st.integers(0, 8))))
    start_ms, end_ms = sorted(BASE_MS + data.draw(st.integers(-4, 4)) for _ in range(2))
    asked = data.draw(
        st.sampled_from(
            [
                {"startOffset": start_offset, "endOffset": end_offset},
                {"minEpoch": min_epoch, "maxEpoch": max_epoch},
                {"startTimestamp": start_ms, "endTimestamp": end_ms},
                {"startOffset": start_offset, "minEpoch": min_epoch, "startTimestamp": start_ms},
            ]
        )
    )
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name), batches, index=data.draw(st.booleans()))
        found = read(Path(name), **asked, maxPartitionBytes=data.draw(st.sampled_from([300, 8 << 20])))

    def wanted(row: dict[str, Any]) -> bool:
        dated = "startTimestamp" in asked or "endTimestamp" in asked
        return (
            asked.get("startOffset", 0) <= row["offset"] < asked.get("endOffset", 2**62)
            and asked.get("minEpoch", 0) <= row["epoch"] <= asked.get("maxEpoch", 99)
            and (not dated or row["timestamp"] is not None)
            and ("startTimestamp" not in asked or row["timestamp"] >= utc(asked["startTimestamp"]))
            and ("endTimestamp" not in asked or row["timestamp"] < utc(asked["endTimestamp"]))
        )

    assert found == [row for row in everything if wanted(row)]


# Damage -------------------------------------------------------------------------------------------


def small_log() -> list[Batch]:
    """A few batches of every kind, one of which holds a whole batch, with a fitting CRC, in a value."""
    hidden = bytes(values_batch([b"never a row"], base_offset=5, epoch=1).data)
    return [
        values_batch([b"a", b"bb"]),
        batch_of([Record(2, BASE_MS, b"key", b"value"), Record(3, BASE_MS + 1, None, None)]),
        values_batch([hidden], base_offset=4),
        values_batch([b"x" * 30], base_offset=5, codec=Codec.LZ4),
        values_batch([b"last"], base_offset=6, epoch=2),
    ]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_with_any_byte_flipped_no_row_is_wrong_without_a_flag(tmp_path: Path, mode: str) -> None:
    batches = small_log()
    good = plain_rows(batches)
    data = b"".join(bytes(batch.data) for batch in batches)
    path = tmp_path / "00000000000000000000.log"
    raised: list[tuple[str, bool]] = []
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            found = read(path, mode=mode, tail="fail")
        except CorruptBatchError as error:
            raised.append((mode, str(path) in str(error)))
            continue
        unflagged = [row for row in found if row["problem"] is None]
        assert all(row in good or is_unprotected(row, good) for row in unflagged), at
        # What is missing is flagged.
        assert mode != "PERMISSIVE" or len(unflagged) == len(good) or len(found) > len(unflagged), at
    assert set(raised) == ({("FAILFAST", True)} if mode == "FAILFAST" else set())


def is_unprotected(row: dict[str, Any], good: list[dict[str, Any]]) -> bool:
    """Whether a row differs from a good one in its epoch only, which no CRC covers, and no neighbour contradicts."""
    return any({**row, "epoch": other["epoch"]} == other for other in good)


@pytest.mark.parametrize("tail", ["ignore", "fail"])
def test_a_log_cut_anywhere_gives_its_whole_batches_or_an_error(tmp_path: Path, tail: str) -> None:
    batches = small_log()
    data = b"".join(bytes(batch.data) for batch in batches)
    ends = [0, *(sum(batch.size for batch in batches[: index + 1]) for index in range(len(batches)))]
    path = tmp_path / "00000000000000000000.log"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        whole = [batch for batch, end in zip(batches, ends[1:], strict=True) if end <= size]
        if tail == "fail" and size not in ends:
            with pytest.raises(CorruptBatchError, match="is cut short"):
                read(path, tail=tail)
        else:
            assert read(path, tail=tail) == plain_rows(whole)


def test_a_wrong_length_in_the_last_segment_is_not_taken_for_a_batch_being_written(tmp_path: Path) -> None:
    batches = small_log()
    (path,) = write_log(tmp_path, batches)
    data = bytearray(path.read_bytes())
    data[10] ^= 0x40  # the length of the first batch now reaches beyond the file
    path.write_bytes(data)
    with pytest.raises(CorruptBatchError, match=r"byte 0: .* is cut short"):
        read(path)


def test_zeros_behind_the_last_batch_are_space_that_was_reserved(tmp_path: Path) -> None:
    (path,) = write_log(tmp_path, small_log())
    path.write_bytes(path.read_bytes() + bytes(5_000))
    assert len(read(path)) == 7
    with pytest.raises(CorruptBatchError, match="magic 0"):
        read(path, tail="fail")


def test_after_a_wrong_length_reading_goes_on_where_the_index_knows_a_batch(tmp_path: Path) -> None:
    batches = [values_batch([bytes(3_000)], base_offset=offset) for offset in range(12)]
    (path,) = write_log(tmp_path, batches, index=True)
    data = bytearray(path.read_bytes())
    start = 3 * batches[0].size
    data[start + 11] ^= 1
    path.write_bytes(data)

    found = read(path, mode="PERMISSIVE")

    flagged = [row for row in found if row["problem"] is not None]
    assert len(flagged) == 1
    assert f"byte {start}" in flagged[0]["problem"]
    assert [row["offset"] for row in found if row["problem"] is None] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]


def test_a_missing_segment_is_a_gap_that_is_named(tmp_path: Path) -> None:
    batches = small_log()
    write_log(tmp_path, batches, cuts=[1, 3])[1].unlink()
    with pytest.raises(CorruptBatchError, match="offsets from 2 on are missing, 5 follows"):
        read(tmp_path)
    flagged = [row["problem"] for row in read(tmp_path, mode="PERMISSIVE") if row["problem"]]
    assert flagged == [f"the offsets from 2 on are missing, 5 follows at byte {batches[0].size}"]


def test_epochs_that_fall_are_reported_with_both_batches(tmp_path: Path) -> None:
    batches = [values_batch([b"v"], base_offset=offset, epoch=epoch) for offset, epoch in enumerate([5, 5, 99, 5, 6])]
    write_log(tmp_path, batches)
    for chunk in (61, 8 << 20):
        found = read(tmp_path, mode="PERMISSIVE", chunkBytes=chunk)
        assert [row["offset"] for row in found if row["problem"] is None] == [0, 1, 4]
        assert sorted(row["offset"] for row in found if row["problem"]) == [2, 3]


def test_a_compacted_topic_has_gaps_and_is_read_when_that_is_said(tmp_path: Path) -> None:
    batches = [values_batch([b"v"], base_offset=offset) for offset in (3, 7, 20)]
    (path,) = write_log(tmp_path, batches)
    path.rename(tmp_path / "00000000000000000000.log")
    assert [row["offset"] for row in read(tmp_path, contiguous=False)] == [3, 7, 20]
    with pytest.raises(CorruptBatchError, match="has base offset 3, and 0 was to follow"):
        read(tmp_path)


def test_a_decompression_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    for codec in (Codec.ZSTD, Codec.GZIP, Codec.LZ4):
        bomb = values_batch([bytes(1 << 20)], codec=codec)
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(bytes(bomb.data))
        with pytest.raises(CorruptBatchError, match=r"offset 0 cannot be decompressed.*limit of 100000 bytes"):
            read(path, maxInflatedBytes=100_000)
        assert len(read(path)) == 1


def test_many_batches_that_inflate_are_decoded_in_groups(tmp_path: Path) -> None:
    batches = [values_batch([bytes(50_000)], base_offset=offset, codec=Codec.ZSTD) for offset in range(20)]
    write_log(tmp_path, batches)
    assert read(tmp_path, maxInflatedBytes=60_000) == plain_rows(batches)


def test_a_timestamp_that_no_date_can_be_is_damage(tmp_path: Path) -> None:
    write_log(tmp_path, [batch_of([Record(0, 2**62, None, b"v")], base_timestamp=0)])
    with pytest.raises(CorruptBatchError, match="timestamp that no date can be"):
        read(tmp_path)


def test_a_batch_larger_than_the_chunk_is_read_whole(tmp_path: Path) -> None:
    batches = [values_batch([b"v" * 100_000], base_offset=offset) for offset in range(3)]
    write_log(tmp_path, batches)
    assert read(tmp_path, chunkBytes=1_000) == plain_rows(batches)


def test_offsets_that_a_checkpoint_stands_for_are_not_missing(tmp_path: Path) -> None:
    batches = [values_batch([b"v"] * 5), values_batch([b"v"] * 5, base_offset=20)]
    write_log(tmp_path, batches, cuts=[1])
    with pytest.raises(CorruptBatchError, match="offsets from 5 on are missing"):
        read(tmp_path)
    write_snapshot(tmp_path, [b"state"], at=OffsetAndEpoch(offset=20, epoch=1))
    assert read(tmp_path) == plain_rows(batches)


# Snapshots ----------------------------------------------------------------------------------------


def test_a_snapshot_without_header_or_footer_is_refused_in_every_mode(tmp_path: Path) -> None:
    whole = write_snapshot(tmp_path / "whole", [b"a", b"b"], at=OffsetAndEpoch(offset=9, epoch=2))
    assert [row["control_type"] for row in read(whole)] == ["snapshot_header", None, None, "snapshot_footer"]

    headless = tmp_path / "headless" / whole.name
    headless.parent.mkdir()
    first = next(iter(read_batches(whole.read_bytes()))).size
    headless.write_bytes(whole.read_bytes()[first:])
    without = write_snapshot(tmp_path / "without", [b"a"], at=OffsetAndEpoch(offset=9, epoch=2), footer=False)
    beyond = tmp_path / "beyond" / whole.name
    beyond.parent.mkdir()
    beyond.write_bytes(whole.read_bytes() + bytes(values_batch([b"c"], base_offset=4, epoch=2).data))
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        with pytest.raises(CorruptBatchError, match="no footer"):
            read(without, mode=mode)
        with pytest.raises(CorruptBatchError, match=r"does not begin with a snapshot header|base offset"):
            read(headless, mode=mode)
        for chunk in (61, 8 << 20):
            with pytest.raises(CorruptBatchError, match="behind its footer"):
                read(beyond, mode=mode, chunkBytes=chunk)


def test_a_snapshot_cut_anywhere_is_an_error(tmp_path: Path) -> None:
    whole = write_snapshot(tmp_path, [b"a", b"b"], at=OffsetAndEpoch(offset=9, epoch=2))
    data = whole.read_bytes()
    for size in range(len(data)):
        whole.write_bytes(data[:size])
        for mode in ("FAILFAST", "DROPMALFORMED"):
            with pytest.raises(CorruptBatchError):
                read(whole, mode=mode)


def test_a_snapshot_with_batches_of_another_epoch_is_damaged(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path, [b"a"], at=OffsetAndEpoch(offset=9, epoch=2))
    path.rename(tmp_path / f"{9:020d}-{3:010d}.checkpoint")
    with pytest.raises(CorruptBatchError, match="has epoch 2 in a snapshot of epoch 3"):
        read(tmp_path, include="snapshot")


def test_the_latest_snapshot_and_the_log_behind_it_make_the_state(tmp_path: Path) -> None:
    write_log(
        tmp_path, [values_batch([b"%d" % o, b"%d" % (o + 1)], base_offset=o) for o in range(0, 12, 2)], cuts=[2, 4]
    )
    write_snapshot(tmp_path, [b"old"], at=OffsetAndEpoch(offset=3, epoch=1))
    write_snapshot(tmp_path, [b"new"], at=OffsetAndEpoch(offset=9, epoch=1))
    found = read_table(tmp_path, include="latest", columns="origin,offset,snapshot_end_offset,value").to_pylist()
    assert [row["value"] for row in found if row["origin"] == "snapshot"][1] == b"new"
    assert [row["offset"] for row in found if row["origin"] == "log"] == [9, 10, 11]
    assert {row["snapshot_end_offset"] for row in found} == {9, None}


# Logs that change ----------------------------------------------------------------------------------


def test_a_log_that_was_truncated_or_compacted_since_the_plan_says_so(tmp_path: Path) -> None:
    from kraftlib.analysis.reading import options_of, read_splits, schema_for
    from kraftlib.analysis.splits import plan

    (path,) = write_log(tmp_path, small_log())
    options = options_of(tmp_path)
    (group,) = plan(options)
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    with pytest.raises(CorruptBatchError, match="became shorter while it was read"):
        list(read_splits(group, options, schema_for(options)))
    path.unlink()
    with pytest.raises(StorageError, match="is gone since it was listed: the log was compacted"):
        list(read_splits(group, options, schema_for(options)))


@settings(max_examples=30)
@given(log_batches(max_size=6), st.data())
def test_any_foreign_bytes_end_in_an_error_and_never_in_a_hang(batches: list[Batch], data: st.DataObject) -> None:
    whole = bytearray(b"".join(bytes(batch.data) for batch in batches))
    at = data.draw(st.integers(0, len(whole)))
    whole[at : at + data.draw(st.integers(0, 80))] = data.draw(st.binary(min_size=1, max_size=100))
    good = plain_rows(batches)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"{batches[0].base_offset:020d}.log"
        path.write_bytes(whole)
        for mode in ("FAILFAST", "PERMISSIVE"):
            try:
                found = read(path, mode=mode, tail="fail", chunkBytes=data.draw(st.sampled_from([61, 8 << 20])))
            except CorruptBatchError:
                assert mode == "FAILFAST"
                continue
            assert all(r["problem"] or r in good or is_unprotected(r, good) for r in found)


@pytest.mark.parametrize("index", [True, False])
def test_offsets_that_the_log_has_no_more_or_not_yet_are_refused_and_not_an_empty_answer(
    tmp_path: Path, index: bool
) -> None:
    batches = [values_batch([b"v"] * 10, base_offset=base) for base in (100, 110, 120)]
    write_log(tmp_path, batches, cuts=[1], index=index)
    for options, complaint in (
        ({"startOffset": 99}, "startOffset=99 is below the start of the log in .*, which is 100"),
        ({"startOffset": 131}, r"offset 131 \(startOffset\) is beyond the end of the log, which is 130"),
        ({"endOffset": 131}, r"offset 131 \(endOffset\) is beyond the end of the log, which is 130"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            read_table(tmp_path, **options)
        assert read_table(tmp_path, **options, mode="PERMISSIVE")["offset"].to_pylist() in ([], list(range(100, 130)))
    assert read_table(tmp_path, startOffset=130).num_rows == 0


def test_the_latest_snapshot_is_the_latest_at_the_end_that_was_asked_for(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([b"log"] * 10, base_offset=base) for base in (0, 10, 20)], cuts=[1, 2])
    for end, value in ((10, b"early"), (20, b"late")):
        write_snapshot(tmp_path, [value], at=OffsetAndEpoch(offset=end, epoch=1))
    for end, snapshots in ((5, []), (10, [b"early"]), (19, [b"early"]), (20, [b"late"]), (25, [b"late"])):
        rows = read_table(tmp_path, include="latest", endOffset=end, columns="origin,control,value").to_pylist()
        assert [row["value"] for row in rows if row["origin"] == "snapshot" and not row["control"]] == snapshots
        assert sum(row["origin"] == "log" for row in rows) == end - (0 if not snapshots else (end // 10) * 10)
