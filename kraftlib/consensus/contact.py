"""Signs of life: of its leader for a follower, and of the voters for a leader.

Check quorum: a leader that no majority of voters speaks with resigns (KIP-595, Leader Progress Timeout).
"""

from __future__ import annotations

from kraftlib.consensus.roles import Follower, Leader
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import ReplicaKey


def restart_fetch_timer(state: ReplicaState, role: Follower) -> None:
    """The leader has answered, or is not what is waited for: it has its whole time again.

    Unless it has said good-bye: what it answered before that may come later, over another connection.
    """
    if not role.said_good_bye:
        role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms


def note_sign_of_life(state: ReplicaState, role: Follower) -> None:
    """The leader has answered a Fetch: it has its whole time again, and nobody else our pre-vote."""
    restart_fetch_timer(state, role)
    if not role.said_good_bye:
        role.has_fetched = True


def note_contact(state: ReplicaState, role: Leader, key: ReplicaKey) -> None:
    """Count a sign of life of a voter: a majority of them restarts the check-quorum timer."""
    if key not in state.voters:
        return
    role.fetched_voters.add(key.id)
    needed = state.voters.majority - (1 if state.is_voter else 0)
    if len(role.fetched_voters) >= needed:
        restart_check_quorum(state, role)


def restart_check_quorum(state: ReplicaState, role: Leader) -> None:
    """From now on a majority has its whole time again."""
    role.fetched_voters.clear()
    role.check_quorum_deadline_ms = state.now_ms + state.config.fetch_timeout_ms * 3 // 2
