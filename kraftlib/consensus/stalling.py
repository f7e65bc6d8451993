"""A leader that is fetched from and commits nothing gives up (scenario E8).

Where followers pull, a Fetch proves that its sender lives, not that it can take what it is sent: with followers that
ask for the same records over and over, check quorum is content, and the high watermark stands still for good. Another
leader may do better, if it is this one's records, or its way to them, that nobody can take.

What gets on is waited for: a follower that is far behind, or in the midst of a snapshot. And what another leader does
not mend costs ever less: each one that was given up in vain doubles the patience, until something is committed again.
"""

from __future__ import annotations

from kraftlib.consensus.roles import Leader
from kraftlib.consensus.state import FADING_MAX, ReplicaState


def watch_commits(state: ReplicaState, role: Leader) -> None:
    """Take note since when something waits to be committed, without anything being."""
    if state.high_watermark == state.log.end_offset:
        role.stalled_since_ms = None
    elif role.stalled_since_ms is None:
        role.stalled_since_ms = state.now_ms


def stall_deadline_ms(state: ReplicaState, role: Leader) -> int | None:
    """When to give up, if by then no majority gets on; None if nothing waits, or nobody else is needed.

    Later than check quorum does: who is not even fetched from has a better reason.
    """
    if role.stalled_since_ms is None:
        return None
    others_needed = state.voters.majority - (1 if state.is_voter else 0)
    if others_needed <= 0:
        return None
    patience_ms = 2 * state.config.fetch_timeout_ms << min(state.stalls, FADING_MAX)
    deadline_ms = role.stalled_since_ms + patience_ms
    if state.now_ms < deadline_ms:
        return deadline_ms
    moves = sorted((progress.moved_ms for progress in role.progress.values()), reverse=True)
    return max(deadline_ms, moves[others_needed - 1] + patience_ms)
