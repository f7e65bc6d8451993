"""A replica that has lost its election state, until it is safe that it votes again (reliability.md section 4.4).

It may have voted in an epoch that it does not know any more. A second vote in it could make a second leader; and what
it acknowledges to a leader of an older epoch would be counted there, though it has helped to elect somebody who lacks
it. So it neither votes nor stands nor counts: it fetches as nobody, and confirms no leader. Its vote comes back when

* *every* other voter has told its epoch, by answering a Fetch: whoever was voted for had made its epoch durable before
  it asked, so the forgotten vote is of an epoch that is not above the greatest of these. A majority is not enough: the
  one that did not answer may be the one that was voted for. Nor are the voters of a set that is not committed: to those
  who lack it, whoever it leaves out still is a voter, and may be elected;
* it has fetched up to the high watermark of a leader of such an epoch or a newer one. In an epoch whose leader is known
  nobody gets a vote, so the next vote is of an epoch beyond all of these.
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


def note_high_watermark(state: ReplicaState, high_watermark: Offset) -> None:
    """The leader that we follow has answered, and named its high watermark, -1 if it does not know it yet."""
    if state.amnesia is not None and high_watermark >= 0:
        state.amnesia.leader_epoch, state.amnesia.goal = state.epoch, high_watermark


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
    is_caught_up = amnesia.leader_epoch == state.epoch and state.log.flushed_offset >= amnesia.goal
    if state.epoch < newest or not is_caught_up:
        return []
    log.warning(
        "%s: it votes again: the other voters are in epochs up to %d, and all that is committed is here",
        state.id_text,
        newest,
    )
    state.amnesia = None
    return persist(state)
