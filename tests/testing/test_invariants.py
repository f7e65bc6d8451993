"""Each invariant keeps silent where all is well, and complains where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.testing import invariants as inv
from kraftlib.testing.facts import Facts
from kraftlib.testing.violation import Complaint
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from tests.testing.logs import assert_complains, batch, image, key

facts = Facts()
NODE = image(facts, 1, 1, 1, 2, 2)
LAGGING = image(facts, 2, 1, 1, 2)
ASTRAY = image(facts, 3, 1, 1, 3)
FORGETFUL = image(facts, 2, 1, 1, 2, 2, flushed=1)
UNFLUSHED = image(facts, 4, 1, 1, 2, 2, flushed=1)
facts.commit(NODE.chain.entries[2])
facts.leaders.update({1: key(1), 2: key(1), 3: key(3)})
facts.votes[key(2), 4] = key(1)
VOTERS = [ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)]
facts.committed_under = tuple(VOTERS)
NODES = {1: NODE, 2: LAGGING, 3: ASTRAY}
ENTRIES = NODE.chain.entries


CASES: list[tuple[Callable[..., Complaint], tuple[Any, ...], tuple[Any, ...]]] = [
    # function, arguments of a good case, arguments of a bad one
    (inv.i4_same_place_same_record, (ENTRIES[2], batch(2, 2), ENTRIES[1]), (ENTRIES[2], batch(2, 2, b"x"), ENTRIES[1])),
    (inv.i4_same_place_same_record, (ENTRIES[0], batch(0, 1), None), (ENTRIES[2], batch(2, 2), ENTRIES[0])),
    (inv.i6_no_divergence_below_the_high_watermark, (facts, LAGGING, 3), (facts, ASTRAY, 3)),
    (inv.i6_no_divergence_below_the_high_watermark, (facts, LAGGING, 0), (facts, LAGGING, 4)),
    (inv.i7_high_watermark_never_falls, (NODE, 2, 2, 4), (NODE, 3, 2, 4)),
    (inv.i7_high_watermark_never_falls, (NODE, 2, 4, 4), (NODE, 2, 5, 4)),
    (inv.i7_newest_leader_never_behind, (facts, NODE, 3, 3), (facts, NODE, 3, 2)),
    (inv.i7_newest_leader_never_behind, (facts, NODE, 2, 1), (facts, NODE, 4, 1)),
    (inv.i8_majority_before_commit, (NODE, 3, 2, VOTERS, NODES), (NODE, 4, 2, VOTERS, NODES)),
    (inv.i8_majority_before_commit, (NODE, 3, 2, VOTERS, NODES), (NODE, 2, 2, VOTERS, NODES)),
    (inv.i8_majority_before_commit, (NODE, 4, 2, VOTERS[:1], NODES), (NODE, 9, 2, VOTERS[:1], NODES)),
    (inv.i8_new_leader_committed_nothing, (NODE, None, 2), (NODE, 2, 2)),
    (inv.i8_new_leader_committed_nothing, (NODE, 3, 2), (NODE, 1, 2)),
    (inv.i9_committed_is_durable, (facts, NODES), (facts, {1: NODE, 2: FORGETFUL, 3: ASTRAY})),
    (inv.i10_acknowledged_is_committed, (facts, 2, 2, 2, [b"2@2"]), (facts, 2, 2, 2, [b"x"])),
    (inv.i10_acknowledged_is_committed, (facts, 1, 1, 1, [b"1@1"]), (facts, 3, 3, 2, [b"3@2"])),
    (inv.i10_acknowledged_is_committed, (facts, 1, 1, 1, [b"1@1"]), (facts, 1, 1, 2, [b"1@1"])),
    (inv.i11_nothing_committed_is_truncated, (facts, NODE, ENTRIES[3:], 3, 2), (facts, NODE, ENTRIES[2:], 0, 2)),
    (inv.i11_nothing_committed_is_truncated, (facts, NODE, ENTRIES[2:], 0, 1), (facts, NODE, ENTRIES[2:], 0, 3)),
    (inv.i11_nothing_committed_is_truncated, (facts, NODE, [], 9, 2), (facts, ASTRAY, ASTRAY.chain.entries[2:], 3, 2)),
    (inv.i11_snapshot_takes_nothing_committed, (facts, NODE, OffsetAndEpoch(offset=3, epoch=2), 2),
     (facts, NODE, OffsetAndEpoch(offset=2, epoch=2), 2)),
    (inv.i11_snapshot_takes_nothing_committed, (facts, NODE, OffsetAndEpoch(offset=2, epoch=2), 1),
     (facts, NODE, OffsetAndEpoch(offset=0, epoch=1), 3)),
    (inv.i11_truncation_goes_far_enough, (NODE, ENTRIES[2], OffsetAndEpoch(offset=3, epoch=2)),
     (NODE, ENTRIES[2], OffsetAndEpoch(offset=9, epoch=1))),
    (inv.i11_truncation_goes_far_enough, (NODE, None, OffsetAndEpoch(offset=0, epoch=1)),
     (NODE, ENTRIES[3], OffsetAndEpoch(offset=3, epoch=2))),
    (inv.i11_truncation_has_a_reason, (NODE, None), (NODE, "TimeoutReached")),
    (inv.i12_fetch_only_beyond_what_is_durable, (UNFLUSHED, 1), (UNFLUSHED, 2)),
    (inv.i12_core_knows_what_is_durable, (UNFLUSHED, 1), (UNFLUSHED, 2)),
    (inv.i12_core_vouches_for_what_it_knows, (NODE, 3, 3), (NODE, 3, 4)),
    (inv.i12_damage_vouches_for_nothing, (NODE, 2, 2), (NODE, 2, 3)),
    (inv.i12_damage_vouches_for_nothing, (NODE, 2, 0), (NODE, 0, 1)),
    (inv.i14_snapshot_covers_committed_records_only, (facts, NODE, OffsetAndEpoch(offset=3, epoch=2)),
     (facts, NODE, OffsetAndEpoch(offset=4, epoch=2))),
    (inv.i14_snapshot_covers_committed_records_only, (facts, NODE, OffsetAndEpoch(offset=0, epoch=0)),
     (facts, NODE, OffsetAndEpoch(offset=2, epoch=2))),
    (inv.i17_strangers_change_nothing, (NODE, (1, 2), (1, 2)), (NODE, (1, 2), (1, 3))),
    (inv.i18_same_bytes, ([NODE, LAGGING], 0, 3), ([NODE, ASTRAY], 0, 3)),
    (inv.i19_bounds, (NODE, {"parked": (3, 3)}), (NODE, {"parked": (4, 3)})),
    (inv.i19_every_request_is_answered, (NODE, []), (NODE, [4])),
    (inv.i20_no_spin, (NODE, 5, 5), (NODE, 6, 5)),
    (inv.i20_nothing_stays_due, (NODE, 6, 5), (NODE, 5, 5)),
    (inv.i20_nothing_stays_due, (NODE, None, 5), (NODE, 0, 5)),
    (inv.l16_core_knows_its_log, (NODE, {"end": 3}, {"end": 3}), (NODE, {"end": 3}, {"end": 2})),
    (inv.e7_leader_without_listeners_resigns, (NODE, 5, 5), (NODE, 6, 5)),
    (inv.e8_leader_that_gets_nowhere_resigns, (NODE, 5, 5), (NODE, 6, 5)),
    (inv.s6_full_disk_of_a_leader_takes_its_reserve, (NODE, ENTRIES[0], 400, 400), (NODE, ENTRIES[0], 401, 400)),
    (inv.v13_due_is_done_in_time, (NODE, 5, False), (NODE, 5, True)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "good", "bad"), CASES, ids=[case[0].__name__ for case in CASES])
def test_an_invariant_complains_where_it_should_and_nowhere_else(
    function: Callable[..., Complaint], good: tuple[Any, ...], bad: tuple[Any, ...]
) -> None:
    assert_complains(function, good, bad)


def test_only_the_leader_of_an_epoch_writes_it_and_writes_once() -> None:
    entry = ENTRIES[3]
    assert inv.i13_only_the_leader_writes(facts, NODE, entry, is_new=True, leads=2) is None
    assert inv.i13_only_the_leader_writes(facts, LAGGING, entry, is_new=False, leads=None) is None
    assert inv.i13_only_the_leader_writes(facts, LAGGING, entry, is_new=True, leads=None) is not None
    assert inv.i13_only_the_leader_writes(facts, NODE, entry, is_new=False, leads=2) is not None


def test_an_epoch_opens_with_its_leader_and_the_majority_that_elected_him() -> None:
    def opening(leader: int, voters: tuple[int, ...], granting: tuple[int, ...]) -> str | None:
        voter = LeaderChangeMessage.Voter
        record = LeaderChangeMessage(
            leader_id=leader,
            voters=tuple(voter(voter_id=number) for number in voters),
            granting_voters=tuple(voter(voter_id=number) for number in granting),
        )
        own = Facts()
        entry, _ = own.entry_of(encode_control_batch([record], timestamp_ms=0, base_offset=0, epoch=1), None, 1)
        return inv.i13_epoch_opens_with_its_leader(NODE, entry, VOTERS)

    assert opening(1, (1, 2, 3), (1, 2)) is None
    assert opening(2, (1, 2, 3), (1, 2)) is not None
    assert opening(1, (1, 2), (1, 2)) is not None
    assert opening(1, (1, 2, 3), (1,)) is not None
    assert opening(1, (1, 2, 3), (1, 4)) is not None
    assert inv.i13_epoch_opens_with_its_leader(NODE, ENTRIES[1], VOTERS) is None
    assert inv.i13_epoch_opens_with_its_leader(NODE, ENTRIES[2], VOTERS) is not None


def test_a_leader_never_truncates() -> None:
    assert inv.i13_leader_never_truncates(NODE, None, 2) is None
    assert inv.i13_leader_never_truncates(NODE, 2, 2) is not None


def test_any_unexpected_error_is_a_violation() -> None:
    error = RuntimeError("oops")
    error.__cause__ = ValueError("at the bottom")

    assert "ValueError: at the bottom" in (inv.i22_nothing_unexpected(NODE, error) or "")


def test_a_snapshot_names_the_voters_of_its_last_record() -> None:
    own = Facts()
    node = image(own, 1, 1, 1)
    first, second = node.chain.entries
    first.voters, second.voters = (key(1), key(2)), (key(1),)
    own.commit(second)
    snapshot_id = OffsetAndEpoch(offset=1, epoch=1)
    assert inv.i14_snapshot_names_its_voters(own, node, snapshot_id, (key(2), key(1))) is None
    assert inv.i14_snapshot_names_its_voters(own, node, snapshot_id, None) is None
    assert inv.i14_snapshot_names_its_voters(own, node, snapshot_id, (key(1),)) is not None


def test_upstreams_send_and_their_observers_have_committed_records_only() -> None:
    own = Facts()
    node = image(own, 1, 1, 1, 1)
    _, second, third = node.chain.entries
    own.commit(second)
    for entry, is_committed in ((second, True), (third, False)):
        assert (inv.i23_upstream_sends_committed_records_only(own, node, entry.end_offset) is None) is is_committed
        assert (inv.i23_committed_records_only_behind_upstreams(own, node, entry) is None) is is_committed


def test_every_invariant_that_is_documented_has_a_check_with_a_docstring() -> None:
    assert list(inv.INVARIANTS) == [
        *(f"I{n}" for n in range(1, 21)),
        "I22",
        "I23",
        "E7",
        "E8",
        "L16",
        "M5",
        "S6",
        "S10",
        "S14",
        "HOLD",
        "V6",
        "V9",
        "V10",
        "V13",
    ]
    for number, functions in inv.INVARIANTS.items():
        assert functions, number
        for function in functions:
            assert function.__doc__ is not None
            assert function.__doc__.startswith(number), function
            assert inv.invariant_of(function) == number
