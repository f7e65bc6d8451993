"""One run from a seed. Many of them: tests/simulation."""

from __future__ import annotations

import json

import pytest

from kraftlib.testing.campaign import quiet
from kraftlib.testing.profiles import profile_of
from kraftlib.testing.simulation import Simulation, simulate
from kraftlib.testing.trace import Entry, Step
from kraftlib.testing.violation import InvariantViolation


def test_a_run_ends_in_a_report_of_plain_values() -> None:
    with quiet():
        report = simulate(1)

    assert (report.seed, report.profile) == (1, "swarm")
    assert report.elections > 0
    assert report.acknowledged <= report.appends
    assert json.loads(json.dumps(report.to_dict()))["trace_hash"] == report.trace_hash


def test_a_calm_run_has_no_trouble_and_one_election() -> None:
    with quiet():
        report = simulate(1, "calm", trouble_ms=500)

    # What is lost is lost at the end of the run, when a voter is cut off to see that it disturbs nobody.
    assert [name for name, count in report.faults.items() if count and name != "message lost"] == []
    assert (report.elections, report.voters) == (1, 3)


def test_the_length_of_the_trouble_can_be_given_and_stands_in_the_command() -> None:
    simulation = Simulation(7, profile_of("crashes"), trouble_ms=123)

    assert simulation.trouble_ms == 123
    assert simulation.world.replay == "kraftlib simulate --seed 7 --profile crashes --until-ms 123"


def test_phases_and_faults_stand_in_the_trace() -> None:
    told: list[Entry] = []
    with quiet():
        simulate(2, on_entry=told.append)
    phases = [entry.a for entry in told if entry.step is Step.PHASE]

    assert phases == sorted(phases)
    assert {1, 2, 3, 5} <= set(phases)
    assert any(entry.step is Step.FAULT and entry.note for entry in told)


def test_a_violation_carries_the_seed_of_the_run() -> None:
    simulation = Simulation(5, profile_of("swarm"))
    simulation.world.violated("I1", "planted")
    with quiet(), pytest.raises(InvariantViolation) as caught:
        simulation.run()

    assert (caught.value.seed, caught.value.replay) == (5, "kraftlib simulate --seed 5")


def test_the_trouble_ends_though_a_minority_stays_down() -> None:
    for seed in range(20):
        simulation = Simulation(seed, profile_of("crashes"))
        voters = len(simulation.world.voter_keys)
        assert len(simulation.stay_down) <= (voters - 1) // 2
