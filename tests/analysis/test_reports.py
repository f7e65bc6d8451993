"""The state as of any offset, from any checkpoint, is that of replaying the log from its first record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib.analysis.reports import report, rows_of
from kraftlib.analysis.schemas import REPORTS
from kraftlib.errors import ConfigError, StorageError
from kraftlib.metadata import PartitionChangeRecord, decode_record, encode_record
from kraftlib.metadata.image import ClusterImage
from kraftlib.types import OffsetAndEpoch
from tests.analysis.logs import values_batch, write_log, write_snapshot
from tests.captured import DATA, log_records

NODE = DATA / "kafka-4.3.1" / "n1"
LOG = NODE / "__cluster_metadata-0" / "00000000000000000000.log"


def replayed(end: int) -> ClusterImage:
    image = ClusterImage()
    for offset, control, _, value in log_records(LOG):
        if offset < end and not control:
            image.apply(decode_record(value)[0])
    return image


@pytest.mark.parametrize("end", [5, 47, 81, 82, 160, 272, 275])
def test_checkpoint_and_log_behind_it_are_the_whole_log(end: int) -> None:
    for what in REPORTS:
        assert report(NODE, what, at_offset=end) == rows_of(replayed(end), what)


def test_a_replica_that_began_with_a_checkpoint_knows_the_same() -> None:
    for what in REPORTS:
        assert report(NODE.parent / "n4", what, at_offset=200) == rows_of(replayed(200), what)


def test_a_time_is_all_before_the_first_later_record() -> None:
    assert report(NODE, "topics", at_timestamp="2030-01-01").num_rows == len(replayed(275).topics)
    assert report(NODE, "features", at_timestamp="2026-11-21T10:09:06.971Z") == rows_of(replayed(3), "features")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"what": "partitons"}, "there is no report of 'partitons': there are topics"),
        ({"what": "groups"}, "they are not in the metadata log, but in the topic __consumer_offsets"),
        ({"what": "topics", "at_offset": 1, "at_timestamp": "2026-01-01"}, "one of them"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        report(NODE, **asked)


def test_a_log_that_does_not_reach_back_says_from_where_it_knows() -> None:
    with pytest.raises(ConfigError, match="as of offset 100: its log begins at 159, and no checkpoint"):
        report(NODE.parent / "n4", "topics", at_offset=100)


def test_an_offset_that_the_log_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"offset 300 .* is beyond the end of the log, which is 275"):
        report(NODE, "topics", at_offset=300)
    noop = b"\x01\x14\x00\x00"
    write_log(tmp_path, [values_batch([noop] * 5), values_batch([noop] * 5, base_offset=20)], cuts=[1])
    write_snapshot(tmp_path, [], at=OffsetAndEpoch(offset=20, epoch=1))
    assert report(tmp_path, "topics", at_offset=5).num_rows == report(tmp_path, "topics", at_offset=22).num_rows == 0
    with pytest.raises(StorageError, match="nothing from offset 5 up to 12"):
        report(tmp_path, "topics", at_offset=12)


def test_a_record_that_is_unknown_or_does_not_fit_stops_the_fold(tmp_path: Path) -> None:
    write_log(tmp_path / "a", [values_batch([b"\x01\x63\x00"])])
    with pytest.raises(StorageError, match="at 0 of the log cannot be folded: metadata record of unknown type 99"):
        report(tmp_path / "a", "topics")
    write_log(tmp_path / "b", [values_batch([encode_record(PartitionChangeRecord(partition_id=1), 0)])])
    with pytest.raises(StorageError, match="record at 0 of the log does not fit: PartitionChangeRecord"):
        report(tmp_path / "b", "topics")


def test_of_two_checkpoints_the_newest_that_is_not_too_new_is_taken(tmp_path: Path) -> None:
    write_snapshot(tmp_path, [], at=OffsetAndEpoch(offset=5, epoch=1))
    write_snapshot(tmp_path, [b"\x01\x63\x00"], at=OffsetAndEpoch(offset=9, epoch=1))
    assert report(tmp_path, "topics", at_offset=8).num_rows == 0
    with pytest.raises(StorageError, match="unknown type 99"):
        report(tmp_path, "topics", at_offset=9)


@pytest.mark.parametrize(
    ("node", "message"),
    [("n1", "no record as old as 2020-01-01"), ("n4", "its log begins at 159, and the checkpoint .* is of 2026-11-21")],
)
def test_a_time_before_the_log_begins_is_an_error_and_no_empty_cluster(node: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        report(NODE.parent / node, "topics", at_timestamp="2020-01-01T00:00:00Z")


def test_at_the_time_of_the_first_checkpoint_that_is_the_state() -> None:
    found = report(NODE.parent / "n4", "topics", at_timestamp="2026-11-21T10:09:48.500Z")
    assert found == rows_of(replayed(159), "topics")
