"""What a scenario is told with: it shows that the trouble was there, and what must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.consensus.actions import PersistElection
from kraftlib.testing.campaign import quiet
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.workload import Outcome
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from tools.scenarios import handmade as msg
from tools.scenarios.scenario import Chapter, NotProvokedError, ScenarioReport
from tools.scenarios.story import Story


def tell(what: Callable[[Story], None], seed: int = 1, **world: Any) -> ScenarioReport:
    """Tell a story."""
    chapter = Chapter()
    chapter("X1", "something", expected="nothing", **world)(what)
    with quiet():
        return Story(chapter.scenarios[0], seed).run()


def test_a_story_without_trouble_has_shown_nothing() -> None:
    with pytest.raises(NotProvokedError, match="X1, seed 1: nothing went wrong"):
        tell(lambda story: story.append(1) and None)
    with pytest.raises(NotProvokedError, match="did not happen: the end of the world"):
        tell(lambda story: story.happened("the end of the world", 0))


def test_what_does_not_hold_is_a_violation_under_the_id_with_its_command() -> None:
    with pytest.raises(InvariantViolation, match=r"python3 dev\.py simulate --scenario X1 --seed 1") as raised:
        tell(lambda story: story.expect(False, "the sky is green"))

    assert raised.value.invariant == "X1"


def test_the_same_seed_tells_the_same_story() -> None:
    def trouble(story: Story) -> None:
        story.crash(story.followers()[0])
        story.happened("crash", story.random.randint(1, 1_000))

    reports = [tell(trouble, seed) for seed in (1, 1, 2)]

    assert reports[0] == reports[1] != reports[2]
    assert reports[0].trace_hash != reports[2].trace_hash


def test_the_words_do_what_they_say() -> None:
    def told(story: Story) -> None:
        leader = story.leader()
        first, second = story.followers(leader)
        assert {leader, first, second} == set(story.nodes)
        assert story.elect(first) is first
        assert story.leader() is first
        assert all(call.outcome is Outcome.ACKNOWLEDGED for call in story.append(2, values=3))
        story.everybody_has_everything()
        assert story.committed == second.flushed_offset
        story.cut(first)
        assert all(link.cut for link in story.links(first))
        story.heal()
        assert not any(link.cut for link in story.links(first))
        elections = story.elections
        story.resign(first)
        new = story.just_elected()
        assert story.elections == elections + 1
        assert new.leads == story.epoch
        story.leader()
        assert story.snapshot(second)
        story.shut_down(second)
        story.until(lambda: not second.is_up, 1_000, "still there")
        story.start(second)
        story.kill(second)
        story.happened("much")

    assert tell(told).provoked == {"much": 1}


def test_a_node_goes_down_before_or_during_what_its_core_wants_done() -> None:
    def told(story: Story) -> None:
        for crash in (story.crash_before, story.crash_during):
            leader = story.leader()
            victim = story.followers(leader)[0]
            story.everybody_has_everything()
            written, epoch = victim.elections.read(), story.state(victim).epoch + 1
            crash(victim, lambda action: isinstance(action, PersistElection))
            end = OffsetAndEpoch(epoch=epoch - 1, offset=1_000)
            request = msg.vote(ReplicaKey(leader.key.id), epoch, cluster_id=story.world.cluster_id, end=end)
            question = story.ask(victim, request)
            story.happened("crash", not victim.is_up)
            assert question.answer is None
            if crash == story.crash_before:
                assert victim.elections.read() == written
            story.start(victim)

    assert tell(told).provoked == {"crash": 2}


def test_a_question_that_is_not_answered_is_over_when_its_connection_is_closed() -> None:
    def told(story: Story) -> None:
        leader = story.leader()
        request = msg.begin(2, 2**31 - 1, cluster_id=story.world.cluster_id)
        story.world.checker.alarms_expected = True
        question = story.ask(leader, request)
        assert question.failed
        assert question.answer is None
        story.happened("closed")

    tell(told)


def test_an_append_that_is_not_acknowledged_is_noticed() -> None:
    def told(story: Story) -> None:
        leader = story.leader()
        story.cut(leader)
        story.append(1, to=leader)

    with pytest.raises(InvariantViolation, match="of 1 appends to a healthy leader"):
        tell(told)
