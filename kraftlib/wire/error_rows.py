"""Answers that have no place for an error at the top: one error code stands in the row of each thing that was asked."""

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

_ROWS: Final = ("topics", "responses", "results", "filter_results", "entries")
"""The fields that hold the rows."""


def error_rows(request: Message, error_code: int) -> Message | None:
    """Return the answer to `request` with this error in each row; None, if its answer has a place at the top."""
    make = _BY_API.get(request.api_key)
    return None if make is None else make(request, error_code)


def has_error_row(response: Any, error_code: int) -> bool:
    """Whether a row of such an answer has this error."""
    rows = next((getattr(response, name) for name in _ROWS if hasattr(response, name)), ())
    return response.api_key in _BY_API and any(row.error_code == error_code for row in rows)
