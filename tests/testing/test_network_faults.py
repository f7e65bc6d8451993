"""Trouble with the network does what it says, and ends. That a quorum survives it: test_faults.py."""

from __future__ import annotations

import random

from kraftlib.testing import network_faults as net
from tests.testing.worlds import world


def test_a_lonely_leader_gets_records_that_nobody_else_has() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        made.run_for(50)
        undo = net.lonely_leader(made, random.Random(1))
        made.run_for(200)
        others = [node for node in made.nodes.values() if node is not leader]
        assert leader.chain.end_offset > max(node.chain.end_offset for node in others)
        made.run_for(8_000)
        assert undo is not None
        undo()
        made.run_for(8_000)

        assert {node.chain.end_offset for node in made.nodes.values()} == {made.committed_end}


def test_leaders_that_nobody_hears_leave_first_records_of_their_epochs_behind() -> None:
    """Each on one disk only: two replicas then have epochs that the other one lacks."""
    with world() as made:
        chains: dict[int, set[int]] = {number: set() for number in made.nodes}
        undo = net.unheard_leaders(made, random.Random(1))
        assert undo is not None

        def look() -> bool:
            for number, node in made.nodes.items():
                if node.chain.tail is not None:
                    chains[number].add(node.chain.tail.epoch)
            return False

        made.run_until(look, 8_000)
        only_here = [
            number for number, epochs in chains.items()
            if epochs - set().union(*(other for place, other in chains.items() if place != number))
        ]  # fmt: skip
        assert len(only_here) >= 2, chains
        undo()
        assert made.checker.on_elected is None
        made.run_for(4_000)

        assert {node.chain.end_offset for node in made.nodes.values()} == {made.committed_end}


def test_an_isolated_node_and_split_halves_do_not_reach_each_other() -> None:
    with world(voters=5) as made:
        for begin in (net.isolate, net.split, net.random_cuts, net.cut_pair, net.cut_one_way):
            undo = begin(made, random.Random(4))
            assert any(link.cut for link in made.network.links.values())
            assert undo is not None
            undo()
            assert not any(link.cut for link in made.network.links.values())


def test_links_are_as_before_when_the_trouble_ends() -> None:
    with world() as made:
        before = {pair: (link.delay_us, link.loss) for pair, link in made.network.links.items()}
        for begin in (net.loss, net.packet_loss, net.duplication, net.reordering, net.delay):
            undo = begin(made, random.Random(4))
            undo()
            after = {pair: (link.delay_us, link.loss) for pair, link in made.network.links.items()}
            assert after == before


def test_whom_it_hits_is_the_leader_half_of_the_time() -> None:
    with world() as made:
        chance = random.Random(1)
        hit = [net.leader_or_any(made, chance) for _ in range(300)]

        assert 150 < hit.count(made.leader()) < 250
        assert net.any_node(made, chance) in made.nodes.values()
