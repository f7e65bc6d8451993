"""The search itself: it finds what is planted, tries what can happen, and takes for equal what is equal."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from kraftlib.consensus.events import TimeoutReached
from kraftlib.types import ElectionState
from tests.exhaustive.__main__ import main
from tests.exhaustive.cores import IDS, copied, frozen, new_core, run_out, static_voters, timers
from tests.exhaustive.plants import PLANTS, planted
from tests.exhaustive.scenes import SHORT
from tests.exhaustive.search import Budget, Scene, Search
from tests.exhaustive.tasks import SCENES


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(100, logger="kraftlib"):
        yield


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str) -> None:
    scene = SCENES[PLANTS[plant].scene]
    with planted(plant):
        result = Search(scene).run()

    assert result.violation is not None
    assert len(result.trace) > 2


def test_every_scene_of_a_plant_is_tried_with_every_commit() -> None:
    assert {plant.scene for plant in PLANTS.values()} <= {scene.name for scene in SHORT}


def test_a_search_reaches_a_leader_and_a_commit_and_ends() -> None:
    """A search in which nothing happens would find nothing wrong, either."""
    search = Search(attrs.evolve(SCENES["two"], budget=Budget(timers=1), epoch_max=1))

    result = search.run()

    roles = {node.core.role.value for node in search.nodes.nodes.values}
    marks = {node.core.high_watermark for node in search.nodes.nodes.values}
    assert result.whole
    assert {"leader", "follower", "prospective", "candidate"} <= roles
    assert max(mark for mark in marks if mark is not None) == 1


def test_worlds_that_differ_only_in_who_is_who_are_one() -> None:
    """Whoever stands first: there is one world after it."""
    search = Search(attrs.evolve(SCENES["three"], budget=Budget(timers=1)))
    world = search._first()

    stands = [next(happens()) for label, happens in search._events(world) if "timer election" in label]

    assert len(stands) == 3
    assert len(set(stands)) == 3
    assert len({search._form(after) for after in stands}) == 1


def test_a_copied_core_goes_its_own_way() -> None:
    core = new_core(IDS[0], (), ElectionState(), static_voters(IDS), seeks=False)
    core.start(0)
    before = frozen(core, {})
    twin = copied(core)

    run_out(twin.state, next(timer for timer in timers(twin.state) if timer[0] == "election"))
    twin.handle(TimeoutReached(), 0)

    assert frozen(core, {}) == before
    assert frozen(twin, {}) != before


def test_power_can_go_between_an_append_and_its_flush() -> None:
    """What was appended is there after a loss of power, or is not."""
    search = Search(SCENES["two-power"])
    result = search.run()
    starts = [node for node in search.nodes.nodes.values if node.core.epoch == 1 and node.core.role.value == "resigned"]

    assert result.violation is None
    assert result.whole
    assert {node.end for node in starts} == {0, 1}


def test_a_core_that_breaks_its_own_invariant_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlib.consensus.vote.grants_vote", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Search(SCENES["two"]).run()


def test_a_scene_whose_path_does_not_exist_says_what_does() -> None:
    scene: Scene = attrs.evolve(SCENES["two"], path=("7003 timer election",))

    with pytest.raises(ValueError, match=r"what can happen is .*7001 timer election"):
        Search(scene).run()


def test_the_command_says_what_it_found_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scene", "two-power", "--output", "json"]) == 0
    assert '"whole": true' in capsys.readouterr().out


def test_the_command_fails_where_a_plant_is_not_found() -> None:
    assert main(["--plant", "two-votes", "--scene", "two-power"]) == 1
    assert main(["--plant", "two-votes"]) == 0
