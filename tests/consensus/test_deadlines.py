"""Check quorum, and the patience with followers that get nowhere."""

from __future__ import annotations

import pytest

from kraftlib.consensus.deadlines import note_contact, stall_deadline_ms, watch_commits
from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Leader, Role
from kraftlib.consensus.state import FADING_MAX
from kraftlib.types import ReplicaKey
from tests.consensus.build import as_leader, fetch_request, flush, leader, replica, tell, voter_set


@pytest.mark.parametrize(("count", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_a_majority_with_ourselves_restarts_the_timer(count: int, needed: int) -> None:
    """n/2 + 1, less our own."""
    core = leader(voters=voter_set(*range(1, count + 1))) if count <= 3 else leader_of(count)
    role = core.state.role_state
    before = role.check_quorum_deadline_ms
    core.state.now_ms += 100
    for voter_id in range(2, 2 + needed):
        assert role.check_quorum_deadline_ms == before
        note_contact(core.state, role, ReplicaKey(voter_id))
        note_contact(core.state, role, ReplicaKey(99))

    assert role.check_quorum_deadline_ms == core.state.now_ms + 3_000


def leader_of(count: int):  # type: ignore[no-untyped-def]
    """A leader of more voters than one vote elects."""
    from kraftlib.consensus.events import TimeoutReached
    from tests.consensus.build import answer_vote, replica

    core = replica(voters=voter_set(*range(1, count + 1)))
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    for pre_vote in (True, False):
        for voter_id in range(2, 2 + count // 2):
            answer_vote(core, voter_id, granted=True, pre_vote=pre_vote)
    assert core.role.value == "leader"
    return core


def test_the_same_voter_twice_is_no_majority_of_five() -> None:
    """A set, not a counter."""
    core = leader_of(5)
    role = core.state.role_state
    before = role.check_quorum_deadline_ms
    core.state.now_ms += 100
    note_contact(core.state, role, ReplicaKey(2))
    note_contact(core.state, role, ReplicaKey(2))

    assert role.check_quorum_deadline_ms == before


def test_a_majority_counts_once() -> None:
    """For the next stretch of time it must be heard of again, each of it."""
    core = leader_of(5)
    role = core.state.role_state
    for voter_id in (2, 3):
        note_contact(core.state, role, ReplicaKey(voter_id))
    before = role.check_quorum_deadline_ms
    core.state.now_ms += 100
    note_contact(core.state, role, ReplicaKey(4))
    assert role.check_quorum_deadline_ms == before
    note_contact(core.state, role, ReplicaKey(2))

    assert role.check_quorum_deadline_ms == core.state.now_ms + 3_000


def test_a_leader_that_removes_itself_needs_a_majority_of_the_others() -> None:
    core = leader_of(3)
    role = core.state.role_state
    core.state.log.voters.add(0, voter_set(2, 3, 4))
    before = role.check_quorum_deadline_ms
    core.state.now_ms += 100
    note_contact(core.state, role, ReplicaKey(2))
    assert role.check_quorum_deadline_ms == before
    note_contact(core.state, role, ReplicaKey(4))

    assert role.check_quorum_deadline_ms == core.state.now_ms + 3_000


def fetches_of_all(core: Replica, now_ms: int, *, offset: int, version: int = 18) -> None:
    """Both other voters ask for what comes after `offset`."""
    for replica_id in (2, 3):
        request = fetch_request(epoch=core.epoch, offset=offset, last_epoch=1, replica_id=replica_id)
        tell(core, request, version=version, now_ms=now_ms, request_id=now_ms * 10 + replica_id)


def test_a_leader_that_is_fetched_from_in_vain_resigns_and_next_time_later() -> None:
    """Followers that never take what they are sent satisfy check quorum (scenario E8)."""
    core = leader(1)
    flush(core)
    start, vain = core.state.now_ms, 2 * core.state.config.fetch_timeout_ms
    for now_ms in range(start, start + vain, 500):
        fetches_of_all(core, now_ms, offset=1)
        assert core.role is Role.LEADER
    assert core.deadline_ms() == start + vain
    core.handle(TimeoutReached(), start + vain)
    assert core.role is Role.RESIGNED

    assert core.state.stalls == 1
    again = leader(1)
    flush(again)
    again.state.stalls = 1
    start = again.state.now_ms
    for now_ms in range(start, start + 2 * vain, 500):
        fetches_of_all(again, now_ms, offset=1)
        assert again.role is Role.LEADER
    again.handle(TimeoutReached(), start + 2 * vain)
    assert again.role is Role.RESIGNED


def test_a_leader_waits_for_those_that_get_on_however_slowly() -> None:
    """A long way to catch up, or a snapshot on its way, is no reason to leave."""
    core = leader(*([1] * 100))
    flush(core)
    for number in range(40):
        fetches_of_all(core, core.state.now_ms + 1_000, offset=number + 1)
    assert core.role is Role.LEADER
    for _ in range(40):
        now_ms = core.state.now_ms + 1_000
        fetches_of_all(core, now_ms, offset=40)
        core.state.role_state.progress[2].moved_ms = now_ms  # type: ignore[union-attr]
    assert core.role is Role.LEADER


def test_what_is_committed_forgives_what_was_given_up_in_vain() -> None:
    """The patience that grew is that of the beginning again."""
    core = leader(1)
    flush(core)
    core.state.stalls = 5
    request = fetch_request(epoch=core.epoch, offset=2, last_epoch=core.epoch)
    tell(core, request, version=18, now_ms=core.state.now_ms)
    assert core.state.high_watermark == 2
    assert core.state.stalls == 0
    for now_ms in range(core.state.now_ms, core.state.now_ms + 20_000, 500):
        tell(core, request, version=18, now_ms=now_ms, request_id=now_ms)
    assert core.role is Role.LEADER, "nothing waits to be committed"


def stalled(core: Replica, *moved_ms: int) -> Leader:
    """Let something wait at a leader since 10,000 ms, and its other voters have got on at these times."""
    role = as_leader(core)
    role.stalled_since_ms = 10_000
    for progress, at_ms in zip(role.progress.values(), moved_ms, strict=True):
        progress.moved_ms = at_ms
    return role


def test_of_five_voters_two_others_must_get_on() -> None:
    """The leader itself is the third; each has the whole patience since it got on last."""
    core = leader_of(5)
    patience_ms = 2 * core.state.config.fetch_timeout_ms
    core.state.now_ms = 10_000 + patience_ms
    assert stall_deadline_ms(core.state, stalled(core, 11_000, 0, 12_500, 0)) == 11_000 + patience_ms
    assert stall_deadline_ms(core.state, stalled(core, 0, 0, 12_500, 0)) == 10_000 + patience_ms


def test_a_leader_that_is_no_voter_any_more_needs_one_more_of_the_others() -> None:
    core = leader_of(4)
    patience_ms = 2 * core.state.config.fetch_timeout_ms
    core.state.now_ms = 10_000 + patience_ms
    role = stalled(core, 11_000, 12_000, 0)
    assert stall_deadline_ms(core.state, role) == 11_000 + patience_ms, "two of four, and itself"
    core.state.log.voters.add(50, voter_set(2, 3, 4))
    assert stall_deadline_ms(core.state, role) == 11_000 + patience_ms, "two of three"
    core.state.log.voters.add(51, voter_set(2, 3))
    del role.progress[4]
    assert stall_deadline_ms(core.state, role) == 11_000 + patience_ms, "both of two"


def test_a_sole_voter_waits_for_nobody() -> None:
    core = replica(voters=voter_set(1))
    core.state.now_ms = 10**9
    assert stall_deadline_ms(core.state, stalled(core)) is None


def test_the_patience_does_not_grow_for_ever() -> None:
    core = leader(1)
    core.state.stalls = FADING_MAX + 5
    deadline_ms = stall_deadline_ms(core.state, stalled(core, 0, 0))
    assert deadline_ms == 10_000 + (2 * core.state.config.fetch_timeout_ms << FADING_MAX)


def test_nothing_waits_once_all_that_was_appended_is_committed() -> None:
    """In the own epoch: what was committed before is nothing that this leader has proved."""
    core = leader(1)
    role = as_leader(core)
    core.state.committed_offset = core.state.log.end_offset
    role.stalled_since_ms = None
    watch_commits(core.state, role)
    assert role.stalled_since_ms == core.state.now_ms, "its high watermark is not known"
    core.state.now_ms += 10
    watch_commits(core.state, role)
    assert role.stalled_since_ms == core.state.now_ms - 10, "since the first time that it was seen"
    core.state.high_watermark = core.state.log.end_offset
    core.state.log.flushed_offset = 0
    watch_commits(core.state, role)
    assert role.stalled_since_ms is None
    core.state.high_watermark = core.state.log.flushed_offset = core.state.log.end_offset - 1
    watch_commits(core.state, role)
    assert role.stalled_since_ms == core.state.now_ms, "what is not even flushed waits, too"
