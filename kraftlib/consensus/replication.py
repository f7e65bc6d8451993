"""The conversation of replication: Fetch, both sides, and the high watermark that follows from it.

A follower asks for what comes after its log; that very question tells the leader that everything before is flushed
there. It is replication, discovery of the leader, its sign of life and the acknowledgement in one (KIP-595, Fetch).

    leader    append -> answer parked Fetches with the bytes -> flush; a majority's offsets -> high watermark
    follower  check epoch, offsets, checksums -> append -> flush -> next Fetch; high watermark from the answer
"""

from __future__ import annotations

from kraftlib.config import PRIORITY_MAX
from kraftlib.consensus import answers
from kraftlib.consensus.actions import (
    Action,
    AppendToLog,
    FlushLog,
    SendRecords,
    SendResponse,
    TruncateLog,
)
from kraftlib.consensus.amnesia import note_epoch, note_leader_end, seeks_leader_end
from kraftlib.consensus.checks import (
    Answer,
    back_off,
    bootstrap_servers,
    cluster_error,
    common_part,
    endpoint_of,
    leader_only_error,
    node_endpoints,
    refuse_request,
    send,
)
from kraftlib.consensus.connections import FetchQuestion, Outstanding
from kraftlib.consensus.contact import note_sign_of_life
from kraftlib.consensus.downloading import begin_download, drop_download
from kraftlib.consensus.events import ConnectionLost, LogTruncated, RecordsSubmitted, RequestReceived
from kraftlib.consensus.log_view import Diverging, NeedsSnapshot, Valid
from kraftlib.consensus.progress import (
    FULL_DISK_MAX_BYTES,
    HIGH_WATERMARK_NEWS_DELAY_MS,
    advance_high_watermark,
    follow_voters,
    record_progress,
)
from kraftlib.consensus.received import acceptable_batches, voters_of_a_record
from kraftlib.consensus.repairing import asks_first, fetch_position, forget_old_leader, is_anonymous, truncated_end
from kraftlib.consensus.repairing import handle_answer as handle_repair_answer
from kraftlib.consensus.roles import Follower, Leader, ParkedFetch, Resigned
from kraftlib.consensus.state import Amnesia, ReplicaState, log
from kraftlib.consensus.strangers import detail_of, introduction
from kraftlib.consensus.transitions import persist
from kraftlib.errors import InvariantError, ensure
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID, Endpoint, Offset, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse

MAX_BYTES_LIMIT = 8 * 1024 * 1024
"""Never more than this in one answer, whatever is asked for, but always one batch."""

FAILURES_TO_DOUBT = 2
"""After so many failures in a row a follower asks others who leads."""

FETCH_SERVED_FROM = 13
"""Below, the topic comes by name and Kafka's leader finds no topic id (KIP-595, Fetch)."""


# --- the leader's side -----------------------------------------------------------------------------------------------


def handle_fetch(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Answer a Fetch: with records, a divergence, a snapshot or an error at once; with nothing only after a while."""
    request: FetchRequest = event.request
    error = cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse_request(state, event, error)
    if (
        event.version < FETCH_SERVED_FROM
        or len(request.topics) != 1
        or request.topics[0].topic_id != METADATA_TOPIC_ID
        or len(request.topics[0].partitions) != 1
        or request.topics[0].partitions[0].partition != 0
    ):
        return refuse_request(state, event, ErrorCode.INVALID_REQUEST)
    partition = request.topics[0].partitions[0]
    if request.max_wait_ms < 0 or partition.fetch_offset < 0 or partition.last_fetched_epoch < 0:
        return _fetch_error(state, event, ErrorCode.INVALID_REQUEST)
    if partition.last_fetched_epoch > partition.current_leader_epoch:
        return _fetch_error(state, event, ErrorCode.INVALID_REQUEST)
    error = leader_only_error(state, partition.current_leader_epoch)
    role = state.role_state
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        return _fetch_error(state, event, error)
    fetcher = _fetcher(request, partition)
    if fetcher is not None and fetcher.id == state.key.id:
        state.refuse("our own id", f"a Fetch of replica {fetcher}, and we are {state.key}")
        return _fetch_error(state, event, ErrorCode.UNKNOWN_SERVER_ERROR)

    judgement = judge_fetch(state, partition.fetch_offset, partition.last_fetched_epoch)
    if not isinstance(judgement, Valid):
        response = answers.fetch(state, judgement=judgement, version=event.version)
        return [SendResponse(event.request_id, response)]
    actions = record_progress(state, role, fetcher, partition.fetch_offset) if fetcher is not None else []
    if fetcher is not None and fetcher in state.voters:
        role.progress[fetcher.id].has_space = request.max_bytes > FULL_DISK_MAX_BYTES
    if partition.fetch_offset < state.log.end_offset and may_send(state, fetcher):
        return [*actions, _send_records(state, event.request_id, request, event.version, partition.fetch_offset)]
    if request.max_wait_ms == 0:
        return [*actions, SendResponse(event.request_id, answers.fetch(state, version=event.version))]
    has_news = state.high_watermark is not None and partition.high_watermark < state.high_watermark
    wait_ms = min(request.max_wait_ms, HIGH_WATERMARK_NEWS_DELAY_MS if has_news else request.max_wait_ms)
    _park(
        role,
        ParkedFetch(
            request_id=event.request_id,
            request=request,
            version=event.version,
            fetch_offset=partition.fetch_offset,
            deadline_ms=state.now_ms + wait_ms,
            fetcher=fetcher,
        ),
    )
    return actions


def _fetcher(request: FetchRequest, partition: FetchRequest.FetchPartition) -> ReplicaKey | None:
    """Who fetches; None for a tool that does not say, which is served and not tracked."""
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    if replica_id < 0:
        return None
    directory_id = partition.replica_directory_id
    return ReplicaKey(replica_id, None if directory_id == ZERO_UUID else directory_id)


def _fetch_error(state: ReplicaState, event: RequestReceived, error: ErrorCode) -> list[Action]:
    return [SendResponse(event.request_id, answers.fetch(state, error=error, version=event.version))]


def _send_records(
    state: ReplicaState, request_id: int, request: FetchRequest, version: int, fetch_offset: Offset
) -> SendRecords:
    max_bytes = min(max(request.max_bytes, 1), MAX_BYTES_LIMIT)
    return SendRecords(request_id, answers.fetch(state, version=version), fetch_offset, max_bytes)


def judge_fetch(state: ReplicaState, offset: Offset, epoch: int) -> Valid | Diverging | NeedsSnapshot:
    """Judge where a follower stands. An empty one starts from the snapshot even where the log reaches back to 0."""
    latest = state.log.latest_snapshot
    if offset == 0 and latest is not None:
        return NeedsSnapshot(latest)
    return state.log.validate(offset, epoch)


def _park(role: Leader, parked: ParkedFetch) -> None:
    role.parked[parked.request_id] = parked
    if role.parked_deadline_ms is None or parked.deadline_ms < role.parked_deadline_ms:
        role.parked_deadline_ms = parked.deadline_ms


def may_send(state: ReplicaState, fetcher: ReplicaKey | None) -> bool:
    """Whether `fetcher` may have records now. They leave before our own flush: until Flushed says otherwise, our copy
    does not count towards the majority (Raft thesis, 10.2.1).

    A change of the voters goes to the voters that it names alone, until it is committed. A voter that it removes would
    have the longer log if it had the record before the others. It would refuse them its vote, which they need as long
    as they have not seen the change, and it would not stand. If the leader dies then, nobody could be elected.

    A Fetch under nobody's name is always served: it is that of a replica without a vote to refuse (see `amnesia`).
    """
    offset = state.log.voters.latest_offset
    is_settled = offset is None or offset < state.committed_offset
    return is_settled or fetcher is None or fetcher in state.voters


def answer_parked(state: ReplicaState, role: Leader) -> list[Action]:
    """Answer the Fetches that wait below the end, if records may leave."""
    end_offset = state.log.end_offset
    ready = [
        parked
        for parked in role.parked.values()
        if parked.fetch_offset < end_offset and may_send(state, parked.fetcher)
    ]
    for parked in ready:
        del role.parked[parked.request_id]
    return [
        _send_records(state, parked.request_id, parked.request, parked.version, parked.fetch_offset)
        if parked.fetch_offset >= state.log.start_offset
        else SendResponse(
            parked.request_id, answers.fetch(state, version=parked.version)
        )  # it asks for a snapshot next
        for parked in ready
    ]


def expire_parked(state: ReplicaState, role: Leader) -> list[Action]:
    """Answer the Fetches whose time is up: without records, but with the high watermark of now.

    With records, if they waited for the commit of a change of the voters, and that is the news.
    """
    if role.parked_deadline_ms is None or state.now_ms < role.parked_deadline_ms:
        return []
    actions = answer_parked(state, role)
    late = [parked for parked in role.parked.values() if parked.deadline_ms <= state.now_ms]
    for parked in late:
        del role.parked[parked.request_id]
    role.parked_deadline_ms = min((parked.deadline_ms for parked in role.parked.values()), default=None)
    actions += [SendResponse(parked.request_id, answers.fetch(state, version=parked.version)) for parked in late]
    return actions


def handle_records(state: ReplicaState, event: RecordsSubmitted) -> list[Action]:
    """Take batches as leader: store them, offer them to waiting followers, then make them durable."""
    role = state.role_state
    if not isinstance(role, Leader) or event.epoch != state.epoch:
        raise InvariantError(f"{state.id_text} is {state.role}, it cannot append in epoch {event.epoch}")
    before = voters_of_a_record(state)
    state.log.append(event.batches)
    if any(batch.is_control for batch in event.batches):
        changed = before is None or state.voters.is_neighbour_of(before)
        ensure(changed, f"{state.voters} follows {before}: more than one voter would change at once")
        role.control_waits = False
        follow_voters(state, role)
    return [AppendToLog(event.batches), *answer_parked(state, role), FlushLog(state.log.log_version)]


# --- the follower's side ---------------------------------------------------------------------------------------------


def find_leader(state: ReplicaState) -> list[Action]:
    """Ask a random bootstrap server for the leader, one at a time: a Fetch anywhere is answered with who leads.

    Under nobody's name, and yet only once our log is flushed: no Fetch ever names an offset that is not.
    """
    if not state.connections.idle or not may_fetch(state):
        return []
    servers = [
        (number, place)
        for number, place in bootstrap_servers(state)
        if state.connections.is_ready(number, state.now_ms)
    ]
    if not servers:
        return []
    number, place = servers[state.random.randrange(len(servers))]
    return [ask_who_leads(state, number, place)]


def fetch_from_leader(state: ReplicaState, role: Follower) -> list[Action]:
    """Ask the leader for what comes next, if it is not asked already and everything that we have is flushed.

    That this offset is flushed is what the question means to the leader: it is never ahead of our disk (KAFKA-10533).
    """
    if not may_fetch(state):
        return []
    place = endpoint_of(state, role.leader_endpoints)
    if place is not None and state.connections.is_ready(role.leader_id, state.now_ms):
        return [_fetch(state, role, place)]
    return doubt_leader(state, role)


def may_fetch(state: ReplicaState) -> bool:
    """Whether the disk has done all that a Fetch would vouch for, or go on from.

    What an old leader's answers have begun to repair is begun anew with whoever is asked in a newer epoch.
    """
    forget_old_leader(state)
    is_repairing = state.filling is not None and state.filling.is_writing
    return state.log.flushed_offset == state.log.end_offset and not is_repairing and not state.is_truncating


def doubt_leader(state: ReplicaState, role: Follower) -> list[Action]:
    """A leader that fails again and again may not be one any more: ask others who leads, beside it.

    Kafka asks them *instead*, and one that is cut off then costs it its live leader. An observer, which has no fetch
    timer, finds a new leader in no other way, be it in the midst of a download.
    """
    return find_leader(state) if state.connections.failures(role.leader_id) >= FAILURES_TO_DOUBT else []


def ask_who_leads(state: ReplicaState, destination: int, place: Endpoint) -> Action:
    """Ask another replica who leads and in which epoch, as nobody (-1).

    The replica that is asked may be the leader, at an address that we do not know as its own. It must not count what a
    Fetch says that is overtaken by the one to the leader, and nothing in its answer continues our log.
    """
    return send(state, destination, place, _fetch_request(state, state.log.end, anonymous=True, max_wait_ms=0))


def _fetch(state: ReplicaState, role: Follower, place: Endpoint) -> Action:
    """Ask the leader for what comes after our log, all of which is flushed; or for what is missing in it.

    While our vote is forgotten we ask as nobody: this leader must not count what we have, since we may have voted for
    somebody newer, who was elected without it.
    """
    question = _question(state, role)
    max_wait_ms = 0 if asks_first(state) or seeks_leader_end(state) else state.config.fetch_max_wait_ms
    request = _fetch_request(state, question.position, anonymous=question.is_anonymous, max_wait_ms=max_wait_ms)
    return send(state, role.leader_id, place, request, question=question)


def _question(state: ReplicaState, role: Follower) -> FetchQuestion:
    """Return what a Fetch asks the leader now."""
    return FetchQuestion(
        leader_id=role.leader_id,
        epoch=state.epoch,
        position=fetch_position(state),
        log_version=state.log.log_version,
        is_anonymous=is_anonymous(state),
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
    """How much to ask for. The leader takes FULL_DISK_MAX_BYTES for a full disk, whatever is configured."""
    return FULL_DISK_MAX_BYTES if state.disk_full else max(state.config.fetch_max_bytes, FULL_DISK_MAX_BYTES + 1)


def handle_fetch_response(state: ReplicaState, outstanding: Outstanding, response: FetchResponse) -> list[Action]:
    """Follow the leader's log: append what it sends, or truncate, or fetch its snapshot."""
    answer, partition = _read_fetch_response(state, response)
    if partition is not None:
        note_epoch(state, outstanding.destination, answer.epoch)
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if not concerns_us or partition is None:
        return actions
    if (
        not isinstance(role, Follower)
        or answer.leader_id != role.leader_id
        or outstanding.question != _question(state, role)
    ):
        # It only tells who leads; or our log is not what it was when we asked, and nothing in this answer fits it.
        if not actions or not isinstance(role, Follower):
            back_off(state, outstanding)
        return actions
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0:
        outcome = _truncate(state, OffsetAndEpoch(epoch=diverging.epoch, offset=diverging.end_offset))
    elif snapshot.epoch >= 0 or snapshot.end_offset >= 0:
        outcome = begin_download(state, role, snapshot.end_offset, snapshot.epoch)
        replaces = role.download is not None and not role.download.fills
        if outcome is not None and replaces and state.log.holes and snapshot.end_offset < state.log.end_offset:
            # Until it is fetched again, what stands behind the snapshot is acknowledged and not here.
            state.amnesia = state.amnesia or Amnesia()
            outcome = [*outcome, *persist(state)]
    elif state.disk_full and partition.records:
        # Nothing is acknowledged by asking for it again; that it was offered says that the leader lives.
        back_off(state, outstanding)
        outcome = []
    elif state.log.holes:
        outcome = handle_repair_answer(state, partition)
    else:
        outcome = _append(state, partition)
        if outcome is not None and state.kept is not None:
            outcome = [*outcome, *drop_download(state, role)]  # the log goes on without it
    if outcome is None:
        back_off(state, outstanding)
        return actions
    if not outcome and role.download is None:
        # Nothing new, and sooner than it could be: a leader that does not hold our Fetch is not asked again at once.
        pause_ms = min(state.jittered_backoff_ms(), state.config.fetch_max_wait_ms)
        state.connections.back_off(outstanding.destination, outstanding.sent_ms + pause_ms)
    note_sign_of_life(state, role)
    role.lost_connection = role.refused = False
    role.pre_votes_lost = 0
    return [*actions, *outcome]


def _read_fetch_response(
    state: ReplicaState, response: FetchResponse
) -> tuple[Answer, FetchResponse.PartitionData | None]:
    if response.error_code != ErrorCode.NONE:
        return Answer(top_level_error=response.error_code, detail=detail_of(response)), None
    topics = response.responses
    if (
        len(topics) != 1
        or topics[0].topic_id != METADATA_TOPIC_ID
        or len(topics[0].partitions) != 1
        or topics[0].partitions[0].partition_index != 0
    ):
        return Answer(top_level_error=ErrorCode.NONE, misplaced=True), None
    partition = topics[0].partitions[0]
    leader = partition.current_leader
    leader_id = None if leader.leader_id < 0 else leader.leader_id
    answer = Answer(
        top_level_error=ErrorCode.NONE,
        error=partition.error_code,
        epoch=leader.leader_epoch,
        leader_id=leader_id,
        endpoints=node_endpoints(state, response.node_endpoints, leader_id),
    )
    return answer, partition


def _truncate(state: ReplicaState, leader_end: OffsetAndEpoch) -> list[Action] | None:
    """Cut our log back to where it may agree with the leader's: the end of their common epoch. Fetch tries again there.

    None: it would drop what is committed, so somebody has lost data, and our copy may be the only one (scenario L3).
    A hole goes from its start, although part of it may be committed: nothing of it is here. The log then ends below the
    high watermark, which was told and does not fall.
    """
    if leader_end.epoch == 0:
        end_offset = min(leader_end.offset, state.log.end_offset)
    else:
        own_end = state.log.end_for(leader_end.epoch)
        end_offset = min(own_end.offset, leader_end.offset) if own_end.epoch == leader_end.epoch else own_end.offset
    if end_offset < max(state.committed_offset, state.log.start_offset) or end_offset >= state.log.end_offset:
        state.refuse(
            "truncation below the high watermark" if end_offset < state.log.end_offset else "empty truncation",
            f"the leader's log ends at {leader_end}, ours at {state.log.end}, committed is {state.committed_offset}",
        )
        return None
    end_offset = truncated_end(state, end_offset)
    log.info("%s: truncating from %s to %d", state.id_text, state.log.end, end_offset)
    drops_hole = any(hole.end_offset > end_offset for hole in state.log.holes)
    state.log.truncate(end_offset)
    state.is_truncating = True
    state.filling = None
    if not drops_hole:
        return [TruncateLog(end_offset)]
    # Nobody can tell any more which of the missing records we have acknowledged, and of which epochs they were: the
    # leader may have some of them, too. Our shorter log does not say that a candidate must have them, so we vote for
    # nobody until all that is committed is here again.
    state.amnesia = state.amnesia or Amnesia()
    return [*persist(state), TruncateLog(end_offset)]


def handle_truncated(state: ReplicaState, event: LogTruncated) -> list[Action]:
    """Only whole batches go: take over where the log really ends. No Fetch names the end before."""
    state.is_truncating = False
    ensure(event.end_offset <= state.log.end_offset, f"truncated to {event.end_offset}, not {state.log.end_offset}")
    least = min(state.committed_offset, state.log.end_offset)  # a hole that was cut off may have been committed
    ensure(event.end_offset >= least, f"truncated below the high watermark {state.committed_offset}")
    if event.end_offset < state.log.end_offset:
        state.log.truncate(event.end_offset)
    return []


def _append(state: ReplicaState, partition: FetchResponse.PartitionData) -> list[Action] | None:
    """Append what fits; None if there were records and none of them did."""
    batches = acceptable_batches(state, partition.records or b"")
    if partition.records and not batches:
        return None
    if not partition.records:
        note_leader_end(state, partition.high_watermark)
    actions: list[Action] = []
    before = state.log.end_offset
    if batches:
        state.log.append(batches)
        actions += [AppendToLog(batches), FlushLog(state.log.log_version)]
    high_watermark, known = min(partition.high_watermark, state.log.end_offset), state.high_watermark
    # A log that has lost a committed hole ends below what was told: it is told once more when all of it is here again.
    if high_watermark >= state.committed_offset and (known is None or high_watermark > known or before < known):
        actions += advance_high_watermark(state, high_watermark)
    return actions


def handle_connection_lost(state: ReplicaState, event: ConnectionLost) -> list[Action]:
    """A lost connection is tried again at once; if the new one is refused, or lost without a word, nobody is there.

    (A dying process may still accept it: its listening socket goes a moment after its connections.) Beyond Kafka, which
    waits for the fetch timeout. A live leader is safe: its other followers refuse the pre-vote.
    """
    role = state.role_state
    if isinstance(role, Resigned) and event.destination in state.voters.ids:
        # It knew that we leave, and may have gone too, or have forgotten it. Asking again tells: at once, if it was an
        # old connection that broke, for nobody should refuse our successor because he has not heard of it.
        role.unacknowledged.add(event.destination)
        if not event.refused:
            state.connections.retry_now(event.destination)
        return []
    if not isinstance(role, Follower) or event.destination != role.leader_id:
        return []
    if not role.lost_connection:
        role.lost_connection = not event.refused
        if role.lost_connection:
            state.connections.retry_now(role.leader_id)
    elif state.is_voter:
        role.refused = True
        role.has_fetched = False
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, state.now_ms + _stagger_ms(state, role))
    return []


def _stagger_ms(state: ReplicaState, role: Follower) -> int:
    """How long to wait before standing for a dead leader: a slot of our own, so that no two stand at once.

    Everybody notices a dead process within a millisecond; without slots they would split the vote.
    """
    slot_ms = state.config.leader_loss_stagger_ms
    survivors = [voter_id for voter_id in state.voters.ids if voter_id != role.leader_id]
    rank = survivors.index(state.key.id) if state.key.id in survivors else len(survivors)
    wait_ms = rank * slot_ms * (PRIORITY_MAX - state.eagerness) // PRIORITY_MAX
    return _pause_ms(state, role) + wait_ms + state.random.randrange(slot_ms // 4 + 1)


def _pause_ms(state: ReplicaState, role: Follower) -> int:
    """How long to keep a leader that only we cannot reach: 0, 1, 3, 7 … slots, up to the fetch timeout.

    The others refuse the pre-vote at once, since they hear the leader. Asking them again as fast as they answer would
    go on for as long as our link is broken.
    """
    slots = (1 << max(min(role.pre_votes_lost, 16) - 1, 0)) - 1
    return min(slots * max(state.config.leader_loss_stagger_ms, 1), state.config.fetch_timeout_ms)


def wants_records(state: ReplicaState) -> bool:
    """Whether draining the accumulator now would move anything.

    While our own flush runs and no voter waits for records, what arrives is better left to form the next batch.
    """
    role = state.role_state
    if not isinstance(role, Leader) or role.transfer is not None:
        return False
    if state.log.flushed_offset == state.log.end_offset:
        return True
    return any(parked.fetcher is not None and parked.fetcher in state.voters for parked in role.parked.values())
