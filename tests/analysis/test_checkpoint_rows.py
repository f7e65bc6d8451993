"""The order of the rows of a checkpoint, and what has no place among them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis.checkpoint_rows import ROW, RowError, checked, in_order, merged, sorted_runs
from kraftlib.errors import ConfigError
from kraftlib.metadata import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)
from kraftlib.types import new_uuid

TOPIC_ID = new_uuid()


def rows(*lines: tuple[Any, ...], names: tuple[str, ...] = ("key", "value")) -> pa.Table:
    kinds = {"key": pa.binary(), "value": pa.binary(), "type": pa.int32(), "version": pa.int32()}
    columns = list(zip(*lines, strict=True)) if lines else [()] * len(names)
    return pa.table([pa.array(c, kinds[n]) for n, c in zip(names, columns, strict=True)], names=list(names))


def framed(*records: Any, version: int = 0) -> pa.Table:
    lines = [(r.api_key, version, b"%d" % n, encode_record(r, version)) for n, r in enumerate(records)]
    return rows(*lines, names=("type", "version", "key", "value"))


@given(
    keys=st.lists(st.binary(max_size=3), unique=True, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    block=st.integers(1, 7),
    data=st.data(),
)
def test_any_distribution_over_runs_comes_to_one_order(
    keys: list[bytes], cuts: list[int], block: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(keys))
    edges = [0, *sorted(cuts), len(shuffled)]
    parts = [shuffled[a:b] for a, b in itertools.pairwise(edges)]
    runs = [run for part in parts for run in sorted_runs(batches([(key, b"v" + key) for key in part]), run_bytes=200)]

    out = list(merged([blocks(run, block) for run in runs]))

    assert [key for table in out for key in table["key"].to_pylist()] == sorted(keys)
    assert all(table["value"].to_pylist() == [b"v" + key for key in table["key"].to_pylist()] for table in out)


def batches(lines: list[tuple[bytes, bytes]]) -> list[pa.RecordBatch]:
    return [batch for line in lines for batch in rows(line).to_batches()]


def blocks(run: pa.Table, size: int) -> Iterator[pa.Table]:
    return (run.slice(start, size) for start in range(0, len(run), size))


def test_kinds_come_in_the_order_in_which_they_make_sense() -> None:
    broker = RegisterBrokerRecord(broker_id=1, incarnation_id=new_uuid(), fenced=False)
    table = framed(
        PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader=1),
        TopicRecord(name="a", topic_id=TOPIC_ID),
        broker,
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
    )

    assert in_order(checked(table))["key"].to_pylist() == [b"4", b"3", b"2", b"1", b"0"]
    assert checked(table).schema == ROW


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (rows((None, b"v")), "key=None has no key"),
        (rows((b"k", None)), "key=b'k' has no value: a deletion is no part of a state"),
        (rows((b"k", b"")), "key=b'k' has an empty value"),
        (rows((2, 0, b"k", b"\x01\x03\x00"), names=("type", "version", "key", "value")), "does not begin with 010200"),
        (rows((6, 0, b"k", b"v"), names=("type", "version", "key", "value")), "type and version .* not know"),
        (rows((2, 9, b"k", b"v"), names=("type", "version", "key", "value")), "type and version .* not know"),
        (rows((2, b"k", b"v"), names=("type", "key", "value")), "does not begin"),
        (framed(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)), "PARTITION_CHANGE_RECORD, which changes"),
    ],
)
def test_a_row_that_has_no_place_in_a_checkpoint_is_named(table: pa.Table, complaint: str) -> None:
    with pytest.raises(RowError, match=complaint):
        checked(table)


def test_two_rows_of_one_key_are_refused_wherever_they_come_from() -> None:
    one, other = (checked(rows((b"k", value))) for value in (b"a", b"b"))
    for runs in ([iter([pa.concat_tables([one, other])])], [iter([one]), iter([other])], [iter([one, other])]):
        with pytest.raises(RowError, match="the key b'k' stands there twice"):
            list(merged(runs))


def test_one_key_may_stand_there_once_a_kind() -> None:
    table = framed(TopicRecord(name="a", topic_id=TOPIC_ID), FeatureLevelRecord(name="x", feature_level=1))
    table = table.set_column(2, "key", pa.array([b"k", b"k"]))

    assert sum(map(len, merged([iter([in_order(checked(table))])]))) == 2


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (pa.table({"key": [b"k"]}), r"\['value'\] is missing"),
        (pa.table({"key": [b"k"], "value": [b"v"], "offset": [1]}), "'offset' is none of them"),
        (pa.table({"key": [b"k"], "value": [1.5]}), "'value' is of type double"),
    ],
)
def test_columns_that_make_no_checkpoint_are_named(table: pa.Table, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        checked(table)


def test_text_is_written_as_utf_8() -> None:
    assert checked(pa.table({"key": ["é"], "value": ["ü"]}))["value"].to_pylist() == ["ü".encode()]
