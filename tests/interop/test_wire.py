"""What goes over the wire in a mixed quorum: our frames under Kafka's own classes, and connections that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pytest

from tests.interop.frames import Seen, habits, seen_by_kafka, strange_habits
from tests.interop.kafka import KafkaNode, Release
from tests.interop.lab import BUSY, Lab
from tests.interop.ours import OurReplica
from tests.interop.processes import wait_for
from tests.interop.test_peers import Load, finish, lead
from tests.interop.test_voters import finish as finish_controllers
from tests.interop.wire import Pair, Wire

Record = Callable[[str, object], None]

KAFKAS: Final = (1, 2)
OURS: Final = (3, 4)
VOTE: Final = 52
PRIVATE: Final = 30_000
"""From here on API keys are those of replicas of ours among themselves."""


def heard(release: Release, wire: Wire) -> list[Seen]:
    """Return the frames from and to Kafka's replicas as Kafka reads them; nothing private is among those."""
    common = [pair for pair in wire.pairs if pair.asker in KAFKAS or pair.asked in KAFKAS]
    assert not [pair for pair in common if pair.api_key >= PRIVATE]
    return seen_by_kafka(release, thinned(common))


def thinned(pairs: Iterable[Pair], *, of_a_kind: int = 400) -> list[Pair]:
    """Return some pairs of each kind and each asker: there are thousands of Fetches."""
    counts: dict[tuple[int, int, int, int], int] = {}
    kept = []
    for pair in pairs:
        kind = (pair.api_key, pair.version, pair.asker, pair.asked)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= of_a_kind:
            kept.append(pair)
    return kept


def granted(wire: Wire, release: Release, *, by: Iterable[int], to: Iterable[int], pre_vote: bool) -> int:
    """Return how many votes these have granted to those."""
    found = [pair for pair in wire.pairs if pair.api_key == VOTE and pair.asked in by and pair.asker in to]
    seen = seen_by_kafka(release, found)
    both = zip(seen[::2], seen[1::2], strict=True)
    return sum(
        answer.body["topics"][0]["partitions"][0]["voteGranted"]
        for question, answer in both
        if answer.body["topics"] and question.body["topics"][0]["partitions"][0].get("preVote", False) == pre_vote
    )


@pytest.mark.each_release
def test_kafka_reads_our_frames_and_would_write_the_same(lab: Lab, record_property: Record) -> None:
    """All frames in 2 of Kafka's + 2 of ours: the same bytes from Kafka's classes, Kafka's habits, votes both ways."""
    wire = lab.through_a_wire()
    quorum = lab.dynamic(peers=KAFKAS, ours=OURS)
    quorum.start()
    with Load(quorum, batch=300) as load:
        for node_id in (*KAFKAS, *OURS):
            lead(quorum, node_id)
            load.wait_for(100, leader=node_id)
        for node_id in (KAFKAS[0], OURS[0]):
            lead(quorum, node_id)
            epoch = quorum.leader()["epoch"]
            quorum.nodes[node_id].stop()
            quorum.leader(not_id=node_id, min_epoch=epoch + 1)
            quorum.start(node_id)
            load.wait_for(50)
    finish(quorum, load.acknowledged)
    frames = heard(lab.release, wire)
    ours = [frame for frame in frames if frame.sender in OURS]
    theirs = [frame for frame in frames if frame.sender in KAFKAS]

    kinds = {frame.name for frame in ours}
    assert kinds >= {"ApiVersions", "Fetch", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch"}
    assert [frame for frame in ours if not frame.same] == []
    assert any(path.endswith("candidateDirectoryId") for path in habits(ours)["EndQuorumEpoch", "request", 1])
    comparable = [frame for frame in ours if frame.name != "ApiVersions"]  # who we are and what we serve is our own
    strange = strange_habits(habits(theirs), habits(comparable))
    assert not strange, "\n".join(strange)
    record_property("frames of ours read", len(ours))
    for pre_vote in (False, True) if lab.release.is_modern else (False,):
        assert granted(wire, lab.release, by=KAFKAS, to=OURS, pre_vote=pre_vote)
        assert granted(wire, lab.release, by=OURS, to=KAFKAS, pre_vote=pre_vote)


@pytest.mark.parametrize(
    ("kind", "whose"),
    [
        ("static", "ours"),
        ("dynamic", "Kafka's"),
        pytest.param("static", "Kafka's", marks=pytest.mark.slow),
        pytest.param("dynamic", "ours", marks=pytest.mark.slow),
    ],
)
def test_a_leader_that_nobody_reaches_is_replaced(lab: Lab, kind: str, whose: str, record_property: Record) -> None:
    """All connections of the leader are lost, and come back: it gives up, follows, and nothing acknowledged is lost."""
    wire = lab.through_a_wire()
    quorum = (lab.static if kind == "static" else lab.dynamic)(peers=KAFKAS, ours=OURS[:1])
    quorum.start()
    cut_off = KAFKAS[0] if whose == "Kafka's" else OURS[0]
    with Load(quorum, batch=300) as load:
        lead(quorum, cut_off)
        load.wait_for(200, leader=cut_off)
        epoch = lead(quorum, cut_off)
        wire.isolate(cut_off)
        after = quorum.leader(not_id=cut_off, min_epoch=epoch + 1)
        load.wait_for(200, leader=after["leader_id"])
        replica = quorum.nodes[cut_off]
        assert not isinstance(replica, KafkaNode)
        wait_for("the old leader to give up", lambda: replica.replica_status()["role"] != "leader")
        wire.isolate()
        wait_for("the old leader to follow", lambda: replica.replica_status()["epoch"] > epoch)
        load.wait_for(200)
    record_property("acknowledged records", len(load.acknowledged))
    finish(quorum, load.acknowledged)


@pytest.mark.parametrize("whose", ["ours", "a controller of Kafka's"])
def test_controllers_live_through_lost_connections(lab: Lab, whose: str) -> None:
    """2 controllers + 1 voter of ours: the active controller, or our voter, is cut off; equal logs after."""
    wire = lab.through_a_wire()
    quorum = lab.dynamic(kafka=KAFKAS, ours=OURS[:1], properties=BUSY)
    quorum.start()
    quorum.wait_for_growth()
    before = quorum.leading_controller()
    ours = quorum.nodes[OURS[0]]
    assert isinstance(ours, OurReplica)
    if whose == "ours":
        wire.isolate(OURS[0])
        wait_for("our voter to notice", lambda: ours.replica_status()["role"] == "prospective")
    else:
        wire.isolate(before["leader_id"])
        quorum.leading_controller(not_id=before["leader_id"], min_epoch=before["epoch"] + 1)
        quorum.wait_for_growth()
    wire.isolate()
    quorum.wait_for_growth(20)
    quorum.leading_controller()
    quorum.wait_for_growth(20)
    finish_controllers(quorum)
