"""The fault budget: what may be lost at one time."""

from __future__ import annotations

from random import Random

from tools.core_fuzz import budget
from tools.core_fuzz.themes import STEPS, THEMES, Theme
from tools.core_fuzz.world import CoreWorld

CALM = Theme(name="calm", what="three voters", voters=(3,), replicas=(4,), dynamic=1.0)


SEEDS_MAX = 200
"""A change of the core makes other runs of the same seeds, so rare things come about sooner or later."""


def world_of(theme: Theme = CALM, seed: int = 1) -> CoreWorld:
    return CoreWorld(seed, theme)


def test_one_replica_at_a_time_loses_what_was_durable() -> None:
    world = world_of()
    assert budget.may_lose_something(world, world.hosts[1])
    world.hosts[1].store.lose_election(Random(1))

    assert budget.is_impaired(world.hosts[1])
    assert budget.may_lose_something(world, world.hosts[1])  # more of what it has
    assert not budget.may_lose_something(world, world.hosts[2])


def test_the_only_voter_loses_nothing() -> None:
    world = world_of(Theme(name="one", what="one voter", voters=(1,), replicas=(3,), dynamic=1.0))

    assert not budget.may_lose_something(world, world.hosts[1])
    assert budget.may_lose_something(world, world.hosts[2])


def calm_world_that_has_committed() -> CoreWorld:
    world = world_of(
        Theme(
            name="calm", what="three voters", steps=dict.fromkeys(STEPS, 0.0), voters=(3,), replicas=(4,), dynamic=1.0
        )
    )
    world.phase.begin(100_000)
    while world.promises.committed_end < 5 or any(
        (host.running.high_watermark or 0) < world.promises.committed_end for host in world.hosts.values()
    ):
        world.step()
    return world


def test_no_disk_is_replaced_while_somebody_lacks_what_is_committed() -> None:
    world = world_of()
    world.promises.committed_end = 1

    assert not budget.may_be_replaced(world, world.hosts[1])
    world.promises.committed_end = 0
    assert budget.may_be_replaced(world, world.hosts[4])


def test_the_disk_of_one_voter_is_replaced_while_the_others_are_a_majority() -> None:
    world = calm_world_that_has_committed()
    assert budget.may_be_replaced(world, world.hosts[1])
    assert not budget.has_dead_voters(world)
    world.hosts[1].crash()
    world.hosts[1].new_disk()
    world.hosts[1].start()

    assert budget.has_dead_voters(world)
    assert not budget.may_lose_something(world, world.hosts[2])
    assert not budget.may_be_replaced(world, world.hosts[2])


def test_the_disk_of_one_of_two_voters_is_not_replaced() -> None:
    world = world_of(Theme(name="two", what="two voters", voters=(2,), replicas=(3,), dynamic=1.0))

    assert not budget.may_be_replaced(world, world.hosts[world.first_voters[1]])


def test_with_a_dead_voter_the_others_must_be_a_majority() -> None:
    world = calm_world_that_has_committed()
    for number in (1, 2):
        world.hosts[number].crash()
        world.hosts[number].new_disk()
        world.hosts[number].start()

    assert not budget.electable(world)


def test_no_leader_is_asked_for_where_the_others_are_no_majority() -> None:
    two = world_of(Theme(name="two", what="two voters", voters=(2,), replicas=(3,), dynamic=1.0))
    three = world_of()
    for world in (two, three):
        world.hosts[1].store.lose_election(Random(1))

    assert not budget.electable(two)
    assert budget.electable(three)


def test_every_kind_of_loss_comes_about() -> None:
    wanted = {"lost election", "lost end of a log", "damaged log", "lost snapshot", "power loss", "full disk"}
    seen: set[str] = set()
    for seed in range(SEEDS_MAX):
        if seen >= wanted:
            break
        world = CoreWorld(seed, THEMES["core-disks"])
        for _ in range(1_500):
            world.step()
        seen |= set(world.counts)

    assert seen >= wanted
