"""The judges that a program adds: they see every step of every life, and what they object to is a violation."""

from __future__ import annotations

import pytest

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.testing.campaign import Finding, quiet, run_seed
from kraftlib.testing.judge import BrokenRuleError, Judge, Program
from kraftlib.testing.process import Ending
from kraftlib.testing.simulation import simulate
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.world import World
from tools.simulate.program import PROGRAM


class Strict:
    """Allows no core to grant a vote."""

    def __init__(self, core: Replica) -> None:
        self._core = core

    def start(self, now_ms: int) -> list[act.Action]:
        return self._core.start(now_ms)

    def handle(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        actions = self._core.handle(event, now_ms)
        if any(isinstance(action, act.PersistElection) and action.election.voted_key is not None for action in actions):
            raise BrokenRuleError("RX1", "it votes")
        return actions


def strict_on_even_seeds(seed: int, profile: str) -> Judge | None:
    return Strict if seed % 2 == 0 and profile == "calm" else None


STRICT = Program(command="strictly", judge_of=strict_on_even_seeds)


def test_every_life_gets_a_judge_of_its_own() -> None:
    judged: list[Replica] = []

    def judge(core: Replica) -> Replica:
        judged.append(core)
        return core

    with quiet():
        world = World(1, voters=3, judge=judge)
        world.start()
        world.run_until_leader()

        world.nodes[1].end(Ending.KILLED)
        world.nodes[1].start()

    assert sorted(core.key.id for core in judged) == [1, 1, 2, 3]


def test_what_a_judge_objects_to_is_a_violation_with_the_command_of_the_program() -> None:
    with quiet(), pytest.raises(InvariantViolation, match=r"RX1 is violated at .*: .*it votes") as caught:
        simulate(2, "calm", trouble_ms=200, program=STRICT)

    assert caught.value.replay == "strictly --seed 2 --profile calm --until-ms 200"


def test_a_program_judges_the_seeds_that_it_chooses() -> None:
    results = [run_seed(seed, profile="calm", trouble_ms=200, program=STRICT) for seed in (2, 3)]

    assert [isinstance(result, Finding) for result in results] == [True, False]


def test_a_judge_that_objects_to_nothing_changes_no_trace() -> None:
    with quiet():
        alone = simulate(2, "crashes", trouble_ms=400)
        judged = simulate(2, "crashes", trouble_ms=400, program=PROGRAM)

    assert PROGRAM.judge_of(2, "crashes") is not None
    assert alone.trace_hash == judged.trace_hash
