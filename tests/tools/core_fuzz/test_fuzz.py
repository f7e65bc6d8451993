"""The core fuzzer: one seed is one run, and what it finds names the command that shows it again."""

from __future__ import annotations

import pytest

from kraftlib.consensus import vote
from kraftlib.testing.campaign import Finding, summarize
from kraftlib.testing.violation import InvariantViolation
from tools.core_fuzz.fuzz import fuzz
from tools.core_fuzz.host import CoreHost
from tools.core_fuzz.promises import BrokenPromiseError
from tools.core_fuzz.themes import THEMES
from tools.core_fuzz.world import CoreWorld
from tools.simulate.seeds import run_seed, run_seeds


@pytest.mark.parametrize("theme", THEMES)
def test_a_healthy_core_keeps_every_promise(theme: str) -> None:
    for seed in range(4):
        report = fuzz(seed, theme)

        assert (report.seed, report.profile) == (seed, theme)
        assert report.events > 100
        assert report.pairs


def test_a_seed_is_the_same_run_each_time() -> None:
    steps: list[list[str]] = [[], []]
    reports = [fuzz(3, "core-voters", trace=told.append) for told in steps]

    assert reports[0] == reports[1]
    assert steps[0] == steps[1] != []
    assert fuzz(4, "core-voters").trace_hash != reports[0].trace_hash


def test_a_bug_is_a_finding_with_the_command_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vote, "grants_vote", lambda *_: True)
    found = [result for result in run_seeds(range(10), profile="core-votes") if isinstance(result, Finding)]

    assert "RV1" in {finding.invariant for finding in found}
    assert found[0].replay == f"python3 dev.py simulate --seed {found[0].seed} --profile core-votes"


def test_an_exception_in_the_core_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: CoreWorld) -> None:
        raise KeyError("nothing")

    monkeypatch.setattr(CoreWorld, "step", broken)
    with pytest.raises(InvariantViolation, match=r"I22.*KeyError: .nothing. .test_fuzz\.py"):
        fuzz(1, "core")


def test_what_was_reached_is_summed_up() -> None:
    summary = summarize(run_seeds(range(3), profile="core-disks"))
    plain = summary.to_dict()

    assert plain["pairs_reached"] == len(summary.pairs) == len(plain["pairs"]) > 50
    assert all(name.split()[0].rstrip("?!") for name in summary.pairs)
    assert any(name.startswith("follower FetchResponse records") for name in summary.pairs)


def test_a_run_of_the_core_comes_back_as_a_report() -> None:
    assert not isinstance(run_seed(0, profile="core"), Finding)


def test_a_core_that_breaks_a_promise_as_it_starts_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise BrokenPromiseError("I12", "it speaks too early")

    monkeypatch.setattr(CoreHost, "start", start)

    with pytest.raises(InvariantViolation, match="I12"):
        fuzz(1, "core")
