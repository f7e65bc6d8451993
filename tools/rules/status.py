"""RQ1: `Replica.status()` is a picture of this moment: it says what the replica is and has."""

from __future__ import annotations

from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Candidate, Leader, Resigned, Role
from kraftlib.testing.judge import BrokenRuleError


def judge_status(core: Replica) -> None:
    """Compare. Raises: BrokenRuleError."""
    state, said = core.state, core.status()
    role, log, digests = state.role_state, state.log, state.digests
    leads, quarantine = isinstance(role, Leader), digests.quarantine
    leader_id = state.key.id if leads else None
    voted_key = state.key if isinstance(role, Candidate) else None
    if not isinstance(role, Leader | Candidate | Resigned):
        leader_id, voted_key = role.leader_id, role.voted_key
    pending = isinstance(role, Leader) and (role.change is not None or role.control_waits)
    abstains = bool(log.holes) or state.amnesia is not None or state.machine_failed_ms is not None
    expected = {
        "key": state.key,
        "cluster_id": state.cluster_id,
        "role": Role(role.role),
        "is_voter": state.key in log.voters.latest,
        "epoch": state.epoch,
        "leader_id": leader_id,
        "voted_key": voted_key,
        "high_watermark": state.high_watermark,
        "log_start_offset": log.start_offset,
        "log_end_offset": log.end_offset,
        "log_end_epoch": log.last_epoch,
        "flushed_offset": log.flushed_offset,
        "kraft_version": log.kraft_version.latest,
        "voters": log.voters.latest,
        "voter_change_pending": pending,
        "refused": state.refused,
        "disk_full": state.disk_full,
        "quarantined_at": None if quarantine is None else quarantine.offset,
        "differing": tuple(sorted(digests.differing)),
        "quarantines": digests.quarantines,
        "undecided_offset": digests.undecided_offset,
        "agreed_offset": digests.agreed_offset,
    }
    for name, value in expected.items():
        if getattr(said, name) != value:
            raise BrokenRuleError("RQ1", f"the status of {state.id_text} has {name} {getattr(said, name)}, not {value}")
    if (said.abstains is not None) is not abstains and state.epoch < 2**31 - 2:
        raise BrokenRuleError("RQ1", f"{state.id_text} abstains: {abstains}, and its status says {said.abstains}")
    for rows, known in (
        (said.voter_progress, role.progress.values() if isinstance(role, Leader) else ()),
        (said.observer_progress, role.observers.values() if isinstance(role, Leader) else ()),
    ):
        told = [(row.key, row.end_offset, row.last_fetch_ms, row.last_caught_up_ms) for row in rows]
        wanted = [(one.key, one.end_offset, one.last_fetch_ms, one.last_caught_up_ms) for one in known]
        if told != wanted:
            raise BrokenRuleError("RQ1", f"the status of {state.id_text} has the progress {told}, not {wanted}")
