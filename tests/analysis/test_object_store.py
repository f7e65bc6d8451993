"""Logs in an object store are read by ranges, and give the rows that they give from a disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraftlib.analysis.audit import audit
from kraftlib.analysis.reading import options_of, read_table
from kraftlib.analysis.splits import plan
from kraftlib.types import OffsetAndEpoch
from tests.analysis.logs import values_batch, write_log, write_snapshot
from tests.analysis.object_store import BUCKET, object_store
from tests.captured import DATA


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any will do; and nobody is to be asked for better ones."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def uri(place: str, path: str = "") -> str:
    return f"s3://{BUCKET}{path}?scheme=http&endpoint_override={place}&region=nowhere"


def test_a_node_in_a_store_has_the_rows_that_it_has_on_a_disk() -> None:
    with object_store(DATA / "kafka-4.3.1") as (place, _):
        for view in ("records", "batches"):
            stored = read_table(uri(place, "/n1"), view=view, include="all")
            local = read_table(DATA / "kafka-4.3.1" / "n1", view=view, include="all")
            for name in local.schema.names:
                if name != "segment":
                    assert stored[name].to_pylist() == local[name].to_pylist(), name
        assert read_table(uri(place, "/n*/__cluster_metadata-0/*.log")).num_rows == 275 + 115


def test_one_offset_is_found_by_the_index_and_few_bytes_are_asked_for(tmp_path: Path) -> None:
    batches = [values_batch([bytes(3_000)], base_offset=n) for n in range(200)]
    (path,) = write_log(tmp_path / "topic-0", batches, index=True)
    with object_store(tmp_path) as (place, ranges):
        options = options_of(uri(place), startOffset=77, endOffset=78)
        ((split,),) = plan(options)
        assert split.size < 6 * 3_100
        ranges.clear()
        assert read_table(uri(place), startOffset=77, endOffset=78)["offset"].to_pylist() == [77]
        asked = [range_.split()[1].split("-") for range_ in ranges if range_.startswith(path.name)]
        assert sum(int(last) - int(first) for first, last in asked) < 15 * 3_100


def test_a_store_without_an_index_is_read_whole_and_never_hopped_through(tmp_path: Path) -> None:
    batches = [values_batch([bytes(3_000)], base_offset=n) for n in range(200)]
    write_log(tmp_path / "topic-0", batches)
    with object_store(tmp_path) as (place, ranges):
        assert read_table(uri(place), startOffset=77, endOffset=78).num_rows == 1
        assert len(ranges) <= 3


def test_a_segment_is_cut_without_a_look_at_it_and_read_in_parts_that_begin_at_batches(tmp_path: Path) -> None:
    batches = [values_batch([bytes(3_000)], base_offset=n) for n in range(200)]
    (path,) = write_log(tmp_path / "topic-0", batches, index=True)
    with object_store(tmp_path) as (place, ranges):
        groups = plan(options_of(uri(place), maxPartitionBytes=40_000))
        assert len(groups) == 15
        assert not [asked for asked in ranges if asked.startswith(path.name)]
        read = read_table(uri(place), maxPartitionBytes=40_000, columns="offset")
        assert read["offset"].to_pylist() == list(range(200))


def test_replicas_in_a_store_are_compared_with_their_checkpoints(tmp_path: Path) -> None:
    shutil.copytree(DATA / "kafka-4.3.1", tmp_path / "a cluster")
    with object_store(tmp_path) as (place, _):
        assert audit(uri(place)).findings == ()
        wrong = tmp_path / "a cluster" / "n4" / "__cluster_metadata-0"
        write_snapshot(wrong, [], at=OffsetAndEpoch(offset=272, epoch=4))
        local, stored = audit(tmp_path), audit(uri(place))
        assert [finding.kind for finding in stored.findings] == [finding.kind for finding in local.findings]
        assert [finding.what for finding in stored.findings] == [finding.what for finding in local.findings]
        assert len(stored.findings) == 1
