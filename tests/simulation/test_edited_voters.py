"""Two lists of static voters in one cluster: the replicas of the one give those of the other no vote, and get none."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.config import StaticVoter
from kraftlib.consensus.extensions.misconfiguration import OTHER_VOTERS
from kraftlib.consensus.roles import Role
from kraftlib.testing.campaign import quiet
from kraftlib.testing.process import Ending
from kraftlib.testing.world import World
from tools.rules import Referee

OLD, NEW = (1, 2, 3), (4, 5)


class EditedWorld(World):
    """One where replicas may stand that its checker does not count as voters (I16): that is what their list says."""

    def violated(self, invariant: str, what: str) -> None:
        if invariant != "I16":
            super().violated(invariant, what)


@pytest.mark.parametrize("seed", range(6))
def test_who_was_added_to_a_list_by_hand_leads_nobody(seed: int) -> None:
    """1, 2 and 3 run with {1, 2, 3}; 4 and 5 are started with {1, 2, 3, 4, 5}, of which {3, 4, 5} is a majority.

    They would fetch, have everything, and be elected by 3 when the others are down, while {1, 2} elect somebody else.
    """
    with quiet():
        world = EditedWorld(seed, voters=3, observers=2, real_files=0, judge=Referee)
        everybody = tuple(StaticVoter(number, node.endpoint) for number, node in world.nodes.items())
        for number in NEW:
            world.nodes[number].config = attrs.evolve(world.nodes[number].config, voters=everybody)
        for number in OLD:
            world.nodes[number].start()
        world.run_until(lambda: world.leader() is not None, 10_000)
        for number in NEW:
            world.nodes[number].start()
        world.workload.start()
        world.run_for(3_000)
        leader = world.leader()
        assert leader is not None
        leader.end(Ending.KILLED)
        world.run_until(lambda: world.leader() not in (None, leader), 10_000)
        second = world.leader()
        assert second is not None
        assert second.key.id in OLD

        second.end(Ending.KILLED)
        world.run_for(10_000)  # one of the three is left: nobody is to lead, however willing the new ones are

        for number in NEW:
            process = world.nodes[number].process
            assert process is not None
            assert process.replica.role is not Role.LEADER
            assert process.replica.state.log.end_offset == 0
            assert process.replica.state.refused[OTHER_VOTERS] > 0
        (last,) = (world.nodes[number].process for number in OLD if world.nodes[number].process is not None)
        assert last is not None
        assert last.replica.state.refused[OTHER_VOTERS] > 0
        leader.start()
        world.run_until(lambda: world.leader() is not None, 10_000)
        served = world.leader()
        assert served is not None
        assert served.key.id in OLD
