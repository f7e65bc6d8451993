"""Many seeds, summed up."""

from __future__ import annotations

import json
import logging

import pytest

from kraftlib.errors import ConfigError
from kraftlib.testing import campaign
from kraftlib.testing.campaign import Finding, Summary, quiet, run_seed, run_seeds, summarize
from kraftlib.testing.simulation import Report
from kraftlib.testing.violation import InvariantViolation


def test_seeds_come_back_as_reports_and_are_summed_up() -> None:
    summary = summarize(run_seeds(range(3), profile="calm", trouble_ms=200))

    assert (summary.seeds, summary.findings, summary.elections) == (3, [], 3)
    assert summary.events_per_second > 0
    assert json.loads(json.dumps(summary.to_dict()))["violations"] == 0


def test_processes_find_what_one_process_finds() -> None:
    def hashes(jobs: int) -> dict[int, str]:
        results = run_seeds(range(4), profile="calm", jobs=jobs, trouble_ms=100)
        return {result.seed: result.trace_hash for result in results}

    assert hashes(2) == hashes(1)


def test_a_violation_is_a_finding_with_the_command_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, profile: str, **_: object) -> Report:
        raise InvariantViolation("I4", "what", seed=seed, time_ms=9, replay="again", profile=profile, trace_hash="ff")

    monkeypatch.setattr(campaign, "simulate", broken)
    finding = run_seed(8, profile="swarm")
    summary = Summary()
    summary.add(finding)

    assert isinstance(finding, Finding)
    assert (finding.seed, finding.invariant, finding.replay) == (8, "I4", "again")
    assert str(finding) == "seed 8: I4 is violated at 9 ms: what"
    assert summary.to_dict()["violations"] == 1


def test_a_run_that_breaks_is_a_finding_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, profile: str, **_: object) -> Report:
        raise KeyError(seed)

    monkeypatch.setattr(campaign, "simulate", broken)
    finding = run_seed(8, profile="swarm")

    assert isinstance(finding, Finding)
    assert (finding.invariant, finding.replay) == ("CRASH", "kraftlib simulate --seed 8")
    assert finding.what.startswith("KeyError: 8 (test_campaign.py, line ")
    with pytest.raises(ConfigError, match="there is no profile"):
        run_seed(8, profile="none")


def test_replicas_log_nothing_while_it_is_quiet() -> None:
    logger = logging.getLogger("kraftlib")
    before = logger.level
    with quiet():
        assert not logging.getLogger("kraftlib.consensus").isEnabledFor(logging.CRITICAL)

    assert logger.level == before
