"""The proofs of the recipes in short, and the checks that decide: each must see what it is for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kraftlib.recipes.map import Entry, MapChange, MapState
from tests.chaos.increments import check_sums
from tests.chaos.killing import Violation
from tests.chaos.recipes import main
from tests.chaos.watches import Row, check_events

ROWS: list[Row] = [(5, "a", b"1"), (5, "b", b"2"), (7, "a", b"3"), (9, "b", b"4")]
CHANGES = [MapChange(*row) for row in ROWS]
STATE = MapState(7, {"a": Entry("a", b"3", 7), "b": Entry("b", b"2", 5)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", ["increments --kills 4", "watches --kills 3 --changes 12000 --snapshots 2"], ids=lambda text: text[:7]
)
def test_nothing_is_lost_or_doubled_while_leaders_are_killed(arguments: str) -> None:
    command = [sys.executable, "-m", "tests.chaos.recipes", *arguments.split()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["kills"] == int(arguments.split()[2])
    if found["proof"] == "increments":
        assert found["additions"] > 0
        assert found["compare_and_sets"] > 0
        assert found["repeated_by_callers"] > 0
    else:
        assert found["delivered"] > 2 * found["changes"] >= 24_000


@pytest.mark.parametrize("arguments", ["increment", "--kills 0", "--changes 0"])
def test_a_proof_of_nothing_is_refused(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments.split())
    assert arguments.split()[-1] in capsys.readouterr().err


def test_additions_that_count_once_are_accepted() -> None:
    check_sums([2, 1, 3], 3)


@pytest.mark.parametrize(
    ("sums", "total"), [([1, 2], 3), ([1, 2, 3], 2), ([1, 1, 3], 3)], ids=["twice", "lost", "another's result"]
)
def test_additions_that_do_not_are_found(sums: list[int], total: int) -> None:
    with pytest.raises(Violation):
        check_sums(sums, total)


@pytest.mark.parametrize("events", [CHANGES, [STATE, CHANGES[3]], [CHANGES[0], STATE, CHANGES[3]]])
def test_what_was_written_is_accepted(events: list[MapChange | MapState]) -> None:
    check_events("x", events, ROWS)


@pytest.mark.parametrize(
    "events",
    [
        CHANGES[:3],
        [*CHANGES, CHANGES[3]],
        [CHANGES[0], *CHANGES[2:]],
        [CHANGES[1], CHANGES[0], *CHANGES[2:]],
        [MapChange(5, "a", b"9"), *CHANGES[1:]],
        [STATE],
        [MapState(7, {"a": STATE.entries["a"]}), CHANGES[3]],
        [*CHANGES, STATE],
    ],
    ids="the-end-lost twice lost order value behind-state wrong-state older-state".split(),
)
def test_what_was_not_is_found(events: list[MapChange | MapState]) -> None:
    with pytest.raises(Violation):
        check_events("x", events, ROWS)
