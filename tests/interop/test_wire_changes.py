"""Rare requests: how replicas and tools, ours and Kafka's, ask for changes and snapshots, and what leaders answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from kraftlib.config import RaftConfig
from kraftlib.storage.directory import open_directory
from kraftlib.types import Endpoint, uuid_text
from kraftlib.wire_client import CLIENT_ID
from tests.interop.frames import Seen, by_accident, habits, seen_by_kafka
from tests.interop.kafka import KafkaNode, Release
from tests.interop.lab import Lab, Quorum
from tests.interop.ours import ROOT, OurReplica
from tests.interop.peer import JavaPeer
from tests.interop.processes import PATIENCE_S, wait_for
from tests.interop.test_membership import moved
from tests.interop.test_observer import snapshots, with_segments_and_snapshots
from tests.interop.test_peers import Load, begin_at_snapshot, take_snapshot
from tests.interop.test_refusals import directory_id
from tests.interop.test_tools import controller_properties, status_of, voters_of
from tests.interop.test_wire import PRIVATE, thinned
from tests.interop.wire import Wire

Record = Callable[[str, object], None]

LEADER, OURS, KAFKAS = 1, 3, 4

ASKED: Final = {
    "ApiVersions", "Fetch", "FetchSnapshot", "AddRaftVoter", "UpdateRaftVoter", "RemoveRaftVoter", "DescribeQuorum",
}  # fmt: skip
"""What ours ask a leader."""

OWN: Final = (
    *("clientSoftwareName", "clientSoftwareVersion", "timeoutMs", "maxBytes"),
    *("Id", "port", "Offset", "Watermark", "Timestamp", "snapshotId.epoch", "lastFetchedEpoch", "size", "InBytes"),
)
"""Endings of fields in which everybody has something else to say.

maxBytes is a setting of later releases. The epoch of the snapshot that a replica gets, and the one that it asks on
with, are those of the newest one at that time: the leader takes others in its own epoch meanwhile.
"""

CALM = {"controller.quorum.fetch.timeout.ms": 12_000}
OUR_CALM = {"fetch_timeout_ms": 12_000, "yield_to": []}
"""Nobody stands because the machine is busy; for so long Kafka waits before it sends UpdateRaftVoter."""


def under_kafkas_leader(lab: Lab) -> Quorum:
    """Return a running controller of Kafka whose log begins at a snapshot."""
    quorum = lab.dynamic(kafka=[LEADER], properties={**snapshots(lab.release), **CALM}, settings=OUR_CALM)
    node = with_segments_and_snapshots(quorum)
    node.stop()
    opened = open_directory(RaftConfig(node_id=LEADER, directory=node.directory, file_mode=0o644))
    opened.log.delete_before(opened.log.snapshots()[-1])
    opened.close()
    quorum.start()
    quorum.kafka(KAFKAS).format(lab.cluster_id, "--no-initial-controllers")
    return quorum


def under_our_leader(lab: Lab) -> Quorum:
    """Return a running replica of ours whose log begins at a snapshot."""
    quorum = lab.dynamic(ours=[LEADER], properties=CALM, settings=OUR_CALM)
    quorum.start()
    with Load(quorum) as load:
        load.wait_for(500)
    node = quorum.nodes[LEADER]
    assert isinstance(node, OurReplica)
    snapshot_id = take_snapshot(node)
    node.kill()
    begin_at_snapshot(node, snapshot_id, source=node)
    quorum.start()
    quorum.peer(KAFKAS).format(lab.cluster_id, "--no-initial-controllers")
    return quorum


def our_tool(*words: object) -> None:
    """Run `kraftlib quorum`."""
    command = [sys.executable, "-m", "kraftlib.cli", "quorum", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def have_voters_come_move_and_go(quorum: Quorum) -> None:
    """Let a replica of each kind fetch the snapshot, be added by the other's tool, move to another port, be removed."""
    release, leader = quorum.lab.release, quorum.nodes[LEADER]
    place: list[Endpoint] = [leader.endpoint]
    ours = quorum.ours(OURS)
    ours.format(quorum.lab.cluster_id, no_initial_controllers=True)
    kafkas = quorum.nodes[KAFKAS]
    assert isinstance(kafkas, KafkaNode | JavaPeer)
    for node in (ours, kafkas):
        node.start()
        wait_for("the snapshot", lambda node=node: list(node.partition.glob("*[1-9]*-*.checkpoint")))

    def voters() -> dict[int, str | None]:
        return voters_of(status_of(release.quorum(place, "describe", "--status")))

    keys = {node.node_id: uuid_text(directory_id(node)) for node in (ours, kafkas)}
    release.quorum(place, "add-controller", config=controller_properties(quorum, ours)).ok()
    words = ["--id", KAFKAS, "--directory-id", keys[KAFKAS]]
    our_tool("add-voter", *words, "--endpoint", kafkas.endpoint, "--bootstrap", place[0])
    assert voters().keys() == {LEADER, OURS, KAFKAS}
    for node in (ours, kafkas):
        node.kill()
        moved(node, quorum, quorum.lab.endpoint())
        node.start()
        port = f":{node.endpoint.port}"
        wait_for("the new port", lambda port=port: port in release.quorum(place, "describe", "--status").out, every_s=1)
    our_tool("remove-voter", *words, "--bootstrap", place[0])
    words = ["--controller-id", OURS, "--controller-directory-id", keys[OURS]]
    release.quorum(place, "remove-controller", *words).ok()
    assert voters().keys() == {LEADER}


def exchanges(release: Release, wire: Wire) -> list[tuple[Seen, Seen]]:
    """Return what the leader was asked and what it answered, as Kafka reads it."""
    seen = seen_by_kafka(release, thinned([pair for pair in wire.pairs if pair.asked == LEADER], of_a_kind=60))
    return list(zip(seen[::2], seen[1::2], strict=True))


def is_ours(question: Seen) -> bool:
    """Whether a replica or tool of ours has asked."""
    return question.sender == OURS or question.header["clientId"] == CLIENT_ID


def said(frames: Iterable[Seen]) -> dict[tuple[str, str, int], dict[str, set[Any]]]:
    """Return which values were in which fields of each kind of frame."""
    return {place: {path: set(values) for path, values in fields.items()} for place, fields in habits(frames).items()}


def unlike(ours: Iterable[Seen], theirs: Iterable[Seen]) -> list[str]:
    """Return in which fields ours say what Kafka's never say, and which kinds of frame only ours send."""
    known = said(theirs)
    return [
        f"{place} {path}: {sorted(map(repr, values))[:3]}, Kafka {sorted(map(repr, theirs_there))[:3]}"
        for place, fields in said(ours).items()
        for path, sent in fields.items()
        if not path.endswith(OWN)
        and not (values := by_accident(place, path, sent)) <= (theirs_there := known.get(place, {}).get(path, set()))
    ]


@pytest.mark.since("4.0")  # UpdateRaftVoter is among them: see test_membership.py
def test_rare_requests_are_asked_and_answered_as_kafka_does(lab: Lab, record_property: Record) -> None:
    """Snapshots, voters added, moved, removed by tools and replicas of both, under both leaders: the same frames."""
    answers: dict[str, list[Seen]] = {}
    for leader in (under_kafkas_leader, under_our_leader):
        lab.home = lab.home / leader.__name__
        lab.home.mkdir()
        wire = lab.through_a_wire()
        quorum = leader(lab)
        have_voters_come_move_and_go(quorum)
        for node in quorum.nodes.values():
            node.kill()
        wire.close()
        found = exchanges(lab.release, wire)
        ours = [question for question, _ in found if is_ours(question)]
        theirs = [question for question, _ in found if not is_ours(question)]
        answers[leader.__name__] = [answer for _, answer in found if answer.name != "ApiVersions"]

        assert [frame for frame in [*ours, *answers[leader.__name__]] if not frame.same] == []
        assert {frame.name for frame in ours} == ASKED
        assert unlike(ours, theirs) == []
        record_property(f"frames {leader.__name__.replace('_', ' ')}", 2 * len(found))
        told = [
            key["apiKey"]
            for question, answer in found
            if not is_ours(question)
            for key in answer.body.get("apiKeys", ())
        ]
        assert max(told) < PRIVATE
    assert unlike(answers["under_our_leader"], answers["under_kafkas_leader"]) == []
