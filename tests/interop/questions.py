"""Wrong questions, the same to Kafka and to us: what each is, and what an answer comes down to."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import attrs

from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Endpoint
from kraftlib.wire.apis import api
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest
from tests.interop.wire import frames

PATIENCE_S: Final = 20.0
ELSEWHERE: Final = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
"""A directory, topic or key that nobody has."""
NOBODY: Final = Endpoint("127.0.0.1", 9)
"""Where nobody listens."""


@attrs.frozen(kw_only=True)
class There:
    """A node that is asked, and what is true where it is."""

    endpoint: Endpoint
    node_id: int
    directory_id: UUID
    other_id: int
    """The other voter."""
    cluster_id: str
    epoch: int
    end_offset: int
    """Below which both voters have everything."""
    vote_version: int = 2
    """The newest version of Vote that it serves."""

    def ask(self, request: Any, version: int) -> Answer:
        """Return what comes of a request."""
        frame = encode_request(request, version=version, correlation_id=5, client_id="lab")
        answer = self.ask_bytes(frame)
        if answer is None:
            return CLOSED
        _, message = decode_response(answer, api_key=request.api_key, version=version)
        return self.essence(message)

    def ask_bytes(self, frame: bytes, *, size: int | None = None) -> bytes | None:
        """Return the frame that comes back, None if the connection ends instead."""
        with socket.create_connection((self.endpoint.host, self.endpoint.port), timeout=PATIENCE_S) as connection:
            try:
                connection.sendall((len(frame) if size is None else size).to_bytes(4, "big", signed=True) + frame)
                return next(frames(connection), None)
            except ConnectionError:
                return None

    def essence(self, message: Any) -> Answer:
        """Return the error codes, and leader and epoch as they stand to this node."""
        topics = getattr(message, "topics", None) or getattr(message, "responses", None) or ()
        found: dict[str, Any] = {"top": message.error_code}
        for topic in topics:
            for partition in topic.partitions:
                found["partition"] = partition.error_code
                leader = getattr(partition, "current_leader", partition)
                # A refused DescribeQuorum names nobody: its zeros mean nothing.
                if hasattr(leader, "leader_id") and found["partition"] and not hasattr(partition, "current_voters"):
                    found["leader"] = self._who(leader.leader_id)
                    found["epoch"] = leader.leader_epoch - self.epoch
        return found

    def _who(self, node_id: int) -> str:
        return {self.node_id: "itself", self.other_id: "the other", -1: "nobody"}.get(node_id, f"a stranger, {node_id}")


Answer = Mapping[str, Any]
CLOSED: Final[Answer] = {"closed": True}
Question = tuple[Any, int]


def vote(there: There, version: int | None = None, **changed: Any) -> Question:
    """A vote that could be granted, but for what is changed; a pre-vote where there is such a thing."""
    version = there.vote_version if version is None else version
    top = {name: changed.pop(name) for name in ("cluster_id", "voter_id", "topics") if name in changed}
    topic_name = changed.pop("topic_name", METADATA_TOPIC)
    row = VoteRequest.PartitionData(
        **{
            "replica_epoch": there.epoch,
            "replica_id": there.other_id,
            "last_offset_epoch": there.epoch,
            "last_offset": there.end_offset + 1_000_000,
            "pre_vote": version >= 2,
            **changed,
        }
    )
    topics = (VoteRequest.TopicData(topic_name=topic_name, partitions=(row,)),)
    return VoteRequest(**{"cluster_id": there.cluster_id, "voter_id": there.node_id, "topics": topics, **top}), version


def begin(there: There, **changed: Any) -> Question:
    """A leader's introduction."""
    top = {name: changed.pop(name) for name in ("cluster_id", "voter_id") if name in changed}
    row = BeginQuorumEpochRequest.PartitionData(**{"leader_id": there.other_id, "leader_epoch": there.epoch, **changed})
    topic = BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
    return BeginQuorumEpochRequest(**{"cluster_id": there.cluster_id, "topics": (topic,), **top}), 1


def end(there: There, **changed: Any) -> Question:
    """A leader's farewell."""
    cluster_id = changed.pop("cluster_id", there.cluster_id)
    row = EndQuorumEpochRequest.PartitionData(**{"leader_id": there.other_id, "leader_epoch": there.epoch, **changed})
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=(topic,)), 1


def fetch(there: There, version: int = 17, **changed: Any) -> Question:
    """A Fetch by nobody in particular, of what is there."""
    top = {name: changed.pop(name) for name in ("cluster_id", "replica_id", "max_wait_ms") if name in changed}
    topic_id, topic = changed.pop("topic_id", METADATA_TOPIC_ID), METADATA_TOPIC if version < 13 else ""
    count = changed.pop("count", 1)
    row = FetchRequest.FetchPartition(
        **{"current_leader_epoch": there.epoch, "fetch_offset": 0, "last_fetched_epoch": 0, **changed}
    )
    topics = (FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=(row,)),) * count
    own_id = top.pop("replica_id", -1)
    state = FetchRequest.ReplicaState(replica_id=own_id) if version >= 15 else FetchRequest.ReplicaState()
    more = {"replica_id": own_id} if version < 15 else {"replica_state": state}
    values = {"cluster_id": there.cluster_id, "max_wait_ms": 0, "max_bytes": 1_000, "topics": topics, **more, **top}
    return FetchRequest(**(values if version >= 12 else {**values, "cluster_id": None})), version


def fetch_snapshot(there: There, **changed: Any) -> Question:
    """A question for a snapshot that is not there."""
    cluster_id = changed.pop("cluster_id", there.cluster_id)
    snapshot_id = FetchSnapshotRequest.SnapshotId(end_offset=9_999, epoch=there.epoch)
    row = FetchSnapshotRequest.PartitionSnapshot(
        **{"current_leader_epoch": there.epoch, "snapshot_id": snapshot_id, **changed}
    )
    topic = FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=(row,))
    return FetchSnapshotRequest(cluster_id=cluster_id, max_bytes=100, topics=(topic,)), 1


def describe(there: There, *, topic: str = METADATA_TOPIC, index: int = 0) -> Question:
    """DescribeQuorum."""
    row = DescribeQuorumRequest.PartitionData(partition_index=index)
    return DescribeQuorumRequest(topics=(DescribeQuorumRequest.TopicData(topic_name=topic, partitions=(row,)),)), 1


def add(there: There, **changed: Any) -> Question:
    """AddRaftVoter of somebody whom nobody reaches."""
    place = AddRaftVoterRequest.Listener(name="CONTROLLER", host=NOBODY.host, port=NOBODY.port)
    values = {"cluster_id": None, "timeout_ms": 1_000, "voter_id": 9, "voter_directory_id": ELSEWHERE}
    return AddRaftVoterRequest(**{**values, "listeners": (place,), **changed}), 0


def remove(there: There, **changed: Any) -> Question:
    """RemoveRaftVoter of nobody."""
    return RemoveRaftVoterRequest(**{"cluster_id": None, "voter_id": 9, "voter_directory_id": ELSEWHERE, **changed}), 0


def update(there: There, **changed: Any) -> Question:
    """UpdateRaftVoter of nobody."""
    place = UpdateRaftVoterRequest.Listener(name="CONTROLLER", host=NOBODY.host, port=NOBODY.port)
    feature = UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    values = {"cluster_id": there.cluster_id, "current_leader_epoch": there.epoch, "voter_id": 9}
    more = {"voter_directory_id": ELSEWHERE, "listeners": (place,), "kraft_version_feature": feature}
    return UpdateRaftVoterRequest(**{**values, **more, **changed}), 0


def version_range(low: int, high: int) -> Any:
    """What a voter says it supports."""
    return UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=low, max_supported_version=high)


def questions(there: There) -> dict[str, Question]:
    """Return every wrong question by name; they change nothing where they are refused."""
    epoch, own = there.epoch, there.node_id
    other_cluster = {"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA"}
    moved = AddRaftVoterRequest.Listener(name="ELSEWHERE", host="127.0.0.1", port=9)
    # Before pre-votes, nobody could ask in epoch 0: his last record would be of an earlier one.
    stale = {"Vote: stale epoch": vote(there, replica_epoch=epoch - 1, last_offset_epoch=0)}
    return {
        **(stale if epoch > 1 or there.vote_version >= 2 else {}),
        "Vote: other cluster": vote(there, **other_cluster),
        "Vote: other voter id": vote(there, voter_id=own + 70),
        "Vote: other voter directory": vote(there, voter_directory_id=ELSEWHERE),
        "Vote: own voter directory": vote(there, voter_directory_id=there.directory_id),
        "Vote: negative replica": vote(there, replica_id=-1),
        "Vote: negative offset": vote(there, last_offset=-1),
        "Vote: negative last epoch": vote(there, last_offset_epoch=-1),
        "Vote: last epoch ahead": vote(there, last_offset_epoch=epoch + 1),
        "Vote: last epoch is the epoch": vote(there, version=1),
        "Vote: other partition": vote(there, partition_index=1),
        "Vote: other topic": vote(there, topic_name="events"),
        "Vote: no topics": vote(there, topics=()),
        "Vote: version 0": vote(there, version=0, last_offset_epoch=0, voter_id=-1),
        "Begin: other cluster": begin(there, **other_cluster),
        "Begin: stale epoch": begin(there, leader_epoch=epoch - 1),
        "Begin: negative leader": begin(there, leader_id=-1),
        "Begin: other voter id": begin(there, voter_id=own + 70, leader_epoch=epoch - 1),
        "Begin: other partition": begin(there, partition_index=3),
        "End: other cluster": end(there, **other_cluster),
        "End: stale epoch": end(there, leader_epoch=epoch - 1),
        "End: negative leader": end(there, leader_id=-1),
        "End: other partition": end(there, partition_index=3),
        "Fetch: as it should be": fetch(there),
        "Fetch: other cluster": fetch(there, **other_cluster),
        "Fetch: no cluster": fetch(there, cluster_id=None),
        "Fetch: stale epoch": fetch(there, current_leader_epoch=epoch - 1),
        "Fetch: epoch ahead": fetch(there, current_leader_epoch=epoch + 1),
        "Fetch: no epoch": fetch(there, current_leader_epoch=-1),
        "Fetch: beyond the end": fetch(there, fetch_offset=there.end_offset + 10**9, last_fetched_epoch=epoch),
        "Fetch: negative offset": fetch(there, fetch_offset=-1),
        "Fetch: last epoch ahead": fetch(there, fetch_offset=1, last_fetched_epoch=epoch + 1),
        "Fetch: negative last epoch": fetch(there, last_fetched_epoch=-1),
        "Fetch: other topic": fetch(there, topic_id=ELSEWHERE),
        "Fetch: other partition": fetch(there, partition=1),
        "Fetch: two topics": fetch(there, count=2),
        "Fetch: no topics": fetch(there, count=0),
        "Fetch: the node's own id": fetch(there, replica_id=own, replica_directory_id=there.directory_id),
        "Fetch: version 12": fetch(there, version=12, topic_id=ZERO_UUID),
        "Fetch: version 13": fetch(there, version=13),
        "FetchSnapshot: other cluster": fetch_snapshot(there, **other_cluster),
        "FetchSnapshot: not there": fetch_snapshot(there),
        "FetchSnapshot: stale epoch": fetch_snapshot(there, current_leader_epoch=epoch - 1),
        "FetchSnapshot: other partition": fetch_snapshot(there, partition=1),
        "DescribeQuorum: as it should be": describe(there),
        "DescribeQuorum: other topic": describe(there, topic="events"),
        "DescribeQuorum: other partition": describe(there, index=1),
        "Add: other cluster": add(there, **other_cluster),
        "Add: negative id": add(there, voter_id=-1),
        "Add: no directory": add(there, voter_directory_id=ZERO_UUID),
        "Add: no listener": add(there, listeners=()),
        "Add: other listener": add(there, listeners=(moved,)),
        "Add: is a voter": add(there, voter_id=own),
        "Add: cannot be reached": add(there),
        "Remove: other cluster": remove(there, **other_cluster),
        "Remove: negative id": remove(there, voter_id=-1),
        "Remove: no directory": remove(there, voter_directory_id=ZERO_UUID),
        "Remove: is none": remove(there),
        "Remove: other directory": remove(there, voter_id=own),
        "Update: other cluster": update(there, **other_cluster),
        "Update: stale epoch": update(there, current_leader_epoch=epoch - 1),
        "Update: epoch ahead": update(there, current_leader_epoch=epoch + 1),
        "Update: negative id": update(there, voter_id=-1),
        "Update: no directory": update(there, voter_directory_id=ZERO_UUID),
        "Update: no listener": update(there, listeners=()),
        "Update: no range": update(there, kraft_version_feature=version_range(-1, 1)),
        "Update: upside down": update(there, kraft_version_feature=version_range(1, 0)),
        "Update: too old": update(there, kraft_version_feature=version_range(0, 0)),
        "Update: is none": update(there),
    }


def broken(there: There) -> dict[str, Answer]:
    """Return what comes of bytes that are no question at all."""

    def told(frame: bytes, *, size: int | None = None) -> Answer:
        answer = there.ask_bytes(frame, size=size)
        return CLOSED if answer is None else {"bytes": answer[:14].hex()}

    head = (5).to_bytes(4, "big") + b"\x00\x03lab"
    versions = encode_request(api_versions("kraft lib"), version=4, correlation_id=5, client_id="lab")
    return {
        "unknown API": told(b"\x03\xe7\x00\x00" + head),
        "unknown version of Vote": told(b"\x00\x34\x00\x63" + head + b"\x00"),
        "unknown version of ApiVersions": told(b"\x00\x12\x00\x63" + head + b"\x00"),
        "ApiVersions with a name that is none": told(versions),
        "a body that ends early": told(b"\x00\x34\x00\x02" + head + b"\x00\x20"),
        "an empty frame": told(b""),
        "a negative size": told(b"", size=-1),
        "a huge size": told(b"", size=2**31 - 1),
    }


def api_versions(name: str) -> Any:
    """Return ApiVersions of a client that calls itself so."""
    known = api(18)
    assert known is not None
    return known.request(client_software_name=name, client_software_version="1")  # type: ignore[call-arg]
