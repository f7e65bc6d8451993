"""`dev.py simulate --scenario ID`: one of the stories of `tools.scenarios`, with a number of seeds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Final

from kraftlib.testing.campaign import quiet
from kraftlib.testing.violation import InvariantViolation
from tools.scenarios import SCENARIOS, run_scenario, scenario_of
from tools.scenarios.scenario import NotProvokedError, Scenario, ScenarioReport

USUAL_SEEDS: Final = range(10)
LIST: Final = "list"
ALL: Final = "all"


def run_scenarios(options: argparse.Namespace) -> int:
    """List the scenarios, or run one of them, or all; return 1 if something that must hold does not."""
    as_json = options.output == "json"
    if options.scenario == LIST:
        for scenario in SCENARIOS.values():
            print(json.dumps(plain(scenario)) if as_json else f"{scenario.id:<4} {scenario.title}")
        return 0
    chosen = list(SCENARIOS) if options.scenario == ALL else [scenario_of(options.scenario).id]
    seeds = [options.seed] if options.seed is not None else options.seeds or USUAL_SEEDS
    failed = [scenario_id for scenario_id in chosen if not run_one(scenario_of(scenario_id), seeds, as_json=as_json)]
    return 1 if failed else 0


def plain(scenario: Scenario) -> dict[str, str]:
    """Return a scenario as JSON shows it."""
    return {"id": scenario.id, "title": scenario.title, "expected": scenario.expected}


def run_one(scenario: Scenario, seeds: Iterable[int], *, as_json: bool) -> bool:
    """Tell a story with each of the seeds; return whether all went well.

    A seed in which the trouble does not come about shows nothing; one in which it does is needed at least.
    """
    reports: list[ScenarioReport] = []
    failures = empty = 0
    for seed in seeds:
        try:
            with quiet():
                report = run_scenario(scenario.id, seed)
        except (InvariantViolation, NotProvokedError) as error:
            broken = error.invariant if isinstance(error, InvariantViolation) else "not provoked"
            failures += isinstance(error, InvariantViolation)
            empty += isinstance(error, NotProvokedError)
            if as_json:
                print(json.dumps({"ok": False, "id": scenario.id, "seed": seed, "broken": broken, "what": str(error)}))
            else:
                print(error, file=sys.stderr, flush=True)
            continue
        reports.append(report)
        if as_json:
            print(json.dumps({"ok": True, **report.to_dict()}), flush=True)
    if not as_json:
        print(describe(scenario, reports, failures, empty))
    return not failures and bool(reports)


def describe(scenario: Scenario, reports: Iterable[ScenarioReport], failures: int, empty: int) -> str:
    """Return how it went, for people."""
    went_well = list(reports)
    lines = [f"{scenario.id}: {scenario.title}", f"  must: {scenario.expected}"]
    totals: dict[str, int] = {}
    for report in went_well:
        for what, count in report.provoked.items():
            totals[what] = totals.get(what, 0) + count
    seconds = sum(report.simulated_ms for report in went_well) / 1_000
    lines += [f"  {count:>6}  {what}" for what, count in totals.items()]
    verdict = "every promise was kept" if not failures else f"{failures} FAILED"
    without = f", {empty} of them without the trouble" if empty else ""
    lines.append(f"  {len(went_well) + failures + empty} seeds{without}, {seconds:.1f} simulated seconds: {verdict}")
    return "\n".join(lines)
