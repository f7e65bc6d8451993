"""Kafka's raft client and ours in one quorum, under load of opaque records, each leading and following the other."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import time
from collections.abc import Callable

import pytest

from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import OffsetAndEpoch
from tests.interop.kafka import KafkaNode
from tests.interop.lab import Lab, Node, Quorum, Replica
from tests.interop.logs import assert_equal_logs, epochs_have_one_leader, values
from tests.interop.ours import RefusedError
from tests.interop.peer import JavaPeer
from tests.interop.processes import wait_for

Record = Callable[[str, object], None]

TOGETHER = [([1], [2, 3]), ([1, 2], [3])]
"""Kafka's and ours."""

CHANGES = 50
"""Leader changes of one piece of the long form; it has eight pieces."""


class Load:
    """Appends to whoever leads, in a thread, and keeps what was acknowledged."""

    def __init__(self, quorum: Quorum, *, batch: int = 2_000) -> None:
        self.quorum = quorum
        self.batch = batch
        self.acknowledged: dict[str, int] = {}
        self.by_leader: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(150)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            for replica in self.quorum.replicas:
                number += 1
                try:
                    if replica.replica_status()["role"] != "leader":
                        continue
                    told = replica.ask("load", {"count": self.batch, "prefix": f"v{number}", "callers": 8})
                except (OSError, ValueError, StopIteration):
                    continue  # it was killed just now: what it had acknowledged to nobody but itself, nobody knows
                self.acknowledged.update(told["acknowledged"])
                self.by_leader[replica.node_id] = self.by_leader.get(replica.node_id, 0) + len(told["acknowledged"])
            self._over.wait(0.02)

    def wait_for(self, count: int, *, leader: int | None = None) -> None:
        """Wait until so many more records are acknowledged (by this leader, which leads again if it loses that)."""

        def total() -> int:
            return len(self.acknowledged) if leader is None else self.by_leader.get(leader, 0)

        def enough() -> bool:
            if total() < wanted and leader is not None:
                lead(self.quorum, leader)
            return total() >= wanted

        wanted = total() + count
        wait_for(f"{count} acknowledged records", enough, every_s=0.1)


def lead(quorum: Quorum, node_id: int) -> int:
    """Have leadership move by resignations until this replica leads; return its epoch."""

    def leads() -> int:
        status = quorum.leader()
        if status["leader_id"] == node_id:
            epoch: int = status["epoch"]
            return epoch
        leader = quorum.nodes[status["leader_id"]]
        try:
            leader.ask("resign", status["epoch"])  # type: ignore[union-attr]
        except Exception:  # noqa: BLE001 - it does not lead any more: all the better
            return 0
        quorum.leader(min_epoch=status["epoch"] + 1)
        return 0

    return wait_for(f"replica {node_id} to lead", leads)


def finish(quorum: Quorum, acknowledged: dict[str, int], *, start_offset: int = 0) -> int:
    """Wait until all have everything, stop them, and compare: every acknowledged record everywhere, equal bytes."""
    quorum.leader()
    heard = [replica.ask("leaders") for replica in quorum.replicas]
    assert epochs_have_one_leader(heard)
    known = [replica.replica_status()["high_watermark"] or 0 for replica in quorum.replicas]
    end_offset = max([*known, *(offset + 1 for offset in acknowledged.values())])

    def caught_up(replica: Replica) -> bool:
        status = replica.replica_status()
        return (status["high_watermark"] or 0) >= end_offset and status["log_end_offset"] >= end_offset

    for replica in quorum.replicas:
        wait_for(f"replica {replica.node_id} to catch up", lambda replica=replica: caught_up(replica))
    for node in quorum.nodes.values():
        node.kill()
    partitions = [node.partition for node in quorum.nodes.values()]
    assert_equal_logs(*partitions, start_offset=start_offset, end_offset=end_offset)
    for node in quorum.nodes.values():
        stored = values(node.partition)
        lost = [value for value, offset in acknowledged.items() if stored.get(offset) != value.encode()]
        assert lost == [], f"{len(lost)} acknowledged records are not in the log of {node.node_id}"
    return end_offset


@pytest.mark.each_release
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("peers", "ours"), TOGETHER, ids=["1 of Kafka, 2 of ours", "2 of Kafka, 1 of ours"])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_each_leads_the_other_under_load(
    lab: Lab, kind: str, peers: list[int], ours: list[int], record_property: Record
) -> None:
    """Everybody leads once, a leader of each kind is killed under load: nothing acknowledged is lost, equal bytes."""
    make = lab.static if kind == "static" else lab.dynamic
    quorum = make(peers=peers, ours=ours)
    quorum.start()
    with Load(quorum) as load:
        for node_id in [*peers, *ours]:
            lead(quorum, node_id)
            load.wait_for(500, leader=node_id)
        for node_id in (peers[0], ours[-1]):
            lead(quorum, node_id)
            load.wait_for(300, leader=node_id)
            record_property(f"new leader after kill -9 of {whose(quorum, node_id)}, ms", fail_over(quorum, node_id))
            load.wait_for(300)
            quorum.start(node_id)
    record_property("acknowledged records", len(load.acknowledged))
    record_property("last epoch", quorum.leader()["epoch"])
    finish(quorum, load.acknowledged)


def whose(quorum: Quorum, node_id: int) -> str:
    """Return whose replica that is."""
    return "Kafka's" if isinstance(quorum.nodes[node_id], JavaPeer) else "ours"


def fail_over(quorum: Quorum, node_id: int) -> int:
    """Kill this leader; return after how many ms another one has committed."""
    epoch = quorum.leader()["epoch"]
    began = time.monotonic()
    quorum.nodes[node_id].kill()
    quorum.leader(not_id=node_id, min_epoch=epoch + 1)
    return round((time.monotonic() - began) * 1_000)


@pytest.mark.each_release
@pytest.mark.sampled(2)
@pytest.mark.parametrize("whose_snapshot", ["ours", "Kafka's"])
def test_a_snapshot_reaches_the_other_kind(lab: Lab, whose_snapshot: str) -> None:
    """A leader whose log begins at its snapshot, ours or Kafka's; a voter of the other kind comes with an empty log."""
    quorum = lab.static(peers=[1], ours=[2, 3])
    source, newcomer = (2, 1) if whose_snapshot == "ours" else (1, 2)
    for node_id in sorted({source, 3}):
        quorum.nodes[node_id].start()
    for node_id in sorted({source, 3}):
        quorum.nodes[node_id].wait_started()
    with Load(quorum) as load:
        load.wait_for(500)
    lead(quorum, source)
    node = quorum.nodes[source]
    assert not isinstance(node, KafkaNode)
    snapshot_id = take_snapshot(node)
    for stopped in (source, 3):
        quorum.nodes[stopped].kill()
        begin_at_snapshot(quorum.nodes[stopped], snapshot_id, source=node)
    quorum.start(source, 3)
    quorum.leader()
    lead(quorum, source)

    quorum.start(newcomer)
    with Load(quorum) as load:
        load.wait_for(300)
    name = f"{snapshot_id.offset:020}-{snapshot_id.epoch:010}.checkpoint"
    fetched = quorum.nodes[newcomer].partition / name
    wait_for("the snapshot", fetched.exists)
    assert fetched.read_bytes() == (node.partition / name).read_bytes()
    finish(quorum, load.acknowledged, start_offset=snapshot_id.offset)


def take_snapshot(node: Replica) -> OffsetAndEpoch:
    """Have a replica write a snapshot of a few values; return its id."""
    values = [f"state-{number}" for number in range(50)]
    if isinstance(node, JavaPeer):
        told = node.ask("snapshot", " ".join(values))
    else:
        told = node.ask("snapshot", {"values": values, "offset": node.replica_status()["applied_offset"]})
    offset, epoch = map(int, told.split("@"))
    return OffsetAndEpoch(offset=offset, epoch=epoch)


def begin_at_snapshot(node: Node, snapshot_id: OffsetAndEpoch, *, source: Replica) -> None:
    """Let the log of a stopped replica begin at this snapshot, as it would once the segments before it are deleted."""
    name = f"{snapshot_id.offset:020}-{snapshot_id.epoch:010}.checkpoint"
    if not (node.partition / name).exists():
        shutil.copy(source.partition / name, node.partition / name)
    log = FileReplicatedLog.open(node.partition, file_mode=0o644)
    log.install_snapshot(snapshot_id)
    log.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_leadership_changes_without_end(lab: Lab, kind: str, seed: int, record_property: Record) -> None:
    """2 of Kafka's raft clients + 3 of ours, leaders that resign or are killed: nothing lost, equal bytes."""
    quorum = (lab.static if kind == "static" else lab.dynamic)(peers=[1, 2], ours=[3, 4, 5])
    quorum.start()
    chance = random.Random(seed)
    killed: int | None = None
    took: dict[str, list[int]] = {"Kafka's": [], "ours": []}
    first = quorum.leader()["epoch"]
    changes = 0
    with Load(quorum, batch=300) as load:
        while changes < CHANGES:
            leader = quorum.leader()
            node_id, epoch = leader["leader_id"], leader["epoch"]
            load.wait_for(20)
            if killed is not None and changes % 5 == 0:
                quorum.start(killed)
                killed = None
            if killed is None and chance.random() < 0.2:
                took[whose(quorum, node_id)].append(fail_over(quorum, node_id))
                killed = node_id
            else:
                with contextlib.suppress(OSError, ValueError, RefusedError):  # it may have lost its leadership just now
                    quorum.nodes[node_id].ask("resign", epoch)  # type: ignore[union-attr]
                quorum.leader(min_epoch=epoch + 1)
            changes += 1
    if killed is not None:
        quorum.start(killed)
    record_property("leader changes", changes)
    record_property("epochs", max(replica.replica_status()["epoch"] for replica in quorum.replicas) - first + 1)
    record_property("acknowledged records", len(load.acknowledged))
    for owner, times in took.items():
        if times:
            record_property(f"median of {len(times)} fail-overs from {owner}, ms", sorted(times)[len(times) // 2])
    finish(quorum, load.acknowledged)
