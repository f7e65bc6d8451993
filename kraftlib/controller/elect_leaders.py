"""ElectLeaders: elections on request (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.partitions import NO_LEADER, Election, change
from kraftlib.controller.results import RECORDS_MAX, Decision
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.wire.apis import ErrorCode, error_answer
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

KINDS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
Row = ElectLeadersResponse.PartitionResult

_TEXTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "No such topic or partition.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
    ErrorCode.POLICY_VIOLATION: "Excessively large number of elections per request.",
}


def elect_leaders(context: Context, request: ElectLeadersRequest, version: int) -> Decision:
    """Hold the elections; of all partitions only those in which something happened are told."""
    kind = KINDS.get(request.election_type)
    if request.topic_partitions == ():  # Kafka's controller looks at nothing else then
        return Decision(answer=ElectLeadersResponse())
    if kind is None:
        return Decision(answer=error_answer(request, ErrorCode.INVALID_REQUEST))
    records: list[Message] = []
    results = []
    for name, numbers in _wanted(context, request):
        rows = [_elect(context, name, number, kind, records) for number in numbers]
        if request.topic_partitions is None:
            rows = [row for row in rows if row.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ElectLeadersResponse.ReplicaElectionResult(topic=name, partition_result=tuple(rows)))
    return Decision(records, ElectLeadersResponse(replica_election_results=tuple(results)))


def _wanted(context: Context, request: ElectLeadersRequest) -> Iterator[tuple[str, range | tuple[int, ...]]]:
    if request.topic_partitions is not None:
        yield from ((row.topic, row.partitions) for row in request.topic_partitions)
        return
    for topic in context.state.topics.topics.values():
        yield topic.name, range(topic.partition_count)


def _elect(context: Context, name: str, number: int, kind: Election, records: list[Message]) -> Row:
    topic = context.state.topics.named(name)
    partition = None if topic is None else context.state.topics.partitions.get((topic.topic_id, number))
    code = ErrorCode.NONE
    if partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not _is_needed(partition, kind):
        code = ErrorCode.ELECTION_NOT_NEEDED
    elif len(records) == RECORDS_MAX:
        code = ErrorCode.POLICY_VIOLATION
    else:
        record = change(partition, context.rules(), election=kind)
        if record is not None:
            records.append(record)
        elif kind is Election.PREFERRED:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        else:
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return Row(partition_id=number, error_code=code, error_message=_TEXTS.get(code))


def _is_needed(partition: PartitionRecord, kind: Election) -> bool:
    if kind is Election.PREFERRED:
        return not partition.replicas or partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER
