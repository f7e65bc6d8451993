"""Fetch, the follower's side: it asks for the records after its log.

That very request tells the leader that everything before is flushed here. It is replication, discovery of the leader,
its sign of life and the acknowledgement in one (KIP-595, Fetch).

    check epoch, offsets, checksums -> append -> flush -> next Fetch; high watermark from the response
"""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message
from kraftlib.config import PRIORITY_MAX
from kraftlib.consensus import repair
from kraftlib.consensus.actions import Action, AppendToLog, FlushLog, TruncateLog
from kraftlib.consensus.deadlines import note_sign_of_life, stand_soon
from kraftlib.consensus.events import ConnectionLost, LogTruncated
from kraftlib.consensus.extensions.commit_news import follow_learned_commit
from kraftlib.consensus.extensions.misconfiguration import introduction
from kraftlib.consensus.extensions.upstreams import (
    MARK,
    doubt_bytes,
    is_upstream,
    leave,
    note_answer,
    note_current,
    ready_upstreams,
    source_at,
    source_of,
    takes_committed_only,
)
from kraftlib.consensus.fetch_leader import FULL_DISK_MAX_BYTES, advance_high_watermark
from kraftlib.consensus.fetch_snapshot import begin_download, drop_download
from kraftlib.consensus.outstanding import FetchQuestion, Outstanding
from kraftlib.consensus.received import acceptable_batches
from kraftlib.consensus.requests import back_off, bootstrap_servers, common_part, read_answer, send
from kraftlib.consensus.responses import only_partition
from kraftlib.consensus.roles import Follower, Link, Resigned
from kraftlib.consensus.state import ReplicaState, logger
from kraftlib.errors import ensure
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID, Endpoint, Offset, OffsetAndEpoch
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse

FAILURES_TO_DOUBT = 2
"""After so many failures in a row a follower asks others who leads."""


def find_leader(state: ReplicaState) -> list[Action]:
    """Ask a random bootstrap server for the leader, one at a time: the answer to a Fetch names the leader, whichever
    replica gives it. Upstreams are asked first: where they are used, the voters would be asked by very many.

    The Fetch bears no replica id, and yet waits until our log is flushed: no Fetch ever names an offset that is not.
    """
    if not state.connections.idle or not may_fetch(state):
        return []
    is_ready = state.connections.is_ready
    servers = [server for server in ready_upstreams(state) if is_ready(server[0], state.now_ms)]
    servers = servers or [server for server in bootstrap_servers(state) if is_ready(server[0], state.now_ms)]
    return [ask_who_leads(state, *servers[state.random.randrange(len(servers))])] if servers else []


def fetch_from_leader(state: ReplicaState, role: Follower) -> list[Action]:
    """Fetch the next records from the leader, if no Fetch is under way and all that we have is flushed.

    That this offset is flushed is what the question means to the leader: it is never ahead of our disk (KAFKA-10533).
    """
    if not may_fetch(state):
        return []
    destination, place = source_of(state, role)
    if place is not None and state.connections.is_ready(destination, state.now_ms):
        return [_fetch(state, role, destination, place)]
    return doubt_leader(state, role)


def may_fetch(state: ReplicaState) -> bool:
    """Whether the disk has done all that a Fetch would vouch for, or go on from. A repair that an older leader has
    begun is begun anew."""
    if state.filling is not None:
        repair.forget_old_leader(state)
    is_repairing = state.filling is not None and state.filling.is_writing
    return state.log.flushed_offset == state.log.end_offset and not is_repairing and not state.is_truncating


def doubt_leader(state: ReplicaState, role: Follower) -> list[Action]:
    """A leader that fails again and again may not be one any more: ask others who leads, beside it (Kafka: instead).
    An observer, which has no fetch timer, finds a new leader in no other way."""
    return find_leader(state) if state.connections.failures(role.leader_id) >= FAILURES_TO_DOUBT else []


def ask_who_leads(state: ReplicaState, destination: int, place: Endpoint) -> Action:
    """Ask another replica for the leader and its epoch, without a replica id (-1).

    It may be the leader, at an address that we do not know as its own: a Fetch that another overtakes must not count.
    """
    return send(state, destination, place, _fetch_request(state, state.log.end, anonymous=True, max_wait_ms=0))


def _fetch(state: ReplicaState, role: Follower, destination: int, place: Endpoint) -> Action:
    """Ask the leader, or an upstream, for the records after our log, all of which is flushed; or for missing ones.

    While our vote is forgotten the Fetch bears no replica id: we may have voted for a newer leader, which was elected
    without this log.
    """
    question = _question(state, role)
    has_lost = state.log.holes or state.amnesia is not None
    is_urgent = has_lost and (repair.asks_first(state) or repair.seeks_leader_end(state))
    max_wait_ms = 0 if is_urgent else state.config.fetch_max_wait_ms
    request = _fetch_request(state, question.position, anonymous=question.is_anonymous, max_wait_ms=max_wait_ms)
    if is_upstream(destination):
        request = attrs.evolve(request, unknown_tagged_fields=MARK)
    return send(state, destination, place, request, question=question)


def _question(state: ReplicaState, role: Follower) -> FetchQuestion:
    """Return what a Fetch asks the leader now."""
    log = state.log
    if not log.holes and state.filling is None and state.amnesia is None:
        return FetchQuestion(role.leader_id, state.epoch, log.end, log.log_version, is_anonymous=False, fills=False)
    return FetchQuestion(
        leader_id=role.leader_id,
        epoch=state.epoch,
        position=repair.fetch_position(state),
        log_version=log.log_version,
        is_anonymous=repair.is_anonymous(state),
        fills=state.filling is not None,
    )


def _fetch_request(state: ReplicaState, position: OffsetAndEpoch, *, anonymous: bool, max_wait_ms: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        current_leader_epoch=state.epoch,
        fetch_offset=position.offset,
        last_fetched_epoch=position.epoch,
        replica_directory_id=ZERO_UUID if anonymous else state.key.directory_id or ZERO_UUID,
        high_watermark=-1 if state.high_watermark is None else state.high_watermark,
    )
    role = state.role_state
    is_known = isinstance(role, Follower) and role.has_fetched
    return FetchRequest(
        cluster_id=state.cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=-1 if anonymous else state.key.id),
        max_wait_ms=max_wait_ms,
        max_bytes=_max_bytes(state),
        topics=(FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        unknown_tagged_fields=() if is_known else introduction(state),
    )


def _max_bytes(state: ReplicaState) -> int:
    """Return how much a Fetch asks for: at most half of the disk reserve.

    An answer and a vote fit into it when another program fills the disk. The leader takes FULL_DISK_MAX_BYTES for a
    full disk.
    """
    if state.disk_full:
        return FULL_DISK_MAX_BYTES
    wanted, reserve = state.config.fetch_max_bytes, state.config.disk_reserve_bytes
    return max(min(wanted, reserve // 2) if reserve else wanted, FULL_DISK_MAX_BYTES + 1)


def handle_fetch_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: FetchResponse
) -> list[Action]:
    """Follow the leader's log: append what it sends, or truncate, or fetch its snapshot."""
    partition = only_partition(response.responses, "topic_id", wanted=METADATA_TOPIC_ID)
    role = state.role_state
    actions: list[Action] = []
    if state.config.upstreams and outstanding.question is not None:
        note_answer(state, outstanding.destination, response, partition)
    if isinstance(role, Follower) and _is_of_our_leader(state, role, response, partition):
        state.connections.succeeded(outstanding.destination)
    else:
        answer, partition = read_answer(state, response, partition)
        concerns_us, actions = common_part(state, outstanding, answer)
        if partition is not None and state.amnesia is not None:
            repair.note_epoch(state, outstanding.destination, answer.epoch)
        role = state.role_state
        if not concerns_us or partition is None:
            return actions
        if not isinstance(role, Follower) or answer.leader_id != role.leader_id:
            # It only tells who leads.
            if not actions or not isinstance(role, Follower):
                back_off(state, outstanding)
            return actions
    if not _is_still_asked(state, role, outstanding.question):
        # Our log, or our vote, is not what it was when we asked: nothing in this answer fits. But the leader lives.
        if outstanding.question is not None:
            _note_answer(state, role, outstanding.destination)
        if not actions:
            back_off(state, outstanding)
        return actions
    outcome = _follow_log(state, role, outstanding, partition)
    if outcome is None:
        back_off(state, outstanding)
        return actions
    if not outcome and role.download is None:
        # Nothing new, and sooner than it could be: a leader that does not hold our Fetch is not asked again at once.
        pause_ms = min(state.jittered_backoff_ms(), state.config.fetch_max_wait_ms)
        state.connections.back_off(outstanding.destination, outstanding.sent_ms + pause_ms)
    note_current(state, response, partition.high_watermark)
    _note_answer(state, role, outstanding.destination)
    return [*actions, *outcome]


def _note_answer(state: ReplicaState, role: Follower, destination: int) -> None:
    """The leader has answered a Fetch over a connection that works: it lives. An upstream says nothing of that."""
    if not is_upstream(destination):
        note_sign_of_life(state, role)
        role.link, role.pre_votes_lost = Link.WHOLE, 0


def _is_of_our_leader(
    state: ReplicaState, role: Follower, response: FetchResponse, partition: FetchResponse.PartitionData | None
) -> bool:
    """Whether an answer has no error and names the leader and the epoch that we follow: nearly every one.

    Then `common_part` would find nothing new in it. Where our vote is lost each answer is looked at closely.
    """
    if partition is None or response.error_code or partition.error_code or state.amnesia is not None:
        return False
    leader = partition.current_leader
    return leader.leader_epoch == state.epoch and leader.leader_id == role.leader_id


def _is_still_asked(state: ReplicaState, role: Follower, question: FetchQuestion | None) -> bool:
    """Whether `question` is what a Fetch would ask now. Compared field by field, without making that question."""
    log = state.log
    if question is None or log.holes or state.filling is not None or state.amnesia is not None:
        return question == _question(state, role)
    leader_id, epoch, position, log_version, is_anonymous, fills = question
    return (
        position.offset == log.end_offset
        and position.epoch == log.last_epoch
        and log_version == log.log_version
        and epoch == state.epoch
        and leader_id == role.leader_id
        and not is_anonymous
        and not fills
    )


def _follow_log(
    state: ReplicaState, role: Follower, outstanding: Outstanding[Message], partition: FetchResponse.PartitionData
) -> list[Action] | None:
    """Truncate, fetch the snapshot, repair or append, as the leader says; None: its response is of no use."""
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0:
        return _truncate(state, OffsetAndEpoch(epoch=diverging.epoch, offset=diverging.end_offset))
    if snapshot.epoch >= 0 or snapshot.end_offset >= 0:
        source = source_at(outstanding.destination)
        outcome = begin_download(state, role, snapshot.end_offset, snapshot.epoch, source)
        replaces = role.download is not None and not role.download.fills
        if outcome is not None and replaces and state.log.holes and snapshot.end_offset < state.log.end_offset:
            # The records behind the snapshot are acknowledged and not here until they are fetched again.
            outcome = [*outcome, *repair.doubt_vote(state)]
        return outcome
    if state.disk_full and partition.records:
        # Nothing is acknowledged by asking for it again; that it was offered says that the leader lives.
        back_off(state, outstanding)
        return []
    if state.log.holes:
        return repair.handle_repair_response(state, partition)
    outcome = _append(state, partition)
    if outcome is not None and state.kept is not None and not state.kept.heals:
        outcome = [*outcome, *drop_download(state, role)]  # the log goes on without it
    return outcome


def _truncate(state: ReplicaState, leader_end: OffsetAndEpoch) -> list[Action] | None:
    """Cut our log back to the point up to which it may agree with the leader's: the end of their common epoch. Fetch
    tries again there.

    None: it would drop committed records, so some replica has lost data, and our copy may be the only one (scenario
    L3). A hole goes from its start, committed or not; the log then ends below the high watermark, which does not fall.
    """
    if leader_end.epoch == 0:
        end_offset = min(leader_end.offset, state.log.end_offset)
    else:
        own_end = state.log.end_for(leader_end.epoch)
        end_offset = min(own_end.offset, leader_end.offset) if own_end.epoch == leader_end.epoch else own_end.offset
    if end_offset < max(state.committed_offset, state.log.start_offset) or end_offset >= state.log.end_offset:
        reason = "truncation below the high watermark" if end_offset < state.log.end_offset else "empty truncation"
        text = f"the leader's log ends at {leader_end}, ours at {state.log.end}, committed is {state.committed_offset}"
        state.refuse(reason, text)
        return None
    return _cut(state, repair.truncated_end(state, end_offset))


def _cut(state: ReplicaState, end_offset: Offset) -> list[Action]:
    logger.info("%s: truncating from %s to %d", state.id_text, state.log.end, end_offset)
    drops_hole = any(hole.end_offset > end_offset for hole in state.log.holes)
    state.log.truncate(end_offset)
    state.is_truncating = True
    state.filling = None
    if not drops_hole:
        return [TruncateLog(end_offset)]
    # We may have acknowledged some of the missing records, and our shorter log does not say that a candidate must have
    # them: we grant no vote until all committed records are here again.
    return [*repair.doubt_vote(state), TruncateLog(end_offset)]


def handle_truncated(state: ReplicaState, event: LogTruncated) -> list[Action]:
    """Only whole batches go: take over where the log really ends. Where that is the end of a hole, the hole goes, too.

    Where it is below what is committed, a leader has named a high watermark amid a batch, and committed records went
    with the rest of it: as after a lost hole, we grant no vote.
    """
    state.is_truncating = False
    ensure(event.end_offset <= state.log.end_offset, f"truncated to {event.end_offset}, not {state.log.end_offset}")
    if event.end_offset == state.log.end_offset:
        return []
    went_too_far = event.end_offset < min(state.committed_offset, state.log.end_offset)
    state.log.truncate(event.end_offset)
    end_offset = repair.truncated_end(state, event.end_offset)
    actions = repair.doubt_vote(state) if went_too_far else []
    return [*actions, *(_cut(state, end_offset) if end_offset < event.end_offset else [])]


def _append(state: ReplicaState, partition: FetchResponse.PartitionData) -> list[Action] | None:
    """Append what fits; None if there were records and none of them did."""
    batches = acceptable_batches(state, partition.records or b"")
    if partition.records and not batches:
        return None
    if takes_committed_only(state):
        batches = tuple(batch for batch in batches if batch.end_offset <= partition.high_watermark)
    if not partition.records:
        repair.note_leader_end(state, partition.high_watermark)
    actions: list[Action] = []
    before = state.log.end_offset
    if batches:
        state.log.append(batches)
        actions += [AppendToLog(batches), FlushLog(state.log.log_version)]
    high_watermark, known = min(partition.high_watermark, state.log.end_offset), state.high_watermark
    # A log that has lost a committed hole ends below what was told: it is told once more when all of it is here again.
    if high_watermark >= state.committed_offset and (known is None or high_watermark > known or before < known):
        actions += advance_high_watermark(state, high_watermark)
    return [*actions, *follow_learned_commit(state)] if state.learned_commit is not None else actions


def handle_connection_lost(state: ReplicaState, event: ConnectionLost) -> list[Action]:
    """A lost connection is tried again at once; if the new one is refused, or lost without a word, the leader is dead.

    (A dying process may still accept it: its listening socket goes last.) Beyond Kafka, which waits for the fetch
    timeout. A live leader is safe: its other followers refuse the pre-vote.
    """
    role = state.role_state
    doubt_bytes(state, event.destination)
    leave(state, event.destination, "the connection is lost")
    if isinstance(role, Resigned) and event.destination in state.voters.ids:
        # It may have forgotten that we leave, and must not refuse our successor for that: tell it again, and at once if
        # an old connection broke. Only once: a proxy whose voter is down accepts each new connection, and closes it.
        role.unacknowledged.add(event.destination)
        if not event.refused and event.destination not in role.told_again:
            role.told_again.add(event.destination)
            state.connections.retry_now(event.destination)
        return []
    if not isinstance(role, Follower) or event.destination != role.leader_id:
        return []
    if role.link is Link.WHOLE:
        if not event.refused:
            role.link = Link.BROKEN
            state.connections.retry_now(role.leader_id)
    elif state.is_voter:
        role.link = Link.REFUSED
        role.doubt_leader()
        stand_soon(state, role, _stagger_ms(state, role))
    return []


def _stagger_ms(state: ReplicaState, role: Follower) -> int:
    """Return the pause before this voter stands in place of a dead leader.

    All voters notice a dead process within a millisecond; without a slot of its own for each they would split the vote.
    """
    slot_ms = state.config.leader_loss_stagger_ms
    survivors = [voter_id for voter_id in state.voters.ids if voter_id != role.leader_id]
    rank = survivors.index(state.key.id) if state.key.id in survivors else len(survivors)
    wait_ms = rank * slot_ms * (PRIORITY_MAX - state.eagerness) // PRIORITY_MAX
    return _pause_ms(state, role) + wait_ms + state.random.randrange(slot_ms // 4 + 1)


def _pause_ms(state: ReplicaState, role: Follower) -> int:
    """Return for how long to keep a leader that only we cannot reach: 0, 1, 3, 7 … slots, up to the fetch timeout.

    The others, who hear the leader, refuse the pre-vote at once, and would be asked again as fast as they answer.
    """
    slots = (1 << max(min(role.pre_votes_lost, 16) - 1, 0)) - 1
    return min(slots * max(state.config.leader_loss_stagger_ms, 1), state.config.fetch_timeout_ms)
