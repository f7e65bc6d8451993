"""Records in an answer that a follower may take (KIP-595, Fetch; KIP-853)."""

from __future__ import annotations

from typing import Any

from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import History, VoterSet
from kraftlib.errors import KraftError
from kraftlib.records.batch import Batch, check_kraft_header, read_batch
from kraftlib.records.control import decode_control
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlib.types import OffsetAndEpoch


def continuing(
    state: ReplicaState, records: Any, after: OffsetAndEpoch, voters: History[VoterSet] | None
) -> list[Batch]:
    """Return the batches, from the first one on, that continue a log which ends `after` there.

    Offsets have no gap, epochs do not fall and are not above the own one, sums fit, and voters change one at a time.
    The batch that begins an epoch may name any.
    """
    taken: list[Batch] = []
    offset, epoch, position = after.offset, after.epoch, 0
    latest: VoterSet | None = None
    """That of the last record which names one, here or in the log; None while there is none."""
    if voters is not None and voters.latest_offset is not None and voters.latest_offset >= 0:
        latest = voters.latest
    is_static = state.log.voters.latest_offset is None
    while position < len(records):
        try:
            batch = read_batch(records, position)
            check_kraft_header(batch)
            if batch.base_offset != offset or batch.epoch < epoch or batch.epoch > state.epoch:
                break
            controls = [decode_control(record) for record in batch.records()] if batch.is_control else []
            if any(isinstance(said, KRaftVersionRecord) and said.kraft_version not in (0, 1) for said in controls):
                break
            sets = [VoterSet.from_record(control) for control in controls if isinstance(control, VotersRecord)]
        except KraftError:
            break
        begins_epoch = any(isinstance(control, LeaderChangeMessage) for control in controls)
        for changed in sets:
            before, latest = latest, changed
            if before is not None and not begins_epoch and _is_more_than_one(before, changed):
                return taken
        is_new = batch.base_offset >= state.log.end_offset
        if controls and is_new and latest is None and is_static and batch.epoch == state.epoch:
            static = sorted(voter.key.id for voter in state.voters)
            if static and _names_others(controls, static):
                break
        taken.append(batch)
        offset, epoch = batch.end_offset, batch.epoch
        position += len(batch.data)
    return taken


def _is_more_than_one(before: VoterSet, after: VoterSet) -> bool:
    """Whether more than one voter comes, or goes."""
    old, new = ({voter.key for voter in voters} for voters in (before, after))
    return max(len(new - old), len(old - new)) > 1


def _names_others(controls: list[Any], static: list[int]) -> bool:
    """Whether the leader says that it counts other voters than the configured ones."""
    return any(
        sorted(voter.voter_id for voter in control.voters) != static
        for control in controls
        if isinstance(control, LeaderChangeMessage)
    )
