"""Kafka's tools against a quorum that is wholly ours, without one metadata record in its log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kraftlib.types import Endpoint, new_uuid, uuid_text
from tests.interop.kafka import CLUSTER, FEATURES, Output
from tests.interop.lab import Lab, Quorum
from tests.interop.ours import ROOT, OurReplica
from tests.interop.processes import wait_for


def bootstrap(quorum: Quorum) -> list[Endpoint]:
    """Return where the quorum is reached: all of its voters."""
    return [node.endpoint for node in quorum.nodes.values()]


def our_status(quorum: Quorum) -> dict[str, Any]:
    """Return what `kraftlib quorum status` says."""
    command = [sys.executable, "-m", "kraftlib.cli", "quorum", "status", "--output", "json"]
    servers = ",".join(map(str, bootstrap(quorum)))
    done = subprocess.run(
        [*command, "--bootstrap", servers], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def status_of(shown: Output) -> dict[str, Any]:
    """Read the lines of `describe --status`."""
    lines = [line.partition(":") for line in shown.ok().out.splitlines() if ":" in line]
    return {name: json.loads(value) if "[" in value else value.strip() for name, _, value in lines}


def voters_of(status: Mapping[str, Any]) -> dict[int, str | None]:
    """Return the voters that a description names, with their directory ids."""
    return {voter["id"]: voter.get("directoryId") for voter in status["CurrentVoters"]}


@pytest.mark.each_release
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_kafka_metadata_quorum_describes_our_quorum(lab: Lab, kind: str) -> None:
    """`describe --status` and `--replication` say of our quorum what `kraftlib quorum status` says."""
    quorum = (lab.static if kind == "static" else lab.dynamic)(ours=[1, 2, 3])
    quorum.start()
    leader = quorum.leader()
    ours = our_status(quorum)

    status = status_of(lab.release.quorum(bootstrap(quorum), "describe", "--status"))
    table = lab.release.quorum(bootstrap(quorum), "describe", "--replication").ok().out

    assert status["ClusterId"] == lab.cluster_id
    assert int(status["LeaderId"]) == leader["leader_id"] == ours["leader_id"]
    assert int(status["LeaderEpoch"]) == leader["epoch"]
    assert int(status["HighWatermark"]) == ours["high_watermark"]
    assert voters_of(status) == {voter["id"]: voter["directory_id"] for voter in ours["voters"]}
    assert (voters_of(status)[1] is None) == (kind == "static")
    assert [voter["endpoints"] for voter in status["CurrentVoters"]] == [
        [f"CONTROLLER://{quorum.places[number]}"] for number in (1, 2, 3)
    ]
    rows = [line.split() for line in table.splitlines()]
    assert [row[-1] for row in rows] == ["Status", "Leader", "Follower", "Follower"]
    assert {row[2] for row in rows[1:]} == {str(ours["high_watermark"])}


def test_one_follower_is_enough_to_find_the_leader(lab: Lab) -> None:
    """`--bootstrap-controller` with a voter that does not lead: DescribeCluster names the others."""
    quorum = lab.static(ours=[1, 2, 3])
    quorum.start()
    leader = quorum.leader()
    follower = next(node for node in quorum.nodes.values() if node.node_id != leader["leader_id"])

    status = status_of(lab.release.quorum([follower.endpoint], "describe", "--status"))
    told = lab.release.tool(CLUSTER, "cluster-id", "--bootstrap-controller", follower.endpoint).ok().out

    assert int(status["LeaderId"]) == leader["leader_id"]
    assert lab.cluster_id in told


def controller_properties(quorum: Quorum, node: OurReplica) -> Path:
    """Return what `add-controller` reads: the properties that a controller of Kafka in its place would have."""
    path = quorum.lab.home / f"as-kafka-{node.node_id}.properties"
    path.write_text(
        f"process.roles=controller\nnode.id={node.node_id}\nlog.dirs={node.directory}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://{node.endpoint}\n"
        f"controller.quorum.bootstrap.servers={quorum.kafka_words['controller.quorum.bootstrap.servers']}\n"
    )
    return path


@pytest.mark.each_release
def test_kafka_metadata_quorum_adds_and_removes_our_voters(lab: Lab) -> None:
    """`add-controller` of a replica of ours that follows, `remove-controller` of the leader: both change our quorum."""
    quorum = lab.dynamic(ours=[1, 2, 3])
    quorum.start()
    leader = quorum.leader()
    newcomer = quorum.ours(4)
    newcomer.format(lab.cluster_id, no_initial_controllers=True)
    quorum.start(4)
    wait_for("the newcomer to follow", lambda: newcomer.replica_status()["high_watermark"])
    voters = bootstrap(quorum)[:3]

    added = lab.release.quorum(voters, "add-controller", config=controller_properties(quorum, newcomer)).ok()
    status = status_of(lab.release.quorum(voters, "describe", "--status"))
    assert "Added controller 4" in added.out
    assert set(voters_of(status)) == {1, 2, 3, 4}

    going = leader["leader_id"]
    directory_id = voters_of(status)[going]
    removed = lab.release.quorum(
        voters, "remove-controller", "--controller-id", going, "--controller-directory-id", directory_id
    ).ok()
    after = quorum.leader(not_id=going)
    assert f"controller {going}" in removed.out
    assert {voter["id"] for voter in after["voters"]} == {1, 2, 3, 4} - {going}


def test_what_cannot_be_changed_is_refused_as_kafka_refuses_it(lab: Lab) -> None:
    """A key that is no voter, and an id that votes already: the tool names the error and ends with 1."""
    quorum = lab.dynamic(ours=[1])
    quorum.start()
    quorum.leader()
    stranger = ["--controller-id", 7, "--controller-directory-id", uuid_text(new_uuid())]

    missing = lab.release.quorum(bootstrap(quorum), "remove-controller", *stranger)
    node = quorum.nodes[1]
    assert isinstance(node, OurReplica)
    twice = lab.release.quorum(bootstrap(quorum), "add-controller", config=controller_properties(quorum, node))

    assert (missing.status, twice.status) == (1, 1)
    assert "VoterNotFoundException" in missing.err
    assert "DuplicateVoterException" in twice.err


def features(lab: Lab, quorum: Quorum, *words: object) -> Output:
    """Run `kafka-features`."""
    return lab.release.tool(
        FEATURES, "--bootstrap-controller", ",".join(map(str, bootstrap(quorum))), *words, timeout_s=90
    )


@pytest.mark.since("4.1")
def test_kafka_features_makes_our_static_quorum_dynamic(lab: Lab) -> None:
    """`kafka-features upgrade --feature kraft.version=1`: our quorum becomes dynamic, stays so, and cannot go back."""
    quorum = lab.static(ours=[1, 2, 3])
    quorum.start()
    quorum.leader()
    before = features(lab, quorum, "describe").ok().out
    assert "kraft.version" in before

    def upgraded() -> Output | None:
        told = features(lab, quorum, "upgrade", "--feature", "kraft.version=1")
        return told if told.status == 0 else None

    told = wait_for("all voters to have said what they support", upgraded, every_s=0.5)
    assert told is not None
    assert "kraft.version was upgraded to 1." in told.out
    assert "FinalizedVersionLevel: 1" in features(lab, quorum, "describe").ok().out
    status = status_of(lab.release.quorum(bootstrap(quorum), "describe", "--status"))
    assert None not in voters_of(status).values()

    back = features(lab, quorum, "downgrade", "--feature", "kraft.version=0")
    assert back.status == 1
    assert "downgrade" in back.out + back.err
    for number in (1, 2, 3):
        quorum.nodes[number].kill()
    quorum.start()
    again = quorum.leader()
    assert again["kraft_version"] == 1
    assert {voter["id"]: voter["directory_id"] for voter in again["voters"]} == voters_of(status)
