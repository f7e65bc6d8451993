"""Messages in any order, a clock that jumps, operators."""

from __future__ import annotations

from kraftlib.wire.messages.vote import VoteRequest
from tools.core_fuzz.host import Letter
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


def test_voters_change_and_disks_are_replaced() -> None:
    done = 0
    counts: set[str] = set()
    for seed in range(12):
        world = CoreWorld(seed, THEMES["core-voters"])
        for _ in range(800):
            world.step()
        done += world.changes_done
        counts |= set(world.counts)

    assert done > 3
    assert counts >= {"voter change", "replaced disk", "late answer", "power loss amid actions"}
