"""A replica that has lost its election state, until it is safe that it votes again (KIP-595, Vote).

It may have voted in an epoch that it does not know any more. A second vote in it could make a second leader; and what
it acknowledges to a leader of an older epoch would be counted there, though it has helped to elect a newer one that
lacks it. So it neither votes nor stands nor counts: it fetches as nobody, and confirms no leader. Its vote comes back
when, in one epoch e, all of this is true:

1. it follows the leader L of e, and L knows its high watermark: a majority holds a record of e;
2. an answer of L without records has shown that everything in L's log is here, flushed: L's end was reached;
3. every other voter, of the set in force at the last committed record and of each later one in the log, has told its
   epoch since, by answering a Fetch, and none is above e.

**Why no second vote is cast.** Votes are given in epochs above e only, since the leader of e is known. So let the
forgotten vote be one for V in E > e, and E the first epoch that two replicas could win by it. V made E durable before
it asked. Let S be the voter set by which V stands, the latest in V's log.

* *S is in L's log.* Then it is here, by 2; whatever L appended before the vote was forgotten was in its log when its
  end was reached. If S is among the sets of 3, V has told its epoch, which is E or newer: a contradiction to 3. Else a
  committed set follows S in L's log. It was committed by a majority that shares a voter with each one of S, for
  neighbouring sets do; that voter gives no vote to V, whose log lacks the record (Raft, 5.4.1).
* *S is not in L's log, and was written in an epoch before e.* The leader that wrote S had committed a record of its own
  epoch under the set before S, and so had every leader that wrote another successor of that set (KIP-853). The newest
  of these records, or the one of 1, is held by a majority that shares a voter with each one of S. That voter held it
  before it voted in E. V would need a log with a record of that epoch or a newer one, and every such log has what L's
  has in the place of S.
* *S was written in an epoch above e*, or V's log has such a record. Then somebody was elected above e before the vote
  was forgotten. Take the first one, F. Its log has records up to e alone, so one of the two cases above is F's: it
  could not win, or its voters and F itself have told an epoch above e.

A majority of answers is not enough for 3: the voter that did not answer may be the one that was voted for. Nor is the
high watermark for 2: a voter that was added by a record beyond it is known to those alone who have the record.
"""

from __future__ import annotations

from kraftlib.consensus.actions import Action
from kraftlib.consensus.checks import endpoint_of
from kraftlib.consensus.roles import Follower
from kraftlib.consensus.state import ReplicaState, log
from kraftlib.consensus.transitions import persist
from kraftlib.consensus.voters import Voter
from kraftlib.types import Endpoint, Epoch, Offset, ReplicaId


def note_epoch(state: ReplicaState, replica_id: ReplicaId, epoch: Epoch) -> None:
    """A replica has answered a Fetch, and named the epoch that it is in."""
    amnesia = state.amnesia
    if amnesia is not None and epoch >= 0 and replica_id in _others(state):
        amnesia.reported[replica_id] = max(epoch, amnesia.reported.get(replica_id, 0))


def note_leader_end(state: ReplicaState, high_watermark: Offset) -> None:
    """The leader has nothing behind the end of our log; its high watermark is -1 while it does not know it."""
    if state.amnesia is not None and high_watermark >= 0:
        state.amnesia.leader_epoch = state.epoch


def seeks_leader_end(state: ReplicaState) -> bool:
    """Whether the leader's end is still to be reached. A Fetch that the leader held would never be without records."""
    return state.amnesia is not None and state.amnesia.leader_epoch != state.epoch


def unreported(state: ReplicaState) -> list[ReplicaId]:
    """Return the other voters that have not told their epoch."""
    if state.amnesia is None:
        return []
    reported = state.amnesia.reported
    return [replica_id for replica_id in _others(state) if replica_id not in reported]


def _others(state: ReplicaState) -> dict[ReplicaId, Voter]:
    """Return the other voters of every set that may be in force somewhere: of the last committed one, and all later."""
    sets = state.log.voters.since(state.committed_offset - 1)
    return {voter.key.id: voter for voters in sets for voter in voters.others(state.key)}


def voters_to_ask(state: ReplicaState) -> list[tuple[ReplicaId, Endpoint]]:
    """Return the voters that have not told their epoch and may be asked now, and where. The leader is fetched from."""
    others = _others(state)
    leader_id = state.leader_id if isinstance(state.role_state, Follower) else None
    places = [(replica_id, endpoint_of(state, others[replica_id].endpoints)) for replica_id in unreported(state)]
    return [
        (replica_id, place)
        for replica_id, place in places
        if place is not None and replica_id != leader_id and state.connections.is_ready(replica_id, state.now_ms)
    ]


def maybe_recall(state: ReplicaState) -> list[Action]:
    """End the amnesia, durably, if it is safe now."""
    amnesia, role = state.amnesia, state.role_state
    if amnesia is None or not isinstance(role, Follower) or not state.voters.others(state.key) or unreported(state):
        return []
    if state.log.holes or role.download is not None:
        return []  # its end is where it was, and not what is there
    newest = max(amnesia.reported.values())
    if state.epoch < newest or amnesia.leader_epoch != state.epoch:
        return []
    log.warning(
        "%s: it votes again: the other voters are in epochs up to %d, and all that the leader has is here",
        state.id_text,
        newest,
    )
    state.amnesia = None
    return persist(state)
