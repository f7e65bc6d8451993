"""Messages in any order, a clock that jumps, operators."""

from __future__ import annotations

import random

from kraftlib.types import Endpoint, OffsetAndEpoch
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.core_fuzz.host import Letter
from tools.core_fuzz.oddities import Oddities
from tools.core_fuzz.themes import THEMES, Theme
from tools.core_fuzz.world import CoreWorld

CALM = Theme(
    name="calm",
    what="three voters, and nothing goes wrong",
    steps=dict.fromkeys(("lose", "crash", "resign", "transfer", "replace", "full", "power", "late"), 0.0),
    voters=(3,),
    replicas=(4,),
    dynamic=1.0,
)

SEEDS_MAX = 100
"""A change of the core makes other runs of the same seeds, so rare things come about sooner or later."""


def test_in_a_calm_world_somebody_leads_and_commits() -> None:
    world = CoreWorld(2, CALM)
    for _ in range(1_500):
        world.step()

    assert world.promises.committed_end > 10
    assert 1 <= world.promises.elections < 20


def test_a_message_to_who_is_down_is_refused_and_answers_of_an_earlier_life_are_not_heard() -> None:
    world = CoreWorld(2, CALM)
    asker, other = world.hosts[1], world.hosts[2]
    other.crash()
    events = world.events
    letter = Letter(1, asker.life, 2, 2, 0, VoteRequest())
    world.hand(letter)
    assert world.events == events + 2  # the request has failed, the connection is refused
    asker.crash()
    asker.start()
    events = world.events
    world.hand(letter)
    world.hand(Letter(2, asker.life - 1, 1, 2, 0, None, True))

    assert world.events == events


def test_the_first_replica_may_have_the_id_0() -> None:
    """Kafka allows it: whoever takes it for no id takes a voter for nobody."""
    firsts = {min(CoreWorld(seed, THEMES["core"]).hosts) for seed in range(SEEDS_MAX)}

    assert firsts == {0, 1}


def test_voters_change_and_disks_are_replaced() -> None:
    """Most worlds change nothing in so few steps; some change their voters several times."""
    wanted = {"voter change", "replaced disk", "late answer", "power loss amid actions"}
    done = 0
    counts: set[str] = set()
    for seed in range(SEEDS_MAX):
        world = CoreWorld(seed, THEMES["core-voters"])
        for _ in range(800):
            world.step()
        done += world.changes_done
        counts |= set(world.counts)
        if done > 3 and counts >= wanted:
            return

    raise AssertionError(f"{done} changes and {sorted(counts)} in {SEEDS_MAX} worlds")


def test_a_replica_that_has_moved_is_reached_at_every_address_that_it_ever_had() -> None:
    world = CoreWorld(2, CALM)
    old = world.place(2)
    world.oddities = Oddities(random.Random(1), moves=1.0, writes_slowly=0.0)
    world.hosts[2].crash()
    world.hosts[2].start()

    assert world.place(2) != old
    assert world.number_at(old) == world.number_at(world.place(2)) == 2
    assert world.hosts[2].running.state.endpoints["CONTROLLER"] == world.place(2)


def test_a_replica_may_have_a_listener_more_than_others_ask_on() -> None:
    world = CoreWorld(2, CALM)
    world.oddities = Oddities(random.Random(1), moves=0.0, writes_slowly=0.0, listens_twice=1.0)
    world.hosts[2].crash()
    world.hosts[2].start()

    assert set(world.hosts[2].running.state.endpoints) == {"CONTROLLER", "OTHER"}


def test_messages_may_not_say_where_the_leader_is() -> None:
    world = CoreWorld(2, CALM)
    world.oddities = Oddities(random.Random(1), moves=0.0, writes_slowly=0.0, hides_places=1.0)
    said = []
    for _ in range(400):
        world.step()
        said += [letter.body for letter in world.wire if isinstance(letter.body, BeginQuorumEpochRequest)]

    assert said
    assert not any(body.leader_endpoints for body in said)


def test_replicas_hear_of_each_other_that_they_are_controllers() -> None:
    world = CoreWorld(2, CALM)
    world.oddities = Oddities(random.Random(1), moves=0.0, writes_slowly=0.0, identifies=0.5)
    for _ in range(400):
        world.step()

    assert world.counts["identified peer"]
    assert any(host.running.state.controllers for host in world.up())


def test_an_address_of_nobody_leads_nowhere() -> None:
    assert CoreWorld(2, CALM).number_at(Endpoint("nowhere", 9_001)) == -1


def test_a_snapshot_that_the_log_has_passed_while_it_was_written_is_dropped() -> None:
    passed, kept = OffsetAndEpoch(offset=3, epoch=1), OffsetAndEpoch(offset=9, epoch=1)
    host = CoreWorld(2, CALM).hosts[1]
    host.store.start_offset = 5
    assert host.store.has_passed(passed)
    assert not host.store.has_passed(kept)


def test_snapshots_are_written_beside_the_loop_and_replicas_move() -> None:
    counts: set[str] = set()
    written = 0
    for seed in range(40):
        world = CoreWorld(seed, THEMES["core-disks"])
        for _ in range(600):
            world.step()
            written += any(host.writing for host in world.hosts.values())
        counts |= set(world.counts)
        if written and "moved replica" in counts:
            return

    assert written
    assert "moved replica" in counts
