"""Observers behind a tree: thousands that fetch from a few upstreams, amid trouble with these and with the leader.

With KRAFTLIB_TREE=5000 in the environment there are so many observers behind 20 upstreams.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import attrs
import pytest

from kraftlib.testing.campaign import quiet
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending
from kraftlib.testing.world import World
from kraftlib.types import ReplicaId

VOTERS: Final = 3
PACE: Final = {
    "fetch_timeout_ms": 500,
    "fetch_max_wait_ms": 125,
    "request_timeout_ms": 500,
    "election_timeout_ms": 250,
    "election_backoff_max_ms": 250,
}
"""A quarter of the usual times."""


def wait_until(made: World, reached: Callable[[], bool], limit_ms: int, complaint: str) -> None:
    """Let time pass until this is so. It is looked at now and then, since a look at thousands of nodes takes long."""
    for _ in range(limit_ms // 50):
        if reached():
            return
        made.run_for(50)
    raise AssertionError(complaint)


class Tree:
    """Voters, upstreams that fetch from the leader, and children that fetch from up to three upstreams each."""

    def __init__(self, made: World, upstreams: int) -> None:
        """Give each child its upstreams, as many children to each."""
        self.world = made
        observers = [node for node in made.nodes.values() if node.key.id > VOTERS]
        self.upstreams, self.children = observers[:upstreams], observers[upstreams:]
        for number, node in enumerate(self.children):
            own = self.upstreams[number % upstreams]
            others = made.random.sample([one for one in self.upstreams if one is not own], 2)
            node.config = attrs.evolve(node.config, upstreams=tuple(one.endpoint for one in (own, *others)))

    def served_by_the_leader(self) -> list[ReplicaId]:
        """The observers that the leader has heard of lately."""
        leader = self.world.leader()
        assert leader is not None
        assert leader.process is not None
        rows = leader.process.replica.status().observer_progress
        since_ms = leader.process.replica.state.now_ms - PACE["fetch_timeout_ms"]
        return [row.key.id for row in rows if row.last_fetch_ms is not None and row.last_fetch_ms > since_ms]

    def is_whole(self) -> bool:
        """Whether the leader serves the upstreams, and nothing else."""
        return sorted(self.served_by_the_leader()) == [node.key.id for node in self.upstreams]

    def have_all(self) -> bool:
        """Whether all observers know all that is committed, and have it."""
        committed = self.world.committed_end
        processes = [node.process for node in (*self.upstreams, *self.children)]
        return all(one is not None and (one.replica.high_watermark or 0) >= committed for one in processes)

    def settle(self) -> None:
        """Let nothing more be appended: soon all have everything."""
        self.world.workload.stop()
        self.world.run_for(500)
        wait_until(self.world, self.have_all, 20_000, "an observer lacks committed records")


def isolate(made: World, node: SimulatedNode) -> None:
    """Cut all links between a node and the voters; its children still reach it."""
    for voter in range(1, VOTERS + 1):
        made.network.link(voter, node.key.id).cut = made.network.link(node.key.id, voter).cut = True


def trouble(tree: Tree) -> None:
    """One upstream is killed, one paused, one cut off from the voters, one comes back empty; then the leader dies."""
    made, (killed, paused, cut, emptied, *_) = tree.world, tree.upstreams
    killed.end(Ending.KILLED)
    assert paused.process is not None
    paused.process.pause()
    isolate(made, cut)
    made.run_for(2_000)
    emptied.end(Ending.POWER_LOST)
    emptied.wipe()
    emptied.start()
    made.run_for(1_000)
    assert len(tree.served_by_the_leader()) <= len(tree.upstreams), "their children have other upstreams"
    leader = made.leader()
    assert leader is not None
    leader.end(Ending.POWER_LOST)
    wait_until(made, lambda: made.leader() is not None, 10_000, "there is no other leader")
    made.run_for(2_000)
    assert len(tree.served_by_the_leader()) <= len(tree.upstreams), "nor does an election bring all to the leader"
    leader.start()
    killed.start()
    paused.process.resume()
    made.network.heal(made.network.links.values())


def run(children: int, upstreams: int, *, seed: int, rate: float) -> None:
    """Run such a tree, with trouble in its midst. The invariants hold all along, and all have everything in the end."""
    with quiet():
        made = World(seed, voters=VOTERS, observers=upstreams + children, config=PACE, recode_one_in=100_000)
        tree = Tree(made, upstreams)
        made.start()
        wait_until(made, lambda: made.leader() is not None, 10_000, "there is no leader")
        made.workload.rate = rate
        made.workload.start()
        made.run_for(2_000)
        assert tree.is_whole()
        trouble(tree)
        tree.settle()
        wait_until(made, tree.is_whole, 60_000, "an observer still fetches from the leader")


def test_observers_behind_a_tree_have_everything_whatever_becomes_of_upstreams_and_leader() -> None:
    run(100, 10, seed=0, rate=20.0)


@pytest.mark.slow
def test_hundreds_of_observers_behind_a_tree_of_twenty() -> None:
    """KRAFTLIB_TREE=5000 simulates so many, for half an hour or longer."""
    many = int(os.environ.get("KRAFTLIB_TREE", "500"))
    run(many, 20, seed=7, rate=20.0 if many <= 500 else 5.0)
