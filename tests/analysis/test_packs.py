"""Packs hold the records that are read one by one, whatever these are like."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.packs import PACK_BYTES_BITS
from kraftlib.analysis.reading import read_table
from kraftlib.analysis.schemas import ONCE_A_PACK, PACKED
from kraftlib.errors import ConfigError
from kraftlib.records.batch import Batch
from kraftlib.records.compression import Codec
from kraftlib.records.record import Record
from tests.analysis.logs import BASE_MS, batch_of, log_batches, values_batch, write_log

PARTS = ["timestamp", "type", "version", "key", "value"]


def each_record(packs: Any) -> list[dict[str, Any]]:
    """Return the rows that packs stand for, as SQL takes them out."""
    rows = []
    for pack in packs.to_pylist():
        packed = {name: pack.pop(name) for name in PACKED}
        for nth in range(packed["packed_count"]):
            row = {**pack, **({"offset": pack["offset"] + nth} if "offset" in pack else {})}
            at = {name: values[nth] for name, values in packed.items() if isinstance(values, list)}
            row["timestamp"] = at.get("packed_times", packed["packed_time"])
            row |= {name: at[f"packed_{name}s"] for name in ("type", "version")}
            for name, step, size in (("key", 0, None), ("value", packed["packed_step"], packed["packed_size"])):
                start = at.get(f"packed_{name}_places", 1 + nth * (step or 0))
                size = at.get(f"packed_{name}_sizes", size)
                row[name] = None if size is None else packed["packed_bytes"][start - 1 :][:size]
            rows.append(row)
    return rows


def packs_and_records(path: object, columns: list[str], **asked: object) -> tuple[Any, list[dict[str, Any]]]:
    """Return packs, and the records as they are read one by one."""
    found = read_table(str(path), columns=[*columns, *PACKED], **asked)
    found.validate(full=True)
    return found, read_table(str(path), columns=[*columns, *PARTS], **asked).to_pylist()


@settings(max_examples=100)
@given(log_batches(), st.data())
def test_packs_hold_what_is_read_one_by_one(batches: list[Batch], data: st.DataObject) -> None:
    """Keys, headers, control records, compressed batches, values of no and of any size, and ranges of offsets."""
    columns = data.draw(st.lists(st.sampled_from(sorted(ONCE_A_PACK)), unique=True))
    first, end = batches[0].base_offset, batches[-1].end_offset
    asked: dict[str, object] = data.draw(
        st.sampled_from(
            [
                {},
                {"chunkBytes": 300},
                {"startOffset": data.draw(st.integers(first, end)), "minEpoch": 2},
                {"endOffset": data.draw(st.integers(first, end))},
                {"startTimestamp": BASE_MS},
                {"verifyCrc": False},
            ]
        )
    )
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name), batches, index=data.draw(st.booleans()))
        packs, records = packs_and_records(name, columns, **asked)
    assert each_record(packs) == records


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=40), st.integers(1, 200), st.sampled_from(Codec))
def test_regular_batches_and_others_share_packs(values: list[bytes], alike: int, codec: Codec) -> None:
    """Between batches whose records are alike stand some of other sizes, which are found in another way."""
    batches, base = [], 0
    for members in ([b"x" * 90] * alike, values, [b"y" * 20] * alike):
        kept = codec if members is values else Codec.NONE
        batches.append(values_batch(members, base_offset=base, codec=kept))
        base += len(members)
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name), batches)
        packs, records = packs_and_records(name, ["offset"])
    assert [row["value"] for row in records] == [b"x" * 90] * alike + values + [b"y" * 20] * alike
    assert each_record(packs) == records


def test_a_pack_ends_with_its_window_its_epoch_and_where_offsets_are_missing(tmp_path: Path) -> None:
    window = 1 << PACK_BYTES_BITS
    write_log(
        tmp_path,
        [
            values_batch([b"a", b"b"]),
            values_batch([b"c"], base_offset=2),
            values_batch([b"d"], base_offset=3, epoch=2),
            values_batch([b"e" * window, b"f"], base_offset=4, epoch=2),
            batch_of([Record(9, BASE_MS, None, None)], epoch=2),
        ],
    )
    asked: dict[str, object] = {"contiguous": False}
    packs, records = packs_and_records(tmp_path, ["offset"], **asked)
    assert packs["offset"].to_pylist() == [0, 3, 5, 9]
    assert each_record(packs) == records
    by_batch, _ = packs_and_records(tmp_path, ["offset", "batch_base"], **asked)
    assert by_batch["offset"].to_pylist() == [0, 2, 3, 4, 5, 9]


def test_the_bytes_of_packs_that_are_far_apart_are_copied_out_of_the_others(tmp_path: Path) -> None:
    """Of records that are dropped, because another is asked about, the bytes between do not go along."""
    batches = []
    for number in range(20):
        time = BASE_MS + (1_000 if number in (0, 19) else 0)
        batches.append(batch_of([Record(number, time, None, bytes([number]) * 3_000)], base_timestamp=time))
    write_log(tmp_path, batches)
    packs, records = packs_and_records(tmp_path, ["offset"], startTimestamp=BASE_MS + 500)
    assert sum(map(len, packs["packed_bytes"].to_pylist())) == 6_000
    assert [row["offset"] for row in each_record(packs)] == [0, 19]
    assert each_record(packs) == records


@pytest.mark.parametrize(("size", "count", "kind"), [(100, 128, "even"), (0, 300, "even"), (100, 20, "listed")])
def test_records_that_are_alike_need_no_lists(tmp_path: Path, size: int, count: int, kind: str) -> None:
    write_log(tmp_path, [values_batch([b"v" * size] * count, base_offset=count * n) for n in range(9)])
    packs, records = packs_and_records(tmp_path, ["offset", "control_type"])
    assert each_record(packs) == records
    assert (packs["packed_value_places"].null_count == packs.num_rows) == (kind == "even")


def test_what_breaks_the_evenness_begins_another_pack(tmp_path: Path) -> None:
    """A value of another size, a timestamp, an absent value, a missing offset: each in a batch of its own."""
    usual = [Record(n, BASE_MS, None, b"v" * 50) for n in range(60)]
    batches = []
    for number, other in enumerate([b"w" * 51, b"", None, b"w" * 50]):
        records = [
            Record(100 * number + record.offset, BASE_MS, None, other if record.offset == 30 else record.value)
            for record in usual
        ]
        batches.append(batch_of(records))
    late = [Record(400 + n, BASE_MS + (n > 30), None, b"v" * 50) for n in range(60)]
    write_log(tmp_path, [*batches, batch_of(late)])
    packs, plain = packs_and_records(tmp_path, ["offset"], contiguous=False)
    assert packs["packed_value_places"].null_count == packs.num_rows
    assert each_record(packs) == plain


def test_a_pack_has_no_columns_in_which_its_records_differ(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'packed_bytes' stands for many records.* 'key'"):
        read_table(tmp_path, columns="epoch,key,packed_bytes")


def test_a_damaged_batch_is_no_pack(tmp_path: Path) -> None:
    (path,) = write_log(tmp_path, [values_batch([b"v"]), values_batch([b"w"], base_offset=1)])
    path.write_bytes(path.read_bytes()[:-2] + b"x\x00")
    found = read_table(path, columns=["offset", "problem", *PACKED], mode="PERMISSIVE").to_pylist()
    assert [row["packed_bytes"] for row in found] == [b"v", None]
    assert found[1]["problem"] is not None
