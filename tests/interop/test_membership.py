"""Voters that come and go: ours in Kafka's quorums, Kafka's in ours, by Kafka's tools and by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlib.types import Endpoint
from tests.interop.kafka import FEATURES
from tests.interop.lab import BUSY, Lab, Node, Quorum
from tests.interop.logs import assert_equal_logs
from tests.interop.ours import OurReplica
from tests.interop.peer import JavaPeer
from tests.interop.processes import wait_for
from tests.interop.test_peers import Load, finish, lead
from tests.interop.test_tools import controller_properties, status_of, voters_of

Record = Callable[[str, object], None]


def voters(quorum: Quorum, *servers: Node) -> dict[int, str | None]:
    """Return whom Kafka's tool names as voters."""
    places = [server.endpoint for server in servers]
    return voters_of(status_of(quorum.lab.release.quorum(places, "describe", "--status")))


def wait_until_voters(quorum: Quorum, replica: OurReplica, ids: set[int]) -> None:
    """Wait until one of our replicas knows these voters and no others."""
    wait_for(f"the voters {ids}", lambda: {voter["id"] for voter in replica.replica_status()["voters"]} == ids)


@pytest.mark.each_release
def test_a_voter_of_ours_joins_kafkas_quorum_and_leaves_it(lab: Lab) -> None:
    """`add-controller` of our replica to a running controller, which then needs its vote; `remove-controller` again."""
    quorum = lab.dynamic(kafka=[1], properties=BUSY)
    quorum.start()
    controller = quorum.nodes[1]
    ours = quorum.ours(3)
    ours.format(lab.cluster_id, no_initial_controllers=True)
    quorum.start(3)
    wait_for("our replica to follow", lambda: ours.replica_status()["high_watermark"])

    added = lab.release.quorum([controller.endpoint], "add-controller", config=controller_properties(quorum, ours)).ok()
    assert "Added controller 3" in added.out
    known = voters(quorum, controller)
    assert set(known) == {1, 3}
    wait_until_voters(quorum, ours, {1, 3})
    quorum.wait_for_growth()
    controller.kill()  # both are a majority: it must go on where it was
    quorum.start(1)
    wait_for("the controller to lead", lambda: quorum.leader()["leader_id"] == 1)
    quorum.wait_for_growth()

    removed = lab.release.quorum(
        [controller.endpoint], "remove-controller", "--controller-id", 3, "--controller-directory-id", known[3]
    ).ok()
    assert "controller 3" in removed.out
    wait_until_voters(quorum, ours, {1})
    end_offset = ours.replica_status()["high_watermark"]
    ours.kill()
    assert set(voters(quorum, controller)) == {1}
    assert_equal_logs(controller.partition, ours.partition, end_offset=end_offset)


@pytest.mark.since("4.2")
def test_a_replica_of_ours_joins_kafkas_quorum_by_itself(lab: Lab) -> None:
    """`auto_join` (KIP-1186): it adds itself to a running controller."""
    quorum = lab.dynamic(kafka=[1], properties=BUSY)
    quorum.start()
    ours = quorum.ours(3, auto_join=True)
    first = ours.format(lab.cluster_id, no_initial_controllers=True)
    quorum.start(3)
    wait_until_voters(quorum, ours, {1, 3})
    quorum.wait_for_growth()
    assert voters(quorum, quorum.nodes[1])[3] == first


def test_a_controller_of_kafka_joins_our_quorum_and_takes_over(lab: Lab) -> None:
    """A quorum of ours alone, which names Kafka's voter to yield to: added by the tool, it becomes the controller."""
    quorum = lab.dynamic(ours=[1, 2, 3])
    quorum.start()
    leader = quorum.leader()
    controller = quorum.kafka(4, **BUSY)
    controller.format(lab.cluster_id, "--no-initial-controllers")
    controller.start()
    ours = [node for node in quorum.nodes.values() if isinstance(node, OurReplica)]
    head = next(node for node in ours if node.node_id == leader["leader_id"])
    wait_for(
        "the controller to follow",
        lambda: 4 in [row["id"] for row in head.replica_status()["observers"] if row["lag"] == 0],
    )

    lab.release.quorum([node.endpoint for node in ours], "add-controller", config=controller.properties_file).ok()
    wait_for("the controller to lead", lambda: quorum.leader()["leader_id"] == 4)
    controller.wait_started()
    quorum.wait_for_growth()

    for number in (1, 2):
        directory_id = voters(quorum, controller)[number]
        lab.release.quorum(
            [controller.endpoint], "remove-controller", "--controller-id", number, "--controller-directory-id",
            directory_id,
        ).ok()  # fmt: skip
    wait_until_voters(quorum, ours[2], {3, 4})
    quorum.wait_for_growth()
    assert controller.complaints() == []


@pytest.mark.since("4.2")
def test_a_controller_of_kafka_joins_our_quorum_by_itself(lab: Lab) -> None:
    """`controller.quorum.auto.join.enable` of a controller under a leader of ours."""
    quorum = lab.dynamic(ours=[1, 2, 3])
    quorum.start()
    quorum.leader()
    controller = quorum.kafka(4, **{"controller.quorum.auto.join.enable": "true"})
    controller.format(lab.cluster_id, "--no-initial-controllers")
    controller.start()

    wait_until_voters(quorum, quorum.nodes[1], {1, 2, 3, 4})  # type: ignore[arg-type]
    assert controller.running


def moved(node: Node, quorum: Quorum, place: Endpoint) -> None:
    """Give a stopped replica another port."""
    quorum.places[node.node_id] = node.endpoint = place
    path: Path = node.config_file if isinstance(node, OurReplica) else node.properties_file
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("listen", "advertised"))]
    ours = f'listen = "{place}"\nadvertised = "{place}"\n'
    kafkas = f"listeners=CONTROLLER://{place}\nadvertised.listeners=CONTROLLER://{place}\n"
    path.write_text("".join([*kept, ours if isinstance(node, OurReplica) else kafkas]))


def where(quorum: Quorum, of: int) -> set[str]:
    """Return where our replicas believe a voter to be."""
    return {
        voter["endpoints"]["CONTROLLER"]
        for replica in quorum.replicas
        if isinstance(replica, OurReplica)
        for voter in replica.replica_status()["voters"]
        if voter["id"] == of
    }


def test_a_voter_that_has_moved_tells_kafkas_leader(lab: Lab) -> None:
    """UpdateRaftVoter of ours: after a restart on another port the voter set of Kafka's leader has the new one."""
    quorum = lab.dynamic(kafka=[1, 2], ours=[3], properties=BUSY)
    quorum.start()
    quorum.wait_for_growth()
    ours = quorum.nodes[3]
    ours.kill()
    place = lab.endpoint()
    moved(ours, quorum, place)
    quorum.start(3)

    wait_for("the new endpoint in the voter set", lambda: where(quorum, 3) == {str(place)})
    status = status_of(lab.release.quorum([quorum.nodes[1].endpoint], "describe", "--status"))
    assert [f"CONTROLLER://{place}"] in [voter["endpoints"] for voter in status["CurrentVoters"]]
    quorum.wait_for_growth()


@pytest.mark.since("4.0")  # 3.9 asks only while no Fetch of its is under way, and there hardly ever is none
def test_a_voter_of_kafka_that_has_moved_tells_our_leader(lab: Lab) -> None:
    """UpdateRaftVoter of Kafka's raft client: a leader of ours writes its new endpoint into the log."""
    quorum = lab.dynamic(peers=[1], ours=[2, 3])
    quorum.start()
    lead(quorum, 2)
    peer = quorum.nodes[1]
    assert isinstance(peer, JavaPeer)
    peer.kill()
    place = lab.endpoint()
    moved(peer, quorum, place)
    quorum.start(1)

    wait_for("the new endpoint in the voter set", lambda: where(quorum, 1) == {str(place)})
    with Load(quorum) as load:
        load.wait_for(300)
    finish(quorum, load.acknowledged)


@pytest.mark.each_release
def test_a_voter_of_kafka_leaves_our_quorum_and_comes_back(lab: Lab) -> None:
    """`remove-controller` and `add-controller` of Kafka's raft client at a leader of ours; then it leads."""
    quorum = lab.dynamic(peers=[1], ours=[2, 3])
    quorum.start()
    lead(quorum, 2)
    peer, ours = quorum.nodes[1], quorum.nodes[2]
    assert isinstance(peer, JavaPeer)
    assert isinstance(ours, OurReplica)
    directory_id = voters(quorum, ours)[1]

    lab.release.quorum(
        [ours.endpoint], "remove-controller", "--controller-id", 1, "--controller-directory-id", directory_id
    ).ok()
    wait_until_voters(quorum, ours, {2, 3})
    with Load(quorum) as load:
        load.wait_for(100)
    lab.release.quorum([ours.endpoint], "add-controller", config=peer.properties_file).ok()
    wait_until_voters(quorum, ours, {1, 2, 3})
    assert voters(quorum, ours)[1] == directory_id
    lead(quorum, 1)
    with Load(quorum) as load:
        load.wait_for(100, leader=1)
    finish(quorum, load.acknowledged)


@pytest.mark.since("4.1")
def test_a_mixed_static_quorum_becomes_dynamic_under_our_leader(lab: Lab) -> None:
    """`kafka-features upgrade` at a leader of ours, with a voter of Kafka's: all are known by their disks after."""
    quorum = lab.static(peers=[1], ours=[2, 3])
    quorum.start()
    lead(quorum, 2)
    ours = quorum.nodes[2]
    assert isinstance(ours, OurReplica)

    def upgraded() -> bool:
        words = ["--bootstrap-controller", ours.endpoint, "upgrade", "--feature", "kraft.version=1"]
        return lab.release.tool(FEATURES, *words).status == 0

    wait_for("the upgrade", upgraded, every_s=0.5)
    assert ours.replica_status()["kraft_version"] == 1
    before: list[dict[str, Any]] = ours.replica_status()["voters"]
    assert all(voter["directory_id"] for voter in before)
    lead(quorum, 1)
    with Load(quorum) as load:
        load.wait_for(300, leader=1)
        lead(quorum, 3)
        load.wait_for(300, leader=3)
    finish(quorum, load.acknowledged)


@pytest.mark.since("4.1")
def test_kafkas_controller_does_not_upgrade_a_quorum_with_a_voter_that_is_no_controller(lab: Lab) -> None:
    """`kafka-features upgrade` at a controller: refused, because our voter has not registered; nothing changes."""
    quorum = lab.static(kafka=[1, 2], ours=[3], properties=BUSY)
    quorum.start()
    quorum.wait_for_growth()
    words = ["--bootstrap-controller", quorum.nodes[1].endpoint, "upgrade", "--feature", "kraft.version=1"]
    told = lab.release.tool(FEATURES, *words)

    assert told.status == 1
    assert "controller 3 has not registered" in told.out + told.err
    assert quorum.leader()["kraft_version"] == 0
    quorum.wait_for_growth()
