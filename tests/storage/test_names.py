from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.storage import names
from kraftlib.types import OffsetAndEpoch

OFFSETS = st.integers(0, 2**63 - 1)


@given(OFFSETS, st.integers(0, 2**31 - 1))
def test_names_that_are_made_are_read(offset: int, epoch: int) -> None:
    snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)

    assert names.parse_segment_name(names.segment_name(offset)) == offset
    assert names.parse_producer_state_name(names.producer_state_name(offset)) == offset
    assert names.parse_checkpoint_name(names.checkpoint_name(snapshot_id)) == snapshot_id
    for name in (names.segment_name(offset), names.index_name(offset), names.time_index_name(offset)):
        assert names.parse_name_of_segment_file(name) == offset
        assert not names.is_left_over(name)


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "000000000000000000000.log",
        "0000000000000000000٣.log",
        "00000000000000000000.log\n",
        "../00000000000000000000.log",
        "99999999999999999999.log",
        "-0000000000000000001.log",
        "00000000000000000000.log.deleted",
    ],
)
def test_a_segment_has_twenty_ascii_digits_and_nothing_else(name: str) -> None:
    assert names.parse_segment_name(name) is None
    assert names.parse_name_of_segment_file(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000001-1.checkpoint",
        "00000000000000000001-00000000000000000001.checkpoint",
        "00000000000000000001-9999999999.checkpoint",
        "00000000000000000001-0000000001.checkpoint.part",
        "foo.checkpoint",
    ],
)
def test_a_snapshot_has_twenty_and_ten_digits(name: str) -> None:
    assert names.parse_checkpoint_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        names.partial_checkpoint_name(OffsetAndEpoch(offset=1, epoch=2), 8126),
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000001-0000000001.checkpoint.deleted",
        "quorum-state.tmp",
        "leader-epoch-checkpoint.tmp",
    ],
)
def test_unfinished_and_condemned_files_are_left_overs(name: str) -> None:
    assert names.is_left_over(name)


@pytest.mark.parametrize("name", ["quorum-state", "notes.tmp", "mine.deleted", "00000000000000000000.log", "x.part"])
def test_what_others_put_there_is_not(name: str) -> None:
    assert not names.is_left_over(name)


def test_an_increment_is_named_as_its_checkpoint_would_be() -> None:
    snapshot_id = OffsetAndEpoch(offset=42, epoch=3)
    assert names.increment_name(snapshot_id) == "00000000000000000042-0000000003.increment"
    assert names.parse_increment_name(names.increment_name(snapshot_id)) == snapshot_id
    assert names.parse_increment_name(names.checkpoint_name(snapshot_id)) is None
    assert names.parse_checkpoint_name(names.increment_name(snapshot_id)) is None
    assert names.parse_increment_name("99999999999999999999-0000000003.increment") is None
