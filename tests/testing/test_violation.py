"""What a violation says."""

from __future__ import annotations

from kraftlib.testing.violation import InvariantViolation


def test_a_violation_names_invariant_time_and_the_command_that_shows_it_again() -> None:
    violation = InvariantViolation("I7", "it fell", seed=3, time_ms=20, replay="kraftlib simulate --seed 3")

    assert str(violation) == "I7 is violated at 20 ms: it fell\nreplay with: kraftlib simulate --seed 3"
    assert (violation.invariant, violation.seed) == ("I7", 3)
