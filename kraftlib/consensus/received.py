"""The records and snapshots of a leader that a follower accepts: records that continue its log, and no others.

Kafka's followers look at the checksum only. Ours also want contiguous offsets, epochs that neither fall nor exceed the
own one (scenario L10), voter sets whose majorities meet (KIP-853), a kraft.version that this release supports, and a
leader that counts the same static voters. Beside the LeaderChange of its epoch a voter set may be any: so a log goes on
under other voters, after `kraftlib restore` or `recover`.
"""

from __future__ import annotations

from kraftlib.consensus.extensions.misconfiguration import OTHER_VOTERS, ids_text
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import KraftError, RemoteProtocolError
from kraftlib.records.batch import Batch, check_kraft_header, read_batch
from kraftlib.records.control import check_kraft_version, decode_control
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlib.types import Epoch, Offset, OffsetAndEpoch


def acceptable_batches(state: ReplicaState, records: bytes | memoryview) -> tuple[Batch, ...]:
    """Return the leading batches that continue our log; a batch that does not fit, and all behind it, is dropped."""
    log = state.log
    return _leading_batches(state, records, log.end_offset, log.last_epoch, voters_of_a_record(state))


def read_batches_after(state: ReplicaState, records: bytes | memoryview, after: OffsetAndEpoch) -> tuple[Batch, ...]:
    """Return the leading batches that continue a log which ends at `after`: the records that fill a hole in ours."""
    return _leading_batches(state, records, after.offset, after.epoch, None)


def _leading_batches(
    state: ReplicaState,
    records: bytes | memoryview,
    end_offset: Offset,
    last_epoch: Epoch,
    voters: VoterSet | None,
) -> tuple[Batch, ...]:
    batches: list[Batch] = []
    position, end = 0, len(records)
    while position < end:
        try:
            batch = read_batch(records, position)
            check_kraft_header(batch)
            if batch.is_control:
                voters = _check_control(batch, voters)
        except KraftError as error:
            # The last batch may be cut short by the size limit of a generic log: not worth a word behind whole ones.
            if not batches:
                state.refuse("corrupt batch", str(error))
            break
        if batch.base_offset != end_offset or not last_epoch <= batch.epoch <= state.epoch:
            text = f"base offset {batch.base_offset} and epoch {batch.epoch} do not continue {end_offset}@{last_epoch}"
            state.refuse("foreign batch", f"{text} in epoch {state.epoch}")
            break
        # A record that our log has had was judged when it came, by voters that may be missing now.
        if batch.is_control and voters is None and end_offset >= state.log.end_offset and _counts_others(state, batch):
            break
        batches.append(batch)
        end_offset, last_epoch = batch.last_offset + 1, batch.epoch
        position += len(batch.data)
    return tuple(batches)


def voters_of_a_record(state: ReplicaState) -> VoterSet | None:
    """The voter set that the next one must be a neighbour of; the first record is not compared with anything."""
    offset = state.log.voters.latest_offset
    return None if offset is None or offset < 0 else state.voters


def _check_control(batch: Batch, voters: VoterSet | None) -> VoterSet | None:
    """Check what a control batch says of voters and kraft.version; return the voters behind it, `voters` before it."""
    controls = [decode_control(record) for record in batch.records()]
    begins_epoch = any(isinstance(control, LeaderChangeMessage) for control in controls)
    for control in controls:
        if isinstance(control, VotersRecord):
            changed = VoterSet.from_record(control)
            if voters is not None and not begins_epoch and not changed.is_neighbour_of(voters):
                raise RemoteProtocolError(f"{changed} follows {voters}: more than one voter changed at once")
            voters = changed
        elif isinstance(control, KRaftVersionRecord):
            check_kraft_version(control)
    return voters


def _counts_others(state: ReplicaState, batch: Batch) -> bool:
    """Whether the leader of our epoch names other voters than those of our static list: it would count our Fetches.

    Older epochs may have had another list: `kraftlib recover` begins a quorum with a new one.
    """
    ours = state.static_voters
    if batch.epoch != state.epoch or not ours:
        return False
    for control in map(decode_control, batch.records()):
        if isinstance(control, LeaderChangeMessage):
            theirs = tuple(sorted(voter.voter_id for voter in control.voters))
            if theirs != ours:
                text = f"the leader of epoch {batch.epoch}, replica {control.leader_id}, counts the voters"
                text += f" {ids_text(theirs)}, and we count {ids_text(ours)}: nothing is acknowledged to it"
                state.refuse(OTHER_VOTERS, text, peer=control.leader_id)
                return True
    return False


def refuses_snapshot(state: ReplicaState, snapshot_id: OffsetAndEpoch, *, fills: bool) -> bool:
    """Whether a snapshot that is offered cannot be taken: it is of an epoch that has not begun, or ends before what is
    committed here and does not only fill holes.

    The next start would find a snapshot of a later epoch beside all that was appended since, and let it replace that.
    """
    if snapshot_id.offset < 1 or not 0 <= snapshot_id.epoch <= state.epoch:  # only the bootstrap checkpoint ends at 0
        state.refuse("impossible snapshot", f"{snapshot_id} is offered in epoch {state.epoch}")
    elif not fills and snapshot_id.offset < min(state.committed_offset, state.log.end_offset):
        state.refuse("old snapshot", f"{snapshot_id} is offered, committed here is {state.committed_offset}")
    else:
        return False
    return True
