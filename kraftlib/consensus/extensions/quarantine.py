"""A replica whose state is wrong, until a snapshot of the leader has healed it. (Beyond Kafka.)

`state_digests` finds it. From then on it is as one whose state machine has failed: it votes and replicates, and stands
as a last resort only; a leader hands over. Its snapshots from after the last agreement are set aside: a replica that
loaded one would have a wrong state, too. It asks the leader for a snapshot that ends where its state was found to
differ, or later, and so tells it of the difference; the leader takes one if it has none. That is downloaded like any
other, and the log then begins at its end: the records before it would only lead to the wrong state again. The log
behind it stays, since it was acknowledged.
"""

from __future__ import annotations

from typing import Final

from kraftlib.consensus import actions as act
from kraftlib.consensus.actions import Action, SetSnapshotAside
from kraftlib.consensus.events import StateHealed
from kraftlib.consensus.received import refuses_snapshot
from kraftlib.consensus.roles import Download, Follower, Leader
from kraftlib.consensus.state import Quarantine, ReplicaState, logger
from kraftlib.consensus.transitions import stop_standing
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Offset, OffsetAndEpoch

REASON: Final = "its state differs from that of the majority"


def begin_quarantine(state: ReplicaState, offset: Offset) -> list[Action]:
    """Our state is wrong: nothing of it may be read, sent or written any more."""
    digests = state.digests
    digests.quarantine = Quarantine(offset=offset)
    digests.quarantines += 1
    digests.ask_due_ms = state.now_ms
    state.machine_failed_ms = state.now_ms
    logger.error(
        "%s: QUARANTINED: %s at offset %d, and agreed at offset %d last: it serves no reads, does not lead and writes "
        "no snapshot until a snapshot of the leader has healed it",
        *(state.id_text, REASON, offset, digests.agreed_offset),
    )
    text = f"{REASON} at offset {offset}"
    suspects = [one for one in state.log.snapshots if one.offset > digests.agreed_offset and one != BOOTSTRAP_SNAPSHOT]
    for suspect in suspects:
        state.log.lose_snapshot(suspect)
    aside = [SetSnapshotAside(suspect, text) for suspect in suspects]
    return [act.QuarantineState(offset), *aside, *stop_standing(state, REASON)]


def begin_healing(state: ReplicaState, role: Follower, snapshot_id: OffsetAndEpoch) -> list[Action]:
    """Download a snapshot of the leader, which then takes the place of our log up to its end."""
    if role.download is not None or role.writing_chunk or state.log.holes or snapshot_id in state.log.snapshots:
        return []
    fills = state.log.may_begin_at(snapshot_id)
    if refuses_snapshot(state, snapshot_id, fills=fills):
        return []
    logger.info("%s: fetching snapshot %s to heal its state", state.id_text, snapshot_id)
    role.download = state.kept = Download(snapshot_id=snapshot_id, source_epoch=state.epoch, fills=fills, heals=True)
    return []


def reload_state(state: ReplicaState, snapshot_id: OffsetAndEpoch) -> list[Action]:
    """A snapshot of the leader is stored: earlier hashes are forgotten, since the state machine may load it.

    In quarantine, load it if it ends late enough.
    """
    quarantine = state.digests.quarantine
    state.digests.own.clear()
    state.digests.replaced_at = snapshot_id.offset
    if quarantine is None or snapshot_id.offset < quarantine.offset:
        return []
    quarantine.is_loading = True
    return [act.ReloadState(snapshot_id)]


def handle_state_healed(state: ReplicaState, event: StateHealed) -> list[Action]:
    """The state was replaced by that of the snapshot: this replica may lead again."""
    logger.warning("%s: its state is replaced by that of snapshot %s", state.id_text, event.snapshot_id)
    state.digests.quarantine, state.machine_failed_ms = None, None
    state.last_resorts = 0
    state.digests.own.clear()
    return []


def offer(state: ReplicaState, snapshot_from: Offset, *, pause_ms: int) -> tuple[OffsetAndEpoch | None, list[Action]]:
    """Return our newest snapshot, if we lead and it ends late enough; else take one now, at most once a pause."""
    digests, newest = state.digests, max(state.log.snapshots, default=None)
    leads = isinstance(state.role_state, Leader) and state.machine_failed_ms is None
    if not leads or not 0 < snapshot_from <= state.log.end_offset or not digests.own:
        return None, []
    if newest is not None and newest.offset >= snapshot_from:
        return newest, []
    if digests.snapshot_taken_ms is not None and state.now_ms < digests.snapshot_taken_ms + pause_ms:
        return None, []
    digests.snapshot_taken_ms = state.now_ms
    return None, [act.TakeSnapshot()]
