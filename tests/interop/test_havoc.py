"""Mixed quorums under load with everything going wrong at random moments, and what must be true after it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.interop.lab import Lab, Quorum, Replica
from tests.interop.logs import epochs_have_one_leader
from tests.interop.ours import RefusedError
from tests.interop.processes import wait_for
from tests.interop.test_peers import TOGETHER, Load, finish

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
        replicas = self.quorum.replicas
        leading = [replica for replica in replicas if replica.replica_status()["role"] == "leader"]
        victim = self.chance.choice(leading if leading and self.chance.random() < 0.7 else replicas)
        harm = self.chance.choice([self.kill, self.stop, self.pause, self.cut_off, self.resign])
        self.done[harm.__name__] = self.done.get(harm.__name__, 0) + 1
        self.listen(victim)
        harm(victim)

    def listen(self, replica: Replica) -> None:
        """Keep what a replica has heard of leaders, which it may be about to forget."""
        with contextlib.suppress(OSError, ValueError):
            self.heard.append([(epoch, leader) for epoch, leader in replica.ask("leaders")])

    def kill(self, victim: Replica) -> None:
        """kill -9, and a start after a while."""
        victim.kill()
        self._wait(4)
        self.quorum.start(victim.node_id)

    def stop(self, victim: Replica) -> None:
        """SIGTERM, and a start after a while."""
        victim.stop()
        self._wait(2)
        self.quorum.start(victim.node_id)

    def pause(self, victim: Replica) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        victim.signal(signal.SIGSTOP)
        self._wait(5)
        victim.signal(signal.SIGCONT)

    def cut_off(self, victim: Replica) -> None:
        """No connections from it or to it for a while."""
        wire = self.quorum.lab.wire
        assert wire is not None
        wire.isolate(victim.node_id)
        self._wait(5)
        wire.isolate()

    def resign(self, victim: Replica) -> None:
        """Give up leadership, if it has it."""
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
    lab.through_a_wire()
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
