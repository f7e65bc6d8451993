"""What CI runs: other seeds each time, all profiles, and figures that must be reached."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from pathlib import Path

import pytest

from kraftlib.testing.campaign import Finding, Summary
from kraftlib.testing.profiles import PROFILES
from tests.simulation import campaign
from tests.simulation.campaign import (
    SHARES,
    Wanted,
    core_round,
    in_time,
    main,
    next_round,
    rotating,
    run_task,
    summed,
    tasks,
)
from tests.simulation.ledger import PAGE, Row, rows_in, totals, with_rows
from tests.simulation.mutants import MUTANTS
from tools.core_fuzz.themes import THEMES


def enough() -> Summary:
    return Summary(
        seeds=2_000,
        simulated_ms=20 * 3_600_000,
        elections=1_000,
        acknowledged=20_000,
        faults=Counter({str(n): 3_000 for n in range(25)}),
    )


def test_every_figure_that_is_missed_is_named() -> None:
    total = enough()
    assert Wanted().missed(total) == []
    total.seeds -= 1
    total.simulated_ms -= 1
    total.faults = Counter(kill=59_999)
    total.elections -= 1
    total.acknowledged -= 1
    total.findings.append(
        Finding(seed=1, profile="p", invariant="I1", what="w", time_ms=1, replay="r", trace_hash="h")
    )  # fmt: skip
    assert Wanted().missed(total) == [
        "1 violations", "1999 of 2000 seeds", "20.0 of 20.0 simulated hours", "59999 of 60000 faults",
        "1 of 25 kinds of faults", "999 of 1000 elections", "19999 of 20000 acknowledged records",
    ]  # fmt: skip


def test_smaller_figures_are_in_proportion() -> None:
    assert Wanted().times(0.5) == Wanted(
        seeds=1_000, core_seeds=750, hours=10.0, faults=30_000, elections=500, acknowledged=10_000
    )


def test_the_seeds_are_distinct_and_every_profile_has_its_share_from_the_beginning_on() -> None:
    planned = tasks(Wanted(), 77)

    assert len(set(planned)) == len(planned) >= 2_000
    assert sum(SHARES.values()) == pytest.approx(1.0)
    assert set(SHARES) <= set(PROFILES)
    assert {profile for profile, _ in planned[:100]} == set(SHARES)
    assert min(seed for _, seed in planned) == 77


def test_every_bug_comes_round() -> None:
    seen = {mutant.name for turn in range(100) for mutant in rotating(turn * 100_000)}

    assert seen == {mutant.name for mutant in MUTANTS if not mutant.equivalent and not mutant.slow}


def test_a_small_campaign_reaches_its_figures_or_says_which_it_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "fuzz_the_core", lambda *_: {"core": Summary(seeds=1_500, pairs=Counter(rare=1))})
    monkeypatch.setattr(campaign, "simulate_all", lambda *_: {"swarm": enough()})
    assert main(["--first", "5", "--no-mutants"]) == 0
    shown = capsys.readouterr().out
    assert "the core alone: 1500 seeds (core 1500)" in shown
    assert "1 pairs of situation, event and answer; reached least:\n       1  rare\n" in shown
    assert "the same again: dev.py campaign --first 5 --seeds 2000\n" in shown
    assert "2000 seeds, 20.0 simulated cluster-hours, 75000 faults of 25 kinds, 0 violations" in shown
    monkeypatch.setattr(campaign, "simulate_all", lambda *_: {"swarm": Summary(seeds=2_000)})
    assert main(["--first", "5", "--no-mutants"]) == 1
    assert "MISSED: 0.0 of 20.0 simulated hours" in capsys.readouterr().out


def test_the_core_fuzzer_looks_where_rare_pairs_are_reached() -> None:
    first = core_round({}, 7, 50)
    assert {theme for theme, _ in first} == set(THEMES)
    sums = {theme: Summary(seeds=10, pairs=Counter(common=1_000)) for theme in THEMES}
    sums["core-disks"].pairs.update(rare=1, rarer=1)
    then = Counter(theme for theme, _ in core_round(sums, 7, 50))

    assert then["core-disks"] > 20 > 6 > min(then.values()) > 0
    assert min(seed for _, seed in core_round(sums, 7, 50)) == 17  # no seed comes twice


def test_the_full_simulator_goes_where_rare_pairs_are_reached() -> None:
    sums = {profile: Summary(seeds=10, pairs=Counter(common=1_000)) for profile in SHARES}
    sums["disks"].pairs.update(rare=1, rarer=1)
    then = next_round(SHARES, sums, 7, 60)

    assert Counter(profile for profile, _ in then).most_common(1)[0][0] == "disks"
    assert {profile for profile, _ in then} == set(SHARES)
    assert min(seed for _, seed in then) == 17  # no seed comes twice


def test_what_breaks_in_the_core_alone_is_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding(seed=1, profile="core", invariant="I1", what="w", time_ms=1, replay="r", trace_hash="h")
    monkeypatch.setattr(campaign, "fuzz_the_core", lambda *_: {"core": Summary(seeds=9, findings=[finding])})
    monkeypatch.setattr(campaign, "simulate_all", lambda *_: {"swarm": enough()})

    assert main(["--first", "5", "--no-mutants"]) == 1
    assert "MISSED: 1 violations of the core alone; 9 of 1500 seeds of the core alone" in capsys.readouterr().out


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_what_hangs_does_not_hold_up_the_end() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.imap_unordered(sleeps, [0.0, 3_600.0])
        assert list(in_time(results, time.monotonic() + 5)) == [0.0]
        assert list(in_time(pool.imap_unordered(sleeps, [0.0, 0.0]), time.monotonic() + 60)) == [0.0, 0.0]


def test_bugs_for_which_there_is_no_time_are_missed() -> None:
    missed = campaign.mutants_that_got_away(77, time.monotonic() - 1, jobs=1)

    assert missed == [f"no time to find {mutant.name}" for mutant in rotating(77)]


def test_one_task_is_one_seed_of_one_profile() -> None:
    task, result = run_task(("clocks", 3))

    assert task == ("clocks", 3)
    assert (result.profile, result.seed) == task
    one, two = Summary(), Summary()
    one.add(result)
    two.add(result)
    assert summed({"a": one, "b": two}).seeds == 2


def test_the_ledger_adds_up_what_stands_in_it() -> None:
    row = Row(
        date="2026-11-21", commit="abc", profile="swarm", first_seed=7, seeds=100, hours=0.5, faults=3_000, violations=1
    )
    text = PAGE.read_text(encoding="utf-8")
    longer = with_rows(text, [row, row])

    assert Row.read(str(row)) == row
    assert rows_in(longer) == [*rows_in(text), row, row]
    assert totals(rows_in(longer)) in longer
    assert totals([row, row]) == "Together: 200 seeds, 1.0 simulated cluster-hours, 6,000 faults, 2 violations."
    assert Path(PAGE).name == "simulated-hours.md"


def test_the_sum_in_the_documentation_is_that_of_its_rows() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert totals(rows_in(text)) in text


def test_each_code_has_seeds_of_its_own_and_always_the_same() -> None:
    one, other = (campaign.first_seed(code) for code in ("c34f6fe9fd", "c34f6fe9ed"))
    assert one == campaign.first_seed("c34f6fe9fd")
    assert abs(one - other) >= 100_000  # no profile has so many
    assert campaign.first_seed("") > 1_700_000_000 * 100_000
