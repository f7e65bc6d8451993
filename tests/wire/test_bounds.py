"""What an array may hold has room for every quorum."""

from __future__ import annotations

from kraftlib.consensus.voter_changes import LISTENERS_MAX
from kraftlib.wire.bounds import LISTENERS, PARTITIONS, REQUEST_ELEMENTS, TOPICS


def test_the_core_can_still_refuse_what_is_more_than_it_takes() -> None:
    """Its answer says why; bytes that are not read only end the connection."""
    assert LISTENERS > LISTENERS_MAX


def test_a_request_whose_arrays_are_full_is_read() -> None:
    assert TOPICS * (1 + PARTITIONS) < REQUEST_ELEMENTS
