"""`kraftlib quorum status`: the leader, and the progress of every replica; of a quorum of ours or of Kafka's.

Only the leader knows (DescribeQuorum). Any replica will do to find it: see `kraftlib.find_leader`. The text is that of
`kafka-metadata-quorum describe`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import attrs

from kraftlib.cli import quorum_changes
from kraftlib.cli.login import add_login_arguments, login_of
from kraftlib.cli.usage import servers_of
from kraftlib.errors import RemoteProtocolError
from kraftlib.find_leader import CONTROLLERS, find_leader, only_partition, question
from kraftlib.types import ZERO_UUID, Endpoint, uuid_text
from kraftlib.wire.apis import ApiKey, ErrorCode, PrivateApiKey, error_name
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlib.wire.messages.describe_quorum import DescribeQuorumResponse
from kraftlib.wire.messages.state_digest import StateDigestRequest, StateDigestResponse
from kraftlib.wire_client import Login, UnreachableError, WireClient

Row = DescribeQuorumResponse.ReplicaState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the questions."""
    parser.description = "Ask a running quorum of kraftlib replicas or Kafka controllers."
    parser.epilog = (
        "examples:\n"
        "  kraftlib quorum status --bootstrap 127.0.0.1:9001,127.0.0.1:9002\n"
        "  kraftlib quorum status --bootstrap 127.0.0.1:9001 --replication --human-readable"
    )
    questions = parser.add_subparsers(dest="question", metavar="QUESTION", required=True)
    status = questions.add_parser("status", help="leader, epoch, high watermark, voters and observers")
    status.add_argument(
        "--bootstrap", required=True, metavar="HOST:PORT,…", help="replicas to ask; one that answers is enough"
    )
    status.add_argument(
        "--replication", action="store_true", help="print a row for each replica, with its offset and lag"
    )
    status.add_argument("--human-readable", action="store_true", help="with --replication: times as `N ms ago`")
    status.add_argument("--output", choices=("text", "json"), default="text", help="json: everything, in one object")
    status.add_argument("--timeout-ms", type=int, default=5_000, help="time limit for each answer (5000)")
    add_login_arguments(status)
    quorum_changes.add_arguments(questions)


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    if options.question != "status":
        return quorum_changes.run(options)
    servers = servers_of(options)
    found = describe(servers, timeout_s=options.timeout_ms / 1_000, login=login_of(options))
    if options.output == "json":
        print(json.dumps(found.to_dict()))
    elif options.replication:
        print(found.replication(now_ms=int(time.time() * 1_000) if options.human_readable else None))
    else:
        print(found.status())
    return 0


@attrs.frozen(kw_only=True)
class Description:
    """The leader's description of its quorum."""

    cluster_id: str | None
    """None, if the leader does not tell."""
    leader_id: int
    epoch: int
    high_watermark: int
    voters: Sequence[Row]
    observers: Sequence[Row]
    endpoints: dict[int, list[str]]
    states: StateDigestResponse | None = None
    """The leader's comparison of states (`digest_interval_ms`); None, if it does not compare them."""

    @property
    def leader(self) -> Row:
        """The leader's own row."""
        return next(row for row in self.voters if row.replica_id == self.leader_id)

    def lag_of_slowest(self) -> tuple[int, int]:
        """Return how far the slowest voter is behind, in records and in ms; -1 ms, if that is unknown."""
        leader, slowest = self.leader, min(self.voters, key=lambda row: row.log_end_offset)
        lag = leader.log_end_offset - slowest.log_end_offset
        if slowest is leader:
            return lag, 0
        times = leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp
        return lag, -1 if -1 in times else times[0] - times[1]

    def status(self) -> str:
        """Return the text of `kafka-metadata-quorum describe --status`."""
        lag, lag_ms = self.lag_of_slowest()
        lines = {
            "ClusterId": self.cluster_id or "unknown",
            "LeaderId": self.leader_id,
            "LeaderEpoch": self.epoch,
            "HighWatermark": self.high_watermark,
            "MaxFollowerLag": lag,
            "MaxFollowerLagTimeMs": lag_ms,
            "CurrentVoters": f"[{', '.join(map(self._replica_text, self.voters))}]",
            "CurrentObservers": f"[{', '.join(map(self._replica_text, self.observers))}]",
        }
        if self.states is not None:
            lines["States"] = self._states_text(self.states)
        return "\n".join(f"{name + ':':<24}{value}" for name, value in lines.items())

    @staticmethod
    def _states_text(states: StateDigestResponse) -> str:
        """Return what the comparison of states has found."""
        found = ["the leader is quarantined"] if states.is_quarantined else []
        found += [f"replica {replica_id} differs from the majority" for replica_id in states.differing]
        if states.undecided_offset >= 0:
            found.append(f"replicas differ at offset {states.undecided_offset}, without a majority")
        return "; ".join(found) or f"equal at offset {states.agreed_offset}"

    def _replica_text(self, row: Row) -> str:
        replica: dict[str, Any] = {"id": row.replica_id}
        if row.replica_directory_id != ZERO_UUID:
            replica["directoryId"] = uuid_text(row.replica_directory_id)
        if row.replica_id in self.endpoints:
            replica["endpoints"] = self.endpoints[row.replica_id]
        return json.dumps(replica)

    def replication(self, *, now_ms: int | None = None) -> str:
        """Return the text of `kafka-metadata-quorum describe --replication`; with `now_ms`, times as `N ms ago`."""
        followers = [row for row in self.voters if row is not self.leader]
        kinds = [("Leader", [self.leader]), ("Follower", followers), ("Observer", self.observers)]
        table = [
            "NodeId DirectoryId LogEndOffset Lag LastFetchTimestamp LastCaughtUpTimestamp Status".split(),
            *(self._cells(row, kind, now_ms) for kind, rows in kinds for row in rows),
        ]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "".join(f"{cell:<{width}}\t" for cell, width in zip(cells, widths, strict=True)) for cells in table
        )

    def _cells(self, row: Row, kind: str, now_ms: int | None) -> list[str]:
        def shown(timestamp: int) -> str:
            return str(timestamp) if now_ms is None or timestamp == -1 else f"{now_ms - timestamp} ms ago"

        return [
            str(row.replica_id),
            uuid_text(row.replica_directory_id),
            str(row.log_end_offset),
            str(self.leader.log_end_offset - row.log_end_offset),
            shown(row.last_fetch_timestamp),
            shown(row.last_caught_up_timestamp),
            kind,
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        lag, lag_ms = self.lag_of_slowest()
        return {
            "cluster_id": self.cluster_id,
            "leader_id": self.leader_id,
            "leader_epoch": self.epoch,
            "high_watermark": self.high_watermark,
            "max_follower_lag": lag,
            "max_follower_lag_time_ms": lag_ms,
            "voters": [self._replica_dict(row) for row in self.voters],
            "observers": [self._replica_dict(row) for row in self.observers],
            "states": None if self.states is None else _states_dict(self.states),
        }

    def _replica_dict(self, row: Row) -> dict[str, Any]:
        return {
            "id": row.replica_id,
            "directory_id": _text_or_none(row.replica_directory_id),
            "endpoints": self.endpoints.get(row.replica_id, []),
            "log_end_offset": row.log_end_offset,
            "lag": self.leader.log_end_offset - row.log_end_offset,
            "last_fetch_timestamp": row.last_fetch_timestamp,
            "last_caught_up_timestamp": row.last_caught_up_timestamp,
        }


def _states_dict(states: StateDigestResponse) -> dict[str, Any]:
    return {
        "agreed_offset": states.agreed_offset,
        "undecided_offset": states.undecided_offset,
        "differing": list(states.differing),
        "leader_is_quarantined": states.is_quarantined,
    }


def _text_or_none(directory_id: UUID) -> str | None:
    return None if directory_id == ZERO_UUID else uuid_text(directory_id)


def describe(servers: Sequence[Endpoint], *, timeout_s: float, login: Login | None = None) -> Description:
    """Find the leader from any of `servers` and return what it says. Raises: as `find_leader`."""
    leader = find_leader(servers, timeout_s=timeout_s, login=login)
    with WireClient(leader, timeout_s=timeout_s, login=login) as client:
        answer = client.ask(question(), DescribeQuorumResponse)
        partition = only_partition(answer, leader)
        if partition.error_code != ErrorCode.NONE:
            raise UnreachableError(f"no leader found: {leader} led a moment ago ({error_name(partition.error_code)})")
        cluster_id = _cluster_id(client)
        return attrs.evolve(_description(answer, partition, cluster_id), states=_states(client, cluster_id))


def _description(
    answer: DescribeQuorumResponse, partition: DescribeQuorumResponse.PartitionData, cluster_id: str | None
) -> Description:
    if partition.leader_id not in {row.replica_id for row in partition.current_voters}:
        raise RemoteProtocolError(f"the leader {partition.leader_id} is not among its voters")
    return Description(
        cluster_id=cluster_id,
        leader_id=partition.leader_id,
        epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=partition.current_voters,
        observers=partition.observers,
        endpoints={
            node.node_id: [f"{place.name}://{Endpoint(place.host, place.port)}" for place in node.listeners]
            for node in answer.nodes
        },
    )


def _cluster_id(client: WireClient) -> str | None:
    """Ask for the name of the cluster, where the leader answers that kind of question."""
    if not client.knows(ApiKey.DESCRIBE_CLUSTER):
        return None
    answer = client.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse)
    return answer.cluster_id or None


def _states(client: WireClient, cluster_id: str | None) -> StateDigestResponse | None:
    """Ask what the leader knows of the states of the replicas, where it compares them and we may ask."""
    if not client.knows(PrivateApiKey.STATE_DIGEST):
        return None
    try:
        answer = client.ask(StateDigestRequest(cluster_id=cluster_id), StateDigestResponse)
    except (UnreachableError, RemoteProtocolError):
        return None  # it tells replicas and observers only
    knows_something = answer.digests or answer.is_quarantined or answer.differing or answer.undecided_offset >= 0
    return answer if answer.error_code == ErrorCode.NONE and knows_something else None
