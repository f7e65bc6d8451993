"""Answers in which an error has rows: one for each thing that was asked, with the error code where none is at the top.

As in Kafka, three answers have rows beside the error at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kraftlib.codec.declarations import Message


def _create_topics(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.create_topics import CreateTopicsResponse as Response

    row = Response.CreatableTopicResult
    return Response(topics=tuple(row(name=one.name, error_code=code, error_message=None) for one in request.topics))


def _delete_topics(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.delete_topics import DeleteTopicsResponse as Response

    row = Response.DeletableTopicResult
    named = [row(name=name, error_code=code) for name in request.topic_names]
    return Response(
        responses=(*named, *(row(name=one.name, topic_id=one.topic_id, error_code=code) for one in request.topics))
    )


def _create_partitions(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.create_partitions import CreatePartitionsResponse as Response

    row = Response.CreatePartitionsTopicResult
    return Response(results=tuple(row(name=one.name, error_code=code) for one in request.topics))


def _incremental_alter_configs(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse as Response

    row = Response.AlterConfigsResourceResponse
    return Response(responses=tuple(row(error_code=code, error_message=None, **one) for one in _resources(request)))


def _alter_configs(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.alter_configs import AlterConfigsResponse as Response

    row = Response.AlterConfigsResourceResponse
    return Response(responses=tuple(row(error_code=code, error_message=None, **one) for one in _resources(request)))


def _describe_configs(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.describe_configs import DescribeConfigsResponse as Response

    row = Response.DescribeConfigsResult
    return Response(results=tuple(row(error_code=code, error_message=None, **one) for one in _resources(request)))


def _resources(request: Any) -> Iterator[dict[str, Any]]:
    for one in request.resources:
        yield {"resource_type": one.resource_type, "resource_name": one.resource_name}


def _create_acls(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.acls import CreateAclsResponse as Response

    row = Response.AclCreationResult(error_code=code, error_message=None)
    return Response(results=(row,) * len(request.creations))


def _delete_acls(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.acls import DeleteAclsResponse as Response

    row = Response.DeleteAclsFilterResult(error_code=code, error_message=None)
    return Response(filter_results=(row,) * len(request.filters))


def _alter_client_quotas(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasResponse as Response

    def row(entry: Any) -> Response.EntryData:
        parts = (Response.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity)
        return Response.EntryData(error_code=code, error_message=None, entity=tuple(parts))

    return Response(entries=tuple(map(row, request.entries)))


def _alter_user_scram_credentials(request: Any, code: int) -> Message:
    from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse as Response

    row = Response.AlterUserScramCredentialsResult
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return Response(results=tuple(row(user=user, error_code=code, error_message=None) for user in users))


def _elect_leaders(request: Any, code: int) -> dict[str, Any]:
    from kraftlib.wire.messages.elect_leaders import ElectLeadersResponse as Response

    def row(topic: Any) -> Response.ReplicaElectionResult:
        rows = (Response.PartitionResult(partition_id=n, error_code=code, error_message=None) for n in topic.partitions)
        return Response.ReplicaElectionResult(topic=topic.topic, partition_result=tuple(rows))

    return {"replica_election_results": tuple(map(row, request.topic_partitions or ()))}


def _alter_partition_reassignments(request: Any, code: int) -> dict[str, Any]:
    from kraftlib.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse as Response

    def row(topic: Any) -> Response.ReassignableTopicResponse:
        one = Response.ReassignablePartitionResponse
        rows = (one(partition_index=n.partition_index, error_code=code, error_message=None) for n in topic.partitions)
        return Response.ReassignableTopicResponse(name=topic.name, partitions=tuple(rows))

    return {"responses": tuple(map(row, request.topics))}


def _list_partition_reassignments(request: Any, code: int) -> dict[str, Any]:
    from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse as Response

    def row(topic: Any) -> Response.OngoingTopicReassignment:
        rows = (Response.OngoingPartitionReassignment(partition_index=number) for number in topic.partition_indexes)
        return Response.OngoingTopicReassignment(name=topic.name, partitions=tuple(rows))

    return {"topics": tuple(map(row, request.topics or ()))}


_BY_API: Final[Mapping[int, Callable[[Any, int], Message]]] = {
    19: _create_topics,
    20: _delete_topics,
    30: _create_acls,
    31: _delete_acls,
    32: _describe_configs,
    33: _alter_configs,
    37: _create_partitions,
    44: _incremental_alter_configs,
    49: _alter_client_quotas,
    51: _alter_user_scram_credentials,
}

_BESIDE: Final[Mapping[int, Callable[[Any, int], dict[str, Any]]]] = {
    43: _elect_leaders,
    45: _alter_partition_reassignments,
    46: _list_partition_reassignments,
}

_ROWS: Final = ("topics", "responses", "results", "filter_results", "entries")
"""The fields that hold the rows."""


def error_rows(request: Message, error_code: int) -> Message | None:
    """Return the answer to `request` with this error in each row; None, if its answer has a place at the top."""
    make = _BY_API.get(request.api_key)
    return None if make is None else make(request, error_code)


def rows_beside(request: Message, error_code: int) -> dict[str, Any]:
    """Return the field of the answer that has rows beside the error at the top; mostly there is none."""
    make = _BESIDE.get(request.api_key)
    return {} if make is None else make(request, error_code)


def has_error_row(response: Any, error_code: int) -> bool:
    """Whether a row of an answer without a place at the top has this error."""
    rows = next((getattr(response, name) for name in _ROWS if hasattr(response, name)), ())
    return response.api_key in _BY_API and any(row.error_code == error_code for row in rows)
