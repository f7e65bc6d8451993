"""Check quorum counts voters, each once, and itself only while it is one."""

from __future__ import annotations

import pytest

from kraftlib.consensus.contact import note_contact
from kraftlib.types import ReplicaKey
from tests.consensus.build import leader, voter_set


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
