"""Voters of ours among Kafka's controllers: who leads, how fast that moves, and whether all have the same log."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.kafka import KafkaNode
from tests.interop.lab import BUSY, Lab, Node, Quorum
from tests.interop.logs import assert_equal_logs, epochs_have_one_leader
from tests.interop.ours import OurReplica
from tests.interop.processes import wait_for

Record = Callable[[str, object], None]


def a_quorum(lab: Lab, kind: str, *, kafka: list[int], ours: list[int]) -> Quorum:
    """Return a quorum in which our replicas leave the leading to Kafka's controllers."""
    make = lab.static if kind == "static" else lab.dynamic
    return make(kafka=kafka, ours=ours, properties=BUSY)


def end_leader(quorum: Quorum, how: str) -> tuple[Node, int]:
    """End the leader, a controller; wait for the next one; return who was ended, and after how many ms."""
    before = quorum.leading_controller()
    node = quorum.nodes[before["leader_id"]]
    began = time.monotonic()
    if how == "kill":
        node.kill()
    elif how == "pause":
        node.signal(signal.SIGSTOP)
    else:
        node.signal(signal.SIGTERM)
    quorum.leading_controller(not_id=node.node_id, min_epoch=before["epoch"] + 1)
    return node, round((time.monotonic() - began) * 1_000)


def finish(quorum: Quorum) -> int:
    """Stop everybody, and see that all logs are equal up to what is known to be committed; return how far that is."""
    heard = [replica.ask("leaders") for replica in quorum.replicas]
    assert epochs_have_one_leader(heard)
    end_offset = min(replica.replica_status()["high_watermark"] for replica in quorum.replicas)
    for node in [*quorum.controllers, *quorum.replicas]:
        node.signal(signal.SIGTERM)
    for node in quorum.nodes.values():
        wait_for(f"the end of {node.node_id}", lambda node=node: not node.running)
    assert_equal_logs(*(node.partition for node in quorum.nodes.values()), end_offset=end_offset)
    for node in quorum.nodes.values():
        if isinstance(node, KafkaNode):
            assert node.complaints() == []
        else:
            assert "Traceback" not in node.log_text()
    return end_offset


@pytest.mark.each_release
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_voter_of_ours_carries_two_controllers_through_the_loss_of_each(
    lab: Lab, kind: str, record_property: Record
) -> None:
    """2 controllers + 1 voter of ours: `kill -9` and SIGTERM of the leading controller; equal logs at the end."""
    quorum = a_quorum(lab, kind, kafka=[1, 2], ours=[3])
    quorum.start()
    quorum.wait_for_growth()

    killed, took_ms = end_leader(quorum, "kill")
    record_property("new controller after kill -9, ms", took_ms)
    quorum.wait_for_growth()
    quorum.start(killed.node_id)
    quorum.wait_for_growth()

    stopped, took_ms = end_leader(quorum, "stop")
    record_property("new controller after SIGTERM, ms", took_ms)
    wait_for("the end of the process", lambda: not stopped.running)
    quorum.wait_for_growth()
    quorum.start(stopped.node_id)
    quorum.wait_for_growth()

    record_property("records", finish(quorum))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_whoever_of_ours_leads_hands_over_to_a_controller(lab: Lab, kind: str, record_property: Record) -> None:
    """1 controller + 2 voters of ours: they lead while it is gone, and it is the active controller when it is back."""
    quorum = a_quorum(lab, kind, kafka=[1], ours=[2, 3])
    quorum.start()
    controller, first, second = (quorum.nodes[number] for number in (1, 2, 3))
    wait_for("the controller to lead", lambda: quorum.leader()["leader_id"] == 1)
    quorum.wait_for_growth()

    began = time.monotonic()
    controller.kill()
    interim = quorum.leader(not_id=1)
    record_property("interim leader of ours after kill -9, ms", round((time.monotonic() - began) * 1_000))
    assert interim["leader_id"] in (2, 3)
    quorum.start(1)
    wait_for("the controller to lead again", lambda: quorum.leader()["leader_id"] == 1)
    quorum.wait_for_growth()

    assert isinstance(first, OurReplica)
    assert isinstance(second, OurReplica)
    second.kill()
    quorum.wait_for_growth()
    second.start()
    second.wait_started()
    quorum.wait_for_growth()
    record_property("records", finish(quorum))


def test_controllers_live_with_a_leader_of_ours(lab: Lab) -> None:
    """A leader of ours that does not yield: controllers follow it and wait; then one of them leads, none is hurt."""
    quorum = lab.static(
        kafka=[1, 2],
        ours=[3],
        properties={
            **BUSY,
            "controller.quorum.election.timeout.ms": 5_000,
            "controller.quorum.fetch.timeout.ms": 30_000,  # nobody stands because the machine is busy
        },
        settings={"election_timeout_ms": 800, "yield_to": []},
    )
    replica = quorum.nodes[3]
    assert isinstance(replica, OurReplica)
    replica.start()
    for number in (1, 2):
        quorum.nodes[number].start()
    replica.wait_started()
    led = quorum.leader()
    assert led["leader_id"] == 3

    def all_follow() -> bool:
        voters: list[dict[str, Any]] = replica.replica_status()["voters"]
        return all(voter["lag"] == 0 for voter in voters)

    wait_for("both controllers to follow", all_follow)
    for number in (1, 2):
        quorum.nodes[number].wait_for_line("still catching up because we have not loaded a controller record")
    replica.ask("resign", led["epoch"])
    assert quorum.leader(not_id=3)["leader_id"] in (1, 2)
    for number in (1, 2):
        quorum.nodes[number].wait_started()
    quorum.wait_for_growth()
    finish(quorum)


def test_a_paused_leader_is_replaced_and_returns_as_a_follower(lab: Lab, record_property: Record) -> None:
    """SIGSTOP of the leading controller, and SIGCONT once there is another one: one leader an epoch, equal logs."""
    quorum = a_quorum(lab, "dynamic", kafka=[1, 2], ours=[3])
    quorum.start()
    quorum.wait_for_growth()

    paused, took_ms = end_leader(quorum, "pause")
    record_property("new controller after SIGSTOP, ms", took_ms)
    quorum.wait_for_growth()
    paused.signal(signal.SIGCONT)
    quorum.wait_for_growth(20)

    finish(quorum)


def test_our_voter_may_be_paused_and_killed(lab: Lab) -> None:
    """SIGSTOP, SIGCONT, kill -9 and return of our voter: the controllers go on, it catches up, logs are equal."""
    quorum = a_quorum(lab, "static", kafka=[1, 2], ours=[3])
    quorum.start()
    quorum.wait_for_growth()
    replica = quorum.nodes[3]
    assert isinstance(replica, OurReplica)
    epoch = quorum.leader()["epoch"]

    replica.signal(signal.SIGSTOP)
    time.sleep(4)  # twice the fetch timeout: what this is about
    replica.signal(signal.SIGCONT)
    quorum.wait_for_growth(20)
    replica.kill()
    replica.start()
    replica.wait_started()
    quorum.wait_for_growth(20)

    stood = " -> candidate in " in replica.log.read_text()
    if lab.release.is_modern:  # 3.9 knows no pre-vote: who comes back late stands, as Kafka's own voters do there
        assert quorum.leader()["epoch"] == epoch or not stood, "its return has deposed the leader"
    finish(quorum)


def test_a_controller_with_another_cluster_id_is_kept_out(lab: Lab) -> None:
    """It asks for votes and records with error INCONSISTENT_CLUSTER_ID, and the quorum goes on."""
    quorum = a_quorum(lab, "static", kafka=[1], ours=[2, 3])
    foreign = quorum.kafka(1, **{"log.dirs": lab.home / "foreign"})
    foreign.directory = lab.home / "foreign"
    foreign.format("AAAAAAAAAAAAAAAAAAAAAA")
    foreign.start()
    for number in (2, 3):
        quorum.nodes[number].start()
    for number in (2, 3):
        quorum.nodes[number].wait_started()
    del quorum.nodes[1]
    led = quorum.leader()

    foreign.wait_for_line("INCONSISTENT_CLUSTER_ID")
    assert led["leader_id"] in (2, 3)
    assert quorum.leader()["leader_id"] in (2, 3)
