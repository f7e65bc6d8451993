"""The page of invariants names every promise, and places that are there."""

from __future__ import annotations

import re
from pathlib import Path

import kraftlib.testing.application_invariants as application_invariants
import kraftlib.testing.drills as drills
import kraftlib.testing.election_invariants as election_invariants
import kraftlib.testing.final_checks as final_checks
import kraftlib.testing.histories as histories
import kraftlib.testing.invariants as invariants
import kraftlib.testing.linearizability as linearizability
import kraftlib.testing.list_invariants as list_invariants
import kraftlib.testing.liveness as liveness
import kraftlib.testing.strangers as strangers
import kraftlib.testing.subject as subject
import kraftlib.testing.voter_invariants as voter_invariants
import tools.rules

MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        application_invariants,
        drills,
        election_invariants,
        final_checks,
        histories,
        invariants,
        linearizability,
        list_invariants,
        liveness,
        strangers,
        subject,
        voter_invariants,
    )
}
DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "reference" / "invariants.md").read_text(encoding="utf-8")
RULES = (DOCS / "contributing" / "rules.md").read_text(encoding="utf-8")


def test_every_promise_has_a_row() -> None:
    named = set(re.findall(r"^\| ([A-Z]+\d*) \|", TEXT, re.MULTILINE))

    assert named >= {f"I{number}" for number in range(1, 23)} | {f"V{number}" for number in range(1, 9)}
    assert named >= set(drills.DRILLS) | set(invariants.INVARIANTS)


def test_every_rule_of_a_single_step_has_a_row() -> None:
    rules = Path(tools.rules.__file__).parent
    raised = {rule for path in rules.glob("*.py") for rule in re.findall(r'"(R[A-Z]+\d+)"', path.read_text("utf-8"))}

    assert raised
    assert raised <= set(re.findall(r"^\| (R[A-Z]+\d+) \|", RULES, re.MULTILINE))


def test_every_place_is_there_and_every_invariant_has_its_place() -> None:
    places = re.findall(r"`(\w+)\.(\w+)`", TEXT)
    assert [place for place in places if not hasattr(MODULES.get(place[0]), place[1])] == [("kraftlib", "testing")]
    listed = {name for module, name in places if module.endswith("invariants")}

    assert {check.__name__ for checks in invariants.INVARIANTS.values() for check in checks} == listed
