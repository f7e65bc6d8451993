"""The rules of the log and of Fetch bite: what they are about is broken, and one of them says so within a few seeds."""

from __future__ import annotations

import pytest

from kraftlib.testing.campaign import Finding, run_seed
from tests.simulation.hunt import coming_to_an_end
from tests.simulation.mutation import Edit, Mutant, planted

SEEDS_MAX = 12
PROFILES = ("core-disks", "core-downloads", "core")


def bug(rule: str, where: str, old: str, new: str) -> Mutant:
    """A bug that breaks this rule; another one may see it first."""
    return Mutant(f"{rule}-{where.rpartition('.')[2]}", "", (Edit(f"consensus.{where}", old, new),))


BUGS = [
    bug("RF1", "log_view.LogView.truncate", "self.log_version += 1", "pass"),
    bug("RF3", "replication._append", ", FlushLog(state.log.log_version)]", "]"),
    bug("RF4", "snapshotting.handle_retention_due", "min(state.committed_offset, state.log.end_offset)", "-1"),
    bug("RF11", "log_view.LogView.validate", "end.epoch != epoch or end.offset < offset", "end.epoch != epoch"),
    bug("RF12", "answers.fetch", "log_start_offset=state.log.start_offset", "log_start_offset=0"),
    bug("RF13", "replication._send_records", "min(max(request.max_bytes, 1), MAX_BYTES_LIMIT)", "MAX_BYTES_LIMIT"),
    bug("RF14", "replication.expire_parked", "parked.deadline_ms <= state.now_ms", "True"),
    bug("RF15", "progress.update_high_watermark", "state.log.flushed_offset", "state.log.end_offset"),
    bug("RF20", "replication.may_fetch", "state.log.flushed_offset == state.log.end_offset", "True"),
    bug("RF21", "replication._fetch_request", "-1 if state.high_watermark is None else state.high_watermark", "-1"),
    bug("RF22", "repairing.is_anonymous", "asks_first(state) or ", ""),
    bug("RF26", "replication._truncate", "min(own_end.offset, leader_end.offset)", "own_end.offset"),
    bug("RF27", "replication._append", "min(partition.high_watermark, state.log.end_offset)", "state.log.end_offset"),
    bug("RF28", "connections.Connections.failed", "now_ms + min(", "0 * min("),
    bug(
        "RF30",
        "snapshotting.handle_fetch_snapshot",
        "min(max(request.max_bytes, 0)",
        "1 + min(max(request.max_bytes, 0)",
    ),
    bug("RF34", "downloading.handle_fetch_snapshot_response", " or not len(data)", " or len(data)"),
    bug("RF36", "downloading._use", "if download.fills else", "if not download.fills else"),
]


@pytest.mark.parametrize("mutant", BUGS, ids=lambda mutant: mutant.name)
def test_a_rule_finds_what_breaks_it(mutant: Mutant) -> None:
    with planted(mutant):
        for number in range(SEEDS_MAX):
            with coming_to_an_end():
                found = run_seed(500 + number, profile=PROFILES[number % len(PROFILES)])
            if isinstance(found, Finding):
                assert found.invariant.startswith("RF"), found
                return
    pytest.fail(f"{mutant.name} is not found")
