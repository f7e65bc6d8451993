"""Mixed quorums under load with everything going wrong at random moments, and what must be true after it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.interop.kafka import KafkaNode
from tests.interop.lab import BUSY, Lab, Node, Quorum
from tests.interop.logs import epochs_have_one_leader
from tests.interop.ours import Carrier, OurReplica, RefusedError
from tests.interop.peer import JavaPeer
from tests.interop.processes import PATIENCE_S, wait_for
from tests.interop.test_peers import TOGETHER, Load, finish
from tests.interop.test_swap import Topics
from tests.interop.test_voters import finish as finish_controllers

Record = Callable[[str, object], None]

SECONDS: Final = float(os.environ.get("KRAFTLIB_HAVOC_SECONDS", "25"))
"""How long it goes on. More in one go: `KRAFTLIB_HAVOC_SECONDS=300`."""

SEED: Final = int(os.environ.get("KRAFTLIB_HAVOC_SEED", "0")) or random.randrange(1, 10**6)
"""What happens and when; another one each time, unless it is named."""


class Havoc:
    """Does one harm at a time, mostly to the leader, and mends it again."""

    def __init__(self, quorum: Quorum, chance: random.Random) -> None:
        self.quorum = quorum
        self.chance = chance
        self.done: dict[str, int] = {}
        self.heard: list[list[tuple[int, int]]] = []

    def once(self) -> None:
        """Choose a replica and a harm, do it, wait, mend it."""
        nodes = list(self.quorum.nodes.values())
        leader = self.quorum.nodes[self.quorum.leader()["leader_id"]]
        victim = leader if self.chance.random() < 0.7 else self.chance.choice(nodes)
        harms = [self.kill, self.stop, self.pause, self.cut_off]
        harm = self.chance.choice([*harms, self.resign] if type(victim) in (OurReplica, JavaPeer) else harms)
        name = f"{harm.__name__} {'ours' if isinstance(victim, OurReplica) else 'Kafka'}"
        self.done[name] = self.done.get(name, 0) + 1
        self.listen(victim)
        harm(victim)

    def listen(self, node: Node) -> None:
        """Keep what a replica has heard of leaders, which it may be about to forget."""
        if isinstance(node, KafkaNode):
            led = re.findall(r"Completed transition to Leader\(.*?epoch=(\d+)", node.log.read_text(errors="replace"))
            self.heard.append([(int(epoch), node.node_id) for epoch in led])
            return
        with contextlib.suppress(OSError, ValueError):
            self.heard.append([(epoch, leader) for epoch, leader in node.ask("leaders")])

    def kill(self, victim: Node) -> None:
        """kill -9, and a start after a while."""
        victim.kill()
        self._wait(4)
        self.quorum.start(victim.node_id)

    def stop(self, victim: Node) -> None:
        """SIGTERM, and a start after a while."""
        victim.stop()
        self._wait(2)
        self.quorum.start(victim.node_id)

    def pause(self, victim: Node) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        victim.signal(signal.SIGSTOP)
        self._wait(5)
        victim.signal(signal.SIGCONT)

    def cut_off(self, victim: Node) -> None:
        """No connections from it or to it for a while."""
        wire = self.quorum.lab.wire
        assert wire is not None
        wire.isolate(victim.node_id)
        self._wait(5)
        wire.isolate()

    def resign(self, victim: Node) -> None:
        """Give up leadership, if it has it."""
        assert isinstance(victim, OurReplica | JavaPeer)
        with contextlib.suppress(OSError, ValueError, RefusedError):
            victim.ask("resign", victim.replica_status()["epoch"])

    def _wait(self, at_most_s: float) -> None:
        time.sleep(self.chance.random() * at_most_s)  # how long the harm lasts


@pytest.mark.each_release
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("peers", "ours"), TOGETHER, ids=["1 of Kafka, 2 of ours", "2 of Kafka, 1 of ours"])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_nothing_acknowledged_is_lost_whatever_happens(
    lab: Lab, kind: str, peers: list[int], ours: list[int], record_property: Record
) -> None:
    """Random kill -9, SIGTERM, SIGSTOP, lost connections, resignations under load: nothing lost, equal logs."""
    print(f"KRAFTLIB_HAVOC_SEED={SEED} does the same again")
    lab.through_a_wire().keeps_pairs = False
    quorum = (lab.static if kind == "static" else lab.dynamic)(peers=peers, ours=ours)
    quorum.start()
    havoc = Havoc(quorum, random.Random(f"{SEED} {kind} {peers} {ours}"))
    end = time.monotonic() + SECONDS
    with Load(quorum, batch=500) as load:
        load.wait_for(100)
        while time.monotonic() < end:
            havoc.once()
            quorum.leader()
            load.wait_for(10)
    for node_id in quorum.nodes:
        assert wait_for(f"replica {node_id}", lambda node_id=node_id: quorum.nodes[node_id].running)
    for replica in quorum.replicas:
        havoc.listen(replica)
    record_property("harms", sum(havoc.done.values()))
    record_property("epochs", max(replica.replica_status()["epoch"] for replica in quorum.replicas))
    record_property("acknowledged records", len(load.acknowledged))
    assert epochs_have_one_leader(havoc.heard)
    finish(quorum, load.acknowledged)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("kafka", "ours"), TOGETHER, ids=["1 of Kafka, 2 of ours", "2 of Kafka, 1 of ours"])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_cluster_with_voters_of_ours_lives_through_whatever_happens(
    lab: Lab, kind: str, kafka: list[int], ours: list[int], record_property: Record
) -> None:
    """Kafka's controllers, `kraftlib run --no-store` and a broker under random harm: every topic there, equal logs."""
    print(f"KRAFTLIB_HAVOC_SEED={SEED} does the same again")
    lab.through_a_wire().keeps_pairs = False
    quorum = (lab.static if kind == "static" else lab.dynamic)(kafka=kafka, ours=ours, properties=BUSY)
    for node_id in ours:
        quorum.ours(node_id, kind=Carrier)
    quorum.start()
    quorum.leading_controller()
    broker = quorum.broker(10)
    broker.start()
    broker.wait_started()
    havoc = Havoc(quorum, random.Random(f"{SEED} {kind} {kafka} {ours}"))
    end = time.monotonic() + SECONDS
    with Topics(lab.release, broker) as topics:
        while time.monotonic() < end:
            havoc.once()
            quorum.leading_controller()
            quorum.wait_for_growth()
        before = topics.done
        wait_for("one more topic", lambda: topics.done > before, timeout_s=2 * PATIENCE_S)
    quorum.leading_controller()
    topics.check()
    for node in quorum.nodes.values():
        havoc.listen(node)
    assert epochs_have_one_leader(havoc.heard)
    record_property("harms", sum(havoc.done.values()))
    record_property("epochs", max(replica.replica_status()["epoch"] for replica in quorum.replicas))
    record_property("topics created or deleted", topics.done)
    record_property("records", finish_controllers(quorum))
