"""Signs of life and patience: the time a follower waits for its leader, and a leader for its followers.

**Check quorum.** A leader that no majority of voters fetches from resigns (KIP-595, Leader Progress Timeout).

**A leader that is fetched from and commits nothing gives up** (scenario E8). A Fetch proves that its sender lives, not
that it can take what it is sent: with followers that ask for the same records over and over, check quorum is content,
and the high watermark stands still for good. Another leader may do better. A follower that gets on is waited for: one
that is far behind, or in the midst of a snapshot. Each leader that was given up in vain doubles the patience, until
something is committed again.
"""

from __future__ import annotations

from kraftlib.consensus.roles import Endpoints, Follower, Heard, Leader, Link
from kraftlib.consensus.state import FADING_MAX, ReplicaState
from kraftlib.types import ReplicaId, ReplicaKey

# --- a follower -------------------------------------------------------------------------------------------------------


def follow(
    state: ReplicaState,
    leader_id: ReplicaId,
    leader_endpoints: Endpoints,
    *,
    voted_key: ReplicaKey | None,
    link: Link = Link.WHOLE,
    pre_votes_lost: int = 0,
) -> Follower:
    """Return the role of a follower whose timers begin now."""
    timeout_ms = state.now_ms + state.config.fetch_timeout_ms
    return Follower(
        leader_id=leader_id,
        leader_endpoints=leader_endpoints,
        voted_key=voted_key,
        fetch_deadline_ms=timeout_ms,
        update_due_ms=timeout_ms,
        link=link,
        pre_votes_lost=pre_votes_lost,
    )


def restart_fetch_timer(state: ReplicaState, role: Follower) -> None:
    """The leader has answered, or is not what is waited for: it has its whole time again.

    Unless it has said good-bye: its earlier answers may come later, over another connection.
    """
    if not role.is_left:
        role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms


def note_sign_of_life(state: ReplicaState, role: Follower) -> None:
    """The leader has answered a Fetch: it has its whole time again, and no other voter has our pre-vote."""
    if not role.is_left:
        role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms
        role.heard = Heard.ANSWER


def stand_after(state: ReplicaState, role: Follower, pause_ms: int) -> None:
    """The leader has left: its fetch timer ends when the pause does that is left to other successors."""
    role.fetch_deadline_ms = state.now_ms + pause_ms


def stand_soon(state: ReplicaState, role: Follower, pause_ms: int) -> None:
    """The leader is dead, it seems: its fetch timer ends after this pause, if not before."""
    role.fetch_deadline_ms = min(role.fetch_deadline_ms, state.now_ms + pause_ms)


def ask_again_later(state: ReplicaState, role: Follower) -> None:
    """Leave the leader alone for a period with UpdateRaftVoter and with the requests of `joining`."""
    role.update_due_ms = state.now_ms + state.config.fetch_timeout_ms


# --- a leader ---------------------------------------------------------------------------------------------------------


def check_quorum_timeout_ms(state: ReplicaState) -> int:
    """Return for how long a leader does without a majority of voters that fetch."""
    return state.config.fetch_timeout_ms * 3 // 2


def note_contact(state: ReplicaState, role: Leader, key: ReplicaKey) -> None:
    """Count a request of a replica, if it is a voter."""
    if key in state.voters:
        note_voter(state, role, key.id)


def note_voter(state: ReplicaState, role: Leader, voter_id: ReplicaId) -> None:
    """Count a Fetch of a voter: a majority of them restarts the check-quorum timer."""
    role.fetched_voters.add(voter_id)
    needed = state.log.voters.latest.majority - (1 if state.is_voter else 0)
    if len(role.fetched_voters) >= needed:
        restart_check_quorum(state, role)


def restart_check_quorum(state: ReplicaState, role: Leader) -> None:
    """From now on a majority has its whole time again."""
    role.fetched_voters.clear()
    role.check_quorum_deadline_ms = state.now_ms + check_quorum_timeout_ms(state)


def watch_commits(state: ReplicaState, role: Leader) -> None:
    """Take note since when something waits to be committed, without anything being."""
    if state.high_watermark == state.log.end_offset:
        role.stalled_since_ms = None
    elif role.stalled_since_ms is None:
        role.stalled_since_ms = state.now_ms


def stall_deadline_ms(state: ReplicaState, role: Leader) -> int | None:
    """When to give up, if by then no majority gets on; None if nothing waits, or no other voter is needed.

    Later than check quorum does, which is the better reason for a leader that is not even fetched from.
    """
    if role.stalled_since_ms is None:
        return None
    others_needed = state.log.voters.latest.majority - (1 if state.is_voter else 0)
    if others_needed <= 0:
        return None
    patience_ms = 2 * state.config.fetch_timeout_ms << min(state.stalls, FADING_MAX)
    deadline_ms = role.stalled_since_ms + patience_ms
    if state.now_ms < deadline_ms:
        return deadline_ms
    moves = sorted((progress.moved_ms for progress in role.progress.values()), reverse=True)
    return max(deadline_ms, moves[others_needed - 1] + patience_ms)
