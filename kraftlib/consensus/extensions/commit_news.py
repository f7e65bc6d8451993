"""The high watermark, as other answers than those to Fetch tell it.

The leader has appended a record for this replica (Propose), or has told it a read index (ReadBarrier). Either answer
says that a record is committed; the response to Fetch that would say so may take 2 ms more (decision 0002), and the
caller waits for it. It is enough to know the record's offset and epoch: a log that has a record of that epoch there has
the leader's own record, and all before it (Raft's log matching). See docs/explanation/decisions/0017.

    answer -> CommitLearned(end, epoch) -> our log has it: high watermark; not yet: with the Fetch that brings it
"""

from __future__ import annotations

from kraftlib.consensus.actions import Action
from kraftlib.consensus.events import CommitLearned
from kraftlib.consensus.fetch_leader import advance_high_watermark
from kraftlib.consensus.roles import Follower
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import OffsetAndEpoch


def handle_commit_learned(state: ReplicaState, event: CommitLearned) -> list[Action]:
    """Note how far the log is committed, and advance the high watermark if our log has that record."""
    return learn_commit(state, event.end)


def learn_commit(state: ReplicaState, end: OffsetAndEpoch) -> list[Action]:
    """Note that everything below `end` is committed, whose last record is of that epoch."""
    if state.learned_commit is None or end.offset > state.learned_commit.offset:
        state.learned_commit = end
    return follow_learned_commit(state)


def follow_learned_commit(state: ReplicaState) -> list[Action]:
    """Advance the high watermark of a follower to the learned offset, once its log has that very record.

    A log with a hole waits until it is whole: records that are applied must be there.
    """
    end, known = state.learned_commit, state.high_watermark
    if end is None or not isinstance(state.role_state, Follower):
        return []
    if known is not None and known >= end.offset:
        state.learned_commit = None
        return []
    is_here = state.committed_offset <= end.offset <= state.log.end_offset
    if not is_here or state.is_truncating or state.log.holes or state.log.epoch_before(end.offset) != end.epoch:
        return []
    state.learned_commit = None
    return advance_high_watermark(state, end.offset)
