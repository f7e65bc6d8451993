"""Fetch, the leader's side: it answers with records, and counts how far each replica is.

The offset of a valid Fetch is how far a replica has flushed (KIP-595, Fetch): the leader keeps one `Progress` for each.
An offset that a majority of the voters has flushed is committed, and stays so: the high watermark advances to it.

    append -> answer parked Fetches with the bytes -> flush; a majority's offsets -> high watermark
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlib.codec.declared import Message
from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action, AdvanceHighWatermark, AppendToLog, FlushLog, SendRecords, SendResponse
from kraftlib.consensus.deadlines import note_voter, restart_check_quorum
from kraftlib.consensus.events import RecordsSubmitted, RequestReceived
from kraftlib.consensus.log_view import Diverging, NeedsSnapshot, Valid
from kraftlib.consensus.received import voters_of_a_record
from kraftlib.consensus.responses import cluster_error, leader_only_error, only_partition, refuse_request
from kraftlib.consensus.roles import Leader, ParkedFetch, Progress
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import majority_offset
from kraftlib.errors import InvariantError, ensure
from kraftlib.types import METADATA_TOPIC_ID, Offset, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse

MAX_BYTES_LIMIT = 8 * 1024 * 1024
"""The limit of one answer, even if a Fetch asks for more; one batch is always sent."""

FETCH_SERVED_FROM = 13
"""Below, the topic comes by name and Kafka's leader finds no topic id (KIP-595, Fetch)."""

HIGH_WATERMARK_TOLD_FROM = 18
"""Below, a Fetch does not say which high watermark its sender knows (KIP-1166)."""

COMMIT_WAIT_MS = 10
"""The time for which a round of observers (`observer_rounds`) waits for the commit of the record that asks for it."""

HIGH_WATERMARK_NEWS_DELAY_MS = 2
"""The time for which a response that would only tell a new high watermark (KIP-1166) waits for records to go with it.
A caller that appends again as soon as its last record is committed then needs one round trip per commit, not two."""

PARKED_MAX_MS = 60_000
"""The longest time for which a Fetch is parked, even if it asks for more: the connection over which it came may be gone
long before."""

OBSERVERS_MAX = 1_000
"""The number of observers that are remembered, those that fetched last: a client that changes its id each time costs no
more."""

FULL_DISK_MAX_BYTES = 1
"""The limit in the Fetch of a replica whose disk is full: nothing is taken, but an answer says that the leader
lives."""

WENT_BACK = "a voter went back"
"""The reason by which `ReplicaState.refused` counts voters that fetch from before an offset they had acknowledged."""


def handle_fetch(state: ReplicaState, event: RequestReceived[FetchRequest]) -> list[Action]:
    """Answer a Fetch: with records, a divergence, a snapshot or an error at once; with nothing only after a while."""
    request = event.request
    is_ours = request.cluster_id == state.cluster_id
    error = ErrorCode.NONE if is_ours else cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse_request(state, event, error)
    partition = only_partition(request.topics, "topic_id", "partition", wanted=METADATA_TOPIC_ID)
    if event.version < FETCH_SERVED_FROM or partition is None:
        return refuse_request(state, event, ErrorCode.INVALID_REQUEST)
    is_negative = min(request.max_wait_ms, partition.fetch_offset, partition.last_fetched_epoch) < 0
    if is_negative or partition.last_fetched_epoch > partition.current_leader_epoch:
        return _fetch_error(state, event, ErrorCode.INVALID_REQUEST)
    role = state.role_state
    is_answered = partition.current_leader_epoch == state.epoch and state.shutdown_deadline_ms is None
    if not is_answered or not isinstance(role, Leader):
        return _fetch_error(state, event, leader_only_error(state, partition.current_leader_epoch))
    fetcher = _fetcher(role, request, partition)
    if fetcher is not None and fetcher.id == state.key.id:
        state.refuse("our own id", f"a Fetch of replica {fetcher}, and we are {state.key}")
        return _fetch_error(state, event, ErrorCode.UNKNOWN_SERVER_ERROR)

    if not state.log.is_amid_latest_epoch(partition.fetch_offset, partition.last_fetched_epoch):
        judgement = judge_fetch(state, partition.fetch_offset, partition.last_fetched_epoch)
        if not isinstance(judgement, Valid):
            response = responses.fetch(state, judgement=judgement, version=event.version)
            return [SendResponse(event.request_id, response)]
    kept_up = bool(role.observers) and has_kept_up(role, fetcher, partition.fetch_offset)
    known_high_watermark = _known_high_watermark(state, role, event, partition, fetcher)
    actions: list[Action] = []
    if fetcher is not None:
        actions = record_progress(
            state,
            role,
            fetcher,
            partition.fetch_offset,
            is_proven=not event.of_observer,
            has_space=request.max_bytes > FULL_DISK_MAX_BYTES,
        )
    waits = kept_up and request.max_wait_ms > 0 and is_told_in_rounds(state, role, fetcher)
    if partition.fetch_offset < state.log.end_offset and may_send(state, fetcher) and not waits:
        response = responses.fetch(state, version=event.version)
        return [*actions, SendRecords(event.request_id, response, partition.fetch_offset, answer_max_bytes(request))]
    if request.max_wait_ms == 0:
        return [*actions, SendResponse(event.request_id, responses.fetch(state, version=event.version))]
    _park(state, role, event, partition, fetcher, known_high_watermark)
    return actions


def _known_high_watermark(
    state: ReplicaState,
    role: Leader,
    event: RequestReceived[FetchRequest],
    partition: FetchRequest.FetchPartition,
    fetcher: ReplicaKey | None,
) -> Offset:
    """Return the high watermark that the sender of a Fetch knows, before the Fetch is noted as its progress.

    An older one does not say. If it has just got records, they may have left before they were committed. Parked as
    one that knows all, it would hear of their commit only when its wait is over, half a second later with Kafka's.
    """
    if event.version >= HIGH_WATERMARK_TOLD_FROM or fetcher is None:
        return partition.high_watermark
    progress = role.progress.get(fetcher.id) if fetcher in state.voters else role.observers.get(fetcher)
    is_where_it_was = progress is not None and progress.end_offset == partition.fetch_offset
    return partition.high_watermark if is_where_it_was else partition.fetch_offset - 1


def _park(
    state: ReplicaState,
    role: Leader,
    event: RequestReceived[FetchRequest],
    partition: FetchRequest.FetchPartition,
    fetcher: ReplicaKey | None,
    known_high_watermark: Offset,
) -> None:
    """Keep a Fetch that there is nothing to answer with; for a moment only, where it lacks a new high watermark."""
    request = event.request
    has_news = state.high_watermark is not None and known_high_watermark < state.high_watermark
    in_rounds = bool(role.observers) and is_told_in_rounds(state, role, fetcher)
    delay_ms = HIGH_WATERMARK_NEWS_DELAY_MS if has_news and not in_rounds else PARKED_MAX_MS
    parked = ParkedFetch(
        request_id=event.request_id,
        request=request,
        version=event.version,
        fetch_offset=partition.fetch_offset,
        high_watermark=min(known_high_watermark, -1 if state.high_watermark is None else state.high_watermark),
        deadline_ms=state.now_ms + min(request.max_wait_ms, delay_ms),
        fetcher=fetcher,
    )
    if in_rounds:
        role.waiting.add(parked)
        if has_news or partition.fetch_offset < state.log.end_offset:
            role.waiting.ask_for_round(state.now_ms + HIGH_WATERMARK_NEWS_DELAY_MS)
    else:
        _keep(role, parked)


def _keep(role: Leader, parked: ParkedFetch) -> None:
    role.parked[parked.request_id] = parked
    if role.parked_deadline_ms is None or parked.deadline_ms < role.parked_deadline_ms:
        role.parked_deadline_ms = parked.deadline_ms


def _fetcher(role: Leader, request: FetchRequest, partition: FetchRequest.FetchPartition) -> ReplicaKey | None:
    """Return the replica that fetches; None for a tool that does not say, which is served and not tracked.

    The Fetches of one connection name a directory by one object, so the key of the last one is used again.
    """
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    if replica_id < 0:
        return None
    progress = role.progress.get(replica_id)
    if progress is None:
        return ReplicaKey.of(replica_id, partition.replica_directory_id)
    last = progress.fetches_as
    if last is None or last.directory_id is not partition.replica_directory_id:
        last = progress.fetches_as = ReplicaKey.of(replica_id, partition.replica_directory_id)
    return last


def _fetch_error(state: ReplicaState, event: RequestReceived[Message], error: ErrorCode) -> list[Action]:
    return [SendResponse(event.request_id, responses.fetch(state, error=error, version=event.version))]


def answer_max_bytes(request: FetchRequest) -> int:
    """Return how many bytes of records the answer may have; one batch goes always."""
    return min(max(request.max_bytes, 1), MAX_BYTES_LIMIT)


def judge_fetch(state: ReplicaState, offset: Offset, epoch: int) -> Valid | Diverging | NeedsSnapshot:
    """Judge where a follower stands. An empty one starts from the snapshot even where the log reaches back to 0."""
    if offset == 0 and (latest := state.log.latest_snapshot) is not None:
        return NeedsSnapshot(latest)
    return state.log.validate(offset, epoch)


def may_send(state: ReplicaState, fetcher: ReplicaKey | None) -> bool:
    """Whether `fetcher` may have records now. They leave before our own flush: until Flushed says otherwise, our copy
    does not count towards the majority (Raft thesis, 10.2.1).

    Until a change of the voters is committed, it goes to the voters that it names alone. A voter that it removes would
    refuse its vote to the shorter logs of the others, who need it as long as they have not seen the change, and would
    not stand: if the leader dies then, no voter could be elected. A Fetch without a replica id is always served: it is
    that of a replica without a vote to refuse (see `repair`).
    """
    return state.are_voters_committed or fetcher is None or fetcher in state.voters


def has_kept_up(role: Leader, fetcher: ReplicaKey | None, offset: Offset) -> bool:
    """Whether an observer that fetches from `offset` has all that there was at its Fetch before this one."""
    known = None if fetcher is None else role.observers.get(fetcher)
    return known is not None and offset >= known.leader_end_offset


def is_told_in_rounds(state: ReplicaState, role: Leader, fetcher: ReplicaKey | None) -> bool:
    """Whether `fetcher` is one of too many observers to answer each at once (`observer_rounds`)."""
    is_observer = fetcher is not None and fetcher not in state.voters
    return is_observer and len(role.observers) > state.config.observers_at_once


def answer_parked(state: ReplicaState, role: Leader) -> list[Action]:
    """Answer the Fetches that wait below the end, if records may leave. The content of an answer is built once per
    version."""
    if not role.parked:
        return []
    end_offset, start_offset = state.log.end_offset, state.log.start_offset
    actions: list[Action] = []
    made: dict[int, FetchResponse] = {}
    are_voters_committed = state.are_voters_committed
    for parked in list(role.parked.values()):
        if parked.fetch_offset >= end_offset or not (are_voters_committed or may_send(state, parked.fetcher)):
            continue
        del role.parked[parked.request_id]
        response = made.get(parked.version)
        if response is None:
            response = made[parked.version] = responses.fetch(state, version=parked.version)
        if parked.fetch_offset >= start_offset:
            max_bytes = answer_max_bytes(parked.request)
            actions.append(SendRecords(parked.request_id, response, parked.fetch_offset, max_bytes))
        else:  # it asks for a snapshot next
            actions.append(SendResponse(parked.request_id, response))
    return actions


def expire_parked(state: ReplicaState, role: Leader) -> list[Action]:
    """Answer the Fetches whose time is up: without records, but with the high watermark of now.

    With records, if they waited for the commit of a change of the voters, and that is the news.
    """
    actions = answer_parked(state, role)
    late = [parked for parked in role.parked.values() if parked.deadline_ms <= state.now_ms]
    for parked in late:
        del role.parked[parked.request_id]
    role.parked_deadline_ms = min((parked.deadline_ms for parked in role.parked.values()), default=None)
    actions += [SendResponse(parked.request_id, responses.fetch(state, version=parked.version)) for parked in late]
    return actions


def handle_records(state: ReplicaState, event: RecordsSubmitted) -> list[Action]:
    """Take batches as leader: store them, offer them to waiting followers, then make them durable."""
    role = state.role_state
    if not isinstance(role, Leader) or event.epoch != state.epoch:
        raise InvariantError(f"{state.id_text} is {state.role}, it cannot append in epoch {event.epoch}")
    before = voters_of_a_record(state)
    if state.log.append(event.batches):
        changed = before is None or state.voters.is_neighbour_of(before)
        ensure(changed, f"{state.voters} follows {before}: more than one voter would change at once")
        role.control_waits = False
        follow_voters(state, role)
    if role.waiting.fetches:
        role.waiting.ask_for_round(state.now_ms + COMMIT_WAIT_MS)
    return [AppendToLog(event.batches), *answer_parked(state, role), FlushLog(state.log.log_version)]


def wants_records(state: ReplicaState) -> bool:
    """Whether draining the accumulator now would move anything.

    While our own flush runs and no voter waits for records, newly arrived ones are better left to form the next batch.
    """
    role = state.role_state
    if not isinstance(role, Leader) or role.transfer is not None:
        return False
    if state.log.flushed_offset == state.log.end_offset:
        return True
    return any(parked.fetcher is not None and parked.fetcher in state.voters for parked in role.parked.values())


# --- how far the others are -------------------------------------------------------------------------------------------


def record_progress(
    state: ReplicaState,
    role: Leader,
    key: ReplicaKey,
    offset: Offset,
    *,
    is_proven: bool = True,
    has_space: bool = True,
) -> list[Action]:
    """A valid Fetch at `offset`: everything below is flushed at that replica."""
    if key in state.log.voters.latest:
        progress = role.progress.get(key.id)
        if progress is None:
            raise InvariantError(f"voter {key} has no progress")
        if offset < progress.end_offset:
            # No replica forgets within an epoch what its leader has seen it hold, unless records are missing on its
            # disk, an older copy of the disk is in its place (scenario S14), or two run with one identity (M13).
            state.refuse(WENT_BACK, f"voter {key} fetches from {offset} after {progress.end_offset}")
        moved = offset != progress.end_offset
        progress.has_space = has_space
        progress.fetched(offset, state.log.end_offset, state.now_ms)
        note_voter(state, role, key.id)
        return update_high_watermark(state, role) if moved else []
    observer = role.observers.get(key)
    if observer is not None and observer.is_proven and not is_proven:
        return []  # the replica itself was here, and this is another one
    if observer is None or observer.is_proven is not is_proven:
        role.observers.pop(key, None)
        if len(role.observers) >= OBSERVERS_MAX:
            del role.observers[min(role.observers, key=lambda known: role.observers[known].last_fetch_ms or 0)]
        observer = role.observers[key] = Progress(key=key)
        observer.is_proven = is_proven
    observer.fetched(offset, state.log.end_offset, state.now_ms)
    return []


def update_high_watermark(state: ReplicaState, role: Leader) -> list[Action]:
    """Advance to the offset that a majority has flushed, our own copy included once it is flushed.

    Only beyond the start of the own epoch: a record of an older one is committed by the first of ours (Raft, figure 8).
    """
    offsets = [state.log.flushed_offset] if state.is_voter else []
    for progress in role.progress.values():
        offsets.append(progress.end_offset)
    offset = majority_offset(offsets)
    known = state.high_watermark
    if offset <= role.epoch_start_offset or (known is not None and offset <= known):
        return []
    for parked in role.parked.values():
        parked.deadline_ms = min(parked.deadline_ms, state.now_ms + HIGH_WATERMARK_NEWS_DELAY_MS)
        role.parked_deadline_ms = min(role.parked_deadline_ms or parked.deadline_ms, parked.deadline_ms)
    if role.waiting.fetches:
        role.waiting.ask_for_round(state.now_ms + HIGH_WATERMARK_NEWS_DELAY_MS)
    role.stalled_since_ms = None
    state.setbacks = 0
    return advance_high_watermark(state, offset)


def advance_high_watermark(state: ReplicaState, offset: Offset) -> list[Action]:
    """Everything below `offset` is committed, for good."""
    if not offset <= state.log.end_offset:
        raise InvariantError(f"high watermark {offset} beyond the log end {state.log.end_offset}")
    state.high_watermark = offset
    state.stalls = 0
    state.committed_offset = max(state.committed_offset, offset)
    return [AdvanceHighWatermark(offset)]


def follow_voters(state: ReplicaState, role: Leader) -> None:
    """Move progress between voters and observers as the new voter set says; the progress of a replica is kept."""
    observers = [each for each in role.observers.values() if each.is_proven or each.key not in state.voters]
    known = {progress.key: progress for progress in (*role.progress.values(), *observers)}
    was_alone = not role.progress
    remote = {voter.key.id: voter.key for voter in state.voters.others(state.key)}
    role.progress = {replica_id: _progress_of(key, known, role.progress) for replica_id, key in remote.items()}
    kept = {id(progress) for progress in role.progress.values()}
    # A voter that is removed before it was heard of leaves nothing behind: its Fetches begin as those of any observer.
    heard = {key: progress for key, progress in known.items() if progress.heard_ms is not None}
    role.observers = {key: progress for key, progress in heard.items() if id(progress) not in kept}
    role.fetched_voters &= set(remote)
    for parked in [each for each in role.waiting.fetches.values() if each.fetcher and each.fetcher in state.voters]:
        del role.waiting.fetches[parked.request_id]  # a voter waits for no round
        parked.deadline_ms = min(parked.deadline_ms, state.now_ms + HIGH_WATERMARK_NEWS_DELAY_MS)
        _keep(role, parked)
    if was_alone and remote:
        # A leader that was the only voter starts its check-quorum timer when the first other voter is added.
        restart_check_quorum(state, role)


def _progress_of(
    key: ReplicaKey, known: Mapping[ReplicaKey, Progress], voters: Mapping[ReplicaId, Progress]
) -> Progress:
    """Return what is known of this very key, or of the voter whose directory id the log now names; else nothing.

    The disk behind an observer without a directory id is unknown: its progress does not count.
    """
    progress, voter = known.get(key), voters.get(key.id)
    if progress is not None:
        return progress
    if voter is not None and (key.matches(voter.key) or voter.key.matches(key)):
        voter.key = key
        return voter
    return Progress(key=key)
