"""Simulated machines: what survives which end."""

from __future__ import annotations

import pytest

from kraftlib.runtime.waiters import COMMITTED
from kraftlib.testing.process import Ending
from kraftlib.testing.world import World
from tests.testing.worlds import world


def test_a_killed_process_leaves_what_it_wrote_and_a_power_loss_what_was_flushed() -> None:
    for ending, survives in ((Ending.KILLED, True), (Ending.POWER_LOST, False)):
        ends = set()
        for seed in range(6):
            with world(seed) as made:
                leader = made.leader()
                assert leader is not None
                made.run_for(20)
                leader.disk.hung = ending is Ending.POWER_LOST
                made.workload.append_to(leader, count=3)
                made.run_for(0)
                written = leader.log.end_offset
                leader.end(ending)
                assert leader.log.end_offset >= made.committed_end
                ends.add(written - leader.log.end_offset)
        assert ends == {0} if survives else ends == {0, 3}, ending


def test_a_node_starts_again_on_its_disk_and_catches_up() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        leader.end(Ending.POWER_LOST)
        assert (leader.is_up, leader.leads, leader.ended) == (False, None, Ending.POWER_LOST)
        made.run_until_leader()
        leader.start()
        leader.start()  # does nothing: it runs
        made.run_for(5_000)

        assert leader.lives == 2
        assert leader.chain.tail is made.checker.facts.committed.tail


def test_nobody_appends_to_a_node_that_is_down() -> None:
    with world() as made:
        node = made.nodes[1]
        node.end(Ending.KILLED)
        with pytest.raises(ConnectionError, match="node 1 is down"):
            node.append([b"x"], level=COMMITTED, promise=None)  # type: ignore[arg-type]


def test_a_node_that_is_down_ends_no_more() -> None:
    made = World(1)
    made.nodes[1].end(Ending.KILLED)

    assert made.nodes[1].ended is None
