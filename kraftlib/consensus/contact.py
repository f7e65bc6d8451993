"""Check quorum: a leader that no majority of voters speaks with resigns (states.md section 10, reliability E7)."""

from __future__ import annotations

from kraftlib.consensus.roles import Leader
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import ReplicaKey


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
