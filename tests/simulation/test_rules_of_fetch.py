"""The rules of the log and of Fetch bite: what they are about is broken, and one of them says so within a few seeds."""

from __future__ import annotations

import pytest

from kraftlib.testing.campaign import Finding
from tests.simulation.hunt import coming_to_an_end
from tests.simulation.mutation import Edit, Mutant, planted
from tools.simulate.seeds import run_seed

SEEDS_MAX = 12
PROFILES = ("core-disks", "core-downloads", "core")


def bug(rule: str, where: str, old: str, new: str) -> Mutant:
    """A bug that breaks this rule; another one may see it first."""
    return Mutant(f"{rule}-{where.rpartition('.')[2]}", "", (Edit(f"consensus.{where}", old, new),))


BUGS = [
    bug("RF1", "log_view.LogView.truncate", "self.log_version += 1", "pass"),
    bug("RF3", "fetch_follower._append", ", FlushLog(state.log.log_version)]", "]"),
    bug("RF4", "snapshots.handle_retention_due", "min(state.committed_offset, state.log.end_offset)", "-1"),
    bug("RF11", "log_view.LogView.validate", "end.epoch != epoch or end.offset < offset", "end.epoch != epoch"),
    bug("RF12", "responses.fetch", "log_start_offset=state.log.start_offset", "log_start_offset=0"),
    bug("RF13", "fetch_leader.answer_max_bytes", "min(max(request.max_bytes, 1), MAX_BYTES_LIMIT)", "MAX_BYTES_LIMIT"),
    bug("RF14", "fetch_leader.expire_parked", "parked.deadline_ms <= state.now_ms", "True"),
    bug("RF15", "fetch_leader.update_high_watermark", "state.log.flushed_offset", "state.log.end_offset"),
    bug("RF20", "fetch_follower.may_fetch", "state.log.flushed_offset == state.log.end_offset", "True"),
    bug("RF21", "fetch_follower._fetch_request", "-1 if state.high_watermark is None else state.high_watermark", "-1"),
    bug("RF22", "repair.is_anonymous", "asks_first(state) or ", ""),
    bug("RF26", "fetch_follower._truncate", "min(own_end.offset, leader_end.offset)", "own_end.offset"),
    bug(
        "RF27", "fetch_follower._append", "min(partition.high_watermark, state.log.end_offset)", "state.log.end_offset"
    ),
    bug("RF28", "outstanding.OutstandingRequests.failed", "now_ms + min(", "0 * min("),
    bug(
        "RF30",
        "fetch_snapshot.handle_fetch_snapshot",
        "min(max(request.max_bytes, 0)",
        "1 + min(max(request.max_bytes, 0)",
    ),
    bug("RF34", "fetch_snapshot._is_next_chunk", "length > 0 and", "length == 0 and"),
    bug("RF47", "fetch_follower._truncate", "state.refuse(reason, text)", "pass"),
    bug("RF47", "received._leading_batches", 'state.refuse("foreign batch", ', '(lambda *_: None)("", '),
    bug("RF47", "received.refuses_snapshot", 'state.refuse("impossible snapshot", ', '(lambda *_: None)("", '),
    bug("RF48", "extensions.upstreams.leave", ", peer=destination)", ")"),
    bug("RF48", "extensions.upstreams.leave", 'state.refuse("upstream left", ', '(lambda *_, **__: None)("", '),
    bug("RF36", "fetch_snapshot._use", "if download.fills else", "if not download.fills else"),
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
