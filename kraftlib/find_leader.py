"""Where the leader of a quorum is reached, asked of any replica, ours or Kafka's.

Only the leader answers DescribeQuorum. One that does not lead names the leader in its answer to DescribeCluster, which
needs no other role; older controllers of Kafka do so in their answer to a Fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftlib.errors import KraftError, RemoteProtocolError
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from kraftlib.wire.apis import ApiKey, ErrorCode, error_name
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire_client import Login, UnreachableError, WireClient

CONTROLLERS: Final = 2
"""Kind of endpoint in DescribeCluster, version 1 on."""


def find_leader(servers: Sequence[Endpoint], *, timeout_s: float, login: Login | None = None) -> Endpoint:
    """Return where the leader is reached, from any of `servers`.

    Raises: UnreachableError that tells what each of them said, if none leads to a leader.
    """
    waiting, asked, said = list(servers), set[Endpoint](), list[str]()
    while waiting:
        endpoint = waiting.pop(0)
        if endpoint in asked:
            continue
        asked.add(endpoint)
        try:
            with WireClient(endpoint, timeout_s=timeout_s, login=login) as client:
                answer = client.ask(question(), DescribeQuorumResponse)
                partition = only_partition(answer, endpoint)
                if partition.error_code == ErrorCode.NONE:
                    return endpoint
                said.append(f"{endpoint} does not lead ({error_name(partition.error_code)})")
                leader = _leader_in_cluster(client) or _leader_by_fetch(client)
        except KraftError as error:
            said.append(str(error))
        else:
            # The leader itself, before the other replicas that were named on the command line.
            waiting[:0] = [leader] if leader is not None else []
    raise UnreachableError(f"no leader found: {'; '.join(said)}")


def question() -> DescribeQuorumRequest:
    """Return what only a leader answers: the members of the quorum, and their progress."""
    partition = DescribeQuorumRequest.PartitionData()
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return DescribeQuorumRequest(topics=(topic,))


def only_partition(answer: DescribeQuorumResponse, endpoint: Endpoint) -> DescribeQuorumResponse.PartitionData:
    """Return what an answer says of the metadata partition. Raises: RemoteProtocolError."""
    if answer.error_code != ErrorCode.NONE:
        raise RemoteProtocolError(f"{endpoint} refuses: {error_name(answer.error_code)} {answer.error_message or ''}")
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise RemoteProtocolError(f"{endpoint} answers with {len(partitions)} partitions")
    return partitions[0]


def _leader_in_cluster(client: WireClient) -> Endpoint | None:
    """Ask for the controllers, and which of them leads."""
    if not client.knows(ApiKey.DESCRIBE_CLUSTER):
        return None
    answer = client.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse)
    places = {node.broker_id: Endpoint(node.host, node.port) for node in answer.brokers}
    return places.get(answer.controller_id)


def _leader_by_fetch(client: WireClient) -> Endpoint | None:
    """Send a Fetch without a replica id, in a past epoch: the refusal names the leader and its endpoint."""
    partition = FetchRequest.FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=0)
    topic = FetchRequest.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    answer = client.ask(FetchRequest(max_wait_ms=0, topics=(topic,)), FetchResponse)
    leaders = {part.current_leader.leader_id for topic_ in answer.responses for part in topic_.partitions}
    return next((Endpoint(node.host, node.port) for node in answer.node_endpoints if node.node_id in leaders), None)
