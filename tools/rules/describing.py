"""Answers to tools: DescribeQuorum says what the leader knows, to the record and the millisecond; DescribeCluster
who the voters are (KIP-836, KIP-919)."""

from __future__ import annotations

from typing import Any, Final

from kraftlib.consensus import events as ev
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from tools.rules.scene import Heard
from tools.rules.verdict import SceneRules, name_of

SESSION_MS: Final = 300_000
"""An observer is named for this time after its last Fetch."""

BROKERS: Final = 1
CONTROLLERS: Final = 2


class DescribeRules(SceneRules):
    """RC14 and RC15."""

    SEES = frozenset({DescribeQuorumRequest, DescribeClusterRequest})

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        if type(event) is not ev.RequestReceived or self.scene.has_new_role:
            return
        kind = type(event.request)
        if kind is DescribeQuorumRequest:
            self._rc14_quorum(event)
        elif kind is DescribeClusterRequest:
            self._rc15_cluster(event)

    def _rc14_quorum(self, event: ev.RequestReceived[Any]) -> None:
        scene, topics = self.scene, event.request.topics
        is_ours = (
            [topic.topic_name for topic in topics] == [METADATA_TOPIC]
            and [part.partition_index for part in topics[0].partitions] == [0]
        )  # fmt: skip
        response = scene.responses.get(event.request_id)
        if response is None or response.error_code:
            raise self.broken("RC14", f"DescribeQuorum is answered with {response}")
        partition = response.topics[0].partitions[0]
        error = ErrorCode.NONE
        if not is_ours:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not scene.led:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.error_code != error:
            raise self.broken("RC14", f"DescribeQuorum says {name_of(partition.error_code)}, not {error.name}")
        if error:
            return
        names_disks = event.version >= 2
        known = scene.state.high_watermark
        said: list[Any] = [
            partition.leader_id, partition.leader_epoch, partition.high_watermark,
            sorted(map(_row, partition.current_voters)), sorted(map(_row, partition.observers)),
            sorted(map(_node, response.nodes)),
        ]  # fmt: skip
        seats = scene.voters.latest
        expected: list[Any] = [
            scene.key.id, scene.state.epoch, -1 if known is None else known,
            sorted(self._voter_row(voter_id, names_disks) for voter_id in seats),
            sorted(self._observer_rows(names_disks)),
            sorted((voter_id, sorted(seat.places)) for voter_id, seat in seats.items()) if names_disks else [],
        ]  # fmt: skip
        for one, other in zip(said, expected, strict=True):
            if one != other:
                raise self.broken("RC14", f"DescribeQuorum says {one}, expected was {other}")

    def _voter_row(self, voter_id: int, names_disks: bool) -> tuple[object, ...]:
        scene, key = self.scene, self.scene.voter_key(voter_id)
        if voter_id == scene.key.id:
            now_ms = scene.now_ms + scene.state.wall_offset_ms
            directory_id = (key.directory_id if names_disks else None) or ZERO_UUID
            return voter_id, directory_id, scene.end_before, now_ms, now_ms
        return self._told(key, scene.heard.get(key, Heard()), names_disks)

    def _observer_rows(self, names_disks: bool) -> list[tuple[object, ...]]:
        scene = self.scene
        voters = {scene.voter_key(voter_id) for voter_id in scene.voters.latest}
        return [
            self._told(key, heard, names_disks)
            for key, heard in scene.heard.items()
            if key not in voters and heard.fetched_ms is not None and scene.now_ms - heard.fetched_ms <= SESSION_MS
        ]

    def _told(self, key: ReplicaKey, heard: Heard, names_disks: bool) -> tuple[object, ...]:
        offset_ms = self.scene.state.wall_offset_ms
        directory_id = (key.directory_id if names_disks else None) or ZERO_UUID
        times = (-1 if at_ms is None else at_ms + offset_ms for at_ms in (heard.at_ms, heard.caught_up_ms))
        return key.id, directory_id, heard.offset, *times

    def _rc15_cluster(self, event: ev.RequestReceived[Any]) -> None:
        scene, kind = self.scene, event.request.endpoint_type
        response = scene.responses.get(event.request_id)
        error = ErrorCode.NONE
        if kind != CONTROLLERS:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if kind == BROKERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if response is None or response.error_code != error:
            raise self.broken("RC15", f"DescribeCluster is answered with {response}, expected was {error.name}")
        if error:
            return
        places = {voter_id: scene.place_of(seat.places) for voter_id, seat in scene.voters.latest.items()}
        leader_id = scene.state.leader_and_epoch.leader_id
        expected = (
            sorted((voter_id, at.host, at.port) for voter_id, at in places.items() if at is not None),
            leader_id if leader_id is not None and places.get(leader_id) is not None else -1,
            scene.state.cluster_id or "",
        )
        nodes = sorted((broker.broker_id, broker.host, broker.port) for broker in response.brokers)
        said = nodes, response.controller_id, response.cluster_id
        if said != expected:
            raise self.broken("RC15", f"DescribeCluster says {said}, expected was {expected}")


def _row(row: Any) -> tuple[object, ...]:
    disk = row.replica_directory_id
    return row.replica_id, disk, row.log_end_offset, row.last_fetch_timestamp, row.last_caught_up_timestamp


def _node(node: Any) -> tuple[object, ...]:
    return node.node_id, sorted((at.name, at.host, at.port) for at in node.listeners)
