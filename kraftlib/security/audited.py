"""The words of the audit log: which requests are audited, what each of them changes, and what became of it.

`AUDITED` has one entry for each request: the names that it changes, and where its answer keeps the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kraftlib.frozen import immutable
from kraftlib.types import ZERO_UUID, Endpoint, uuid_text
from kraftlib.wire.apis import ApiKey, ErrorCode, PrivateApiKey, error_name

NAMES_MAX: Final = 8
"""Names in one line."""

RESOURCES: Final = "0 any TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER".split()
PERMISSIONS: Final = "0 any DENY ALLOW".split()
OPERATIONS: Final = (
    "0 any ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE"
    " CREATE_TOKENS DESCRIBE_TOKENS TWO_PHASE_COMMIT"
).split()
"""The words for the codes of access rules (KIP-11), by code."""


def subject_of(request: Any) -> str:
    """Return what a request changes, for people: a voter with its endpoints, features, topics; empty for others."""
    audited = AUDITED.get(request.api_key)
    if audited is None:
        return ""
    names = audited.names(request)
    more = len(names) - NAMES_MAX
    text = ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
    return text + (" (to validate only)" if _validates_only(audited, request) else "")


def outcome_of(request: Any, answer: Any) -> str:
    """Return the error of an answer, with its words; `NONE` if there is none. Of several rows it is the first error."""
    if answer is None:
        return "the connection was closed"
    audited = AUDITED.get(request.api_key, UNKNOWN)
    if audited.has_error and answer.error_code:
        return _error_of(answer)
    rows = audited.rows(answer)
    failed = [row for row in rows if row.error_code]
    if not failed:
        return ErrorCode.NONE.name
    done = len(rows) - len(failed)
    return f"{done} of {len(rows)} done; {_error_of(failed[0])}" if done else _error_of(failed[0])


def has_line(request: Any, answer: Any) -> bool:
    """Whether an answer has a line at all: one to a request that only looks has one if rules of access refuse it."""
    audited = AUDITED.get(request.api_key, UNKNOWN)
    if not audited.looks or answer is None:
        return True
    codes = [row.error_code for row in audited.rows(answer)] + ([answer.error_code] if audited.has_error else [])
    return not REFUSED_BY_RULES.isdisjoint(codes)


def is_done(request: Any, answer: Any) -> bool:
    """Whether an answer says that something was changed. `request` is one of `AUDITED`."""
    audited = AUDITED[request.api_key]
    if (
        answer is None
        or audited.looks
        or _validates_only(audited, request)
        or (audited.has_error and answer.error_code)
    ):
        return False
    rows = audited.rows(answer)
    return not rows or any(not row.error_code for row in rows)


def _validates_only(audited: Audited, request: Any) -> bool:
    return audited.validates and request.validate_only


def _error_of(row: Any) -> str:
    words = getattr(row, "error_message", None)  # UpdateRaftVoter and ElectionPriority have none
    return error_name(row.error_code) + (f": {words}" if words else "")


# The changed things. Of configurations and quotas only the keys are named: values may be secret.


def _voter(request: Any) -> str:
    directory_id = request.voter_directory_id
    return f"voter {request.voter_id}" + ("" if directory_id == ZERO_UUID else f":{uuid_text(directory_id)}")


def _voter_with_listeners(request: Any) -> str:
    places = [f"{row.name}={Endpoint(row.host, row.port)}" for row in request.listeners[:NAMES_MAX]]
    return _voter(request) + (f" at {', '.join(places)}" if places else "")


def _partitions(rows: Sequence[Any] | None) -> list[str]:
    return ["all partitions"] if rows is None else [row.topic for row in rows]


def _names(rows: Sequence[Any] | None) -> list[str]:
    return ["all topics"] if rows is None else [row.name for row in rows]


def _config(row: Any) -> str:
    return f"{row.resource_name or 'default'} ({', '.join(config.name for config in row.configs[:NAMES_MAX])})"


def _quota(row: Any) -> str:
    whose = ", ".join(f"{part.entity_type} {part.entity_name or 'default'}" for part in row.entity[:NAMES_MAX])
    return f"{whose} ({', '.join(op.key for op in row.ops[:NAMES_MAX])})"


def _rule(row: Any) -> str:
    what = f"{_word(RESOURCES, row.resource_type)} {row.resource_name}"
    return f"{_word(PERMISSIONS, row.permission_type)} {_word(OPERATIONS, row.operation)} on {what} for {row.principal}"


def _filter(row: Any) -> str:
    resource, operation = _word(RESOURCES, row.resource_type_filter), _word(OPERATIONS, row.operation)
    name, principal = row.resource_name_filter or "any", row.principal_filter or "anybody"
    return f"{_word(PERMISSIONS, row.permission_type)} {operation} on {resource} {name} for {principal}"


def _word(words: Sequence[str], number: int) -> str:
    return words[number] if 0 < number < len(words) else str(number)


def _inner(groups: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the rows of rows: the partitions of topics."""
    return [row for group in groups for row in group]


def _nothing(message: Any) -> list[Any]:
    return []


@immutable(kw_only=True)
class Audited:
    """The reading of one request and of its answer."""

    names: Callable[[Any], list[str]]
    """The names of the things that a request changes."""
    has_error: bool = False
    """Whether an answer as a whole may have an error."""
    rows: Callable[[Any], Sequence[Any]] = _nothing
    """The rows of an answer that have an error each."""
    validates: bool = False
    """Whether a request may ask for a validation only."""
    looks: bool = False
    """Whether a request changes nothing: it has a line only where rules of access refuse it."""


REFUSED_BY_RULES: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)

UNKNOWN: Final = Audited(names=_nothing, has_error=True)
"""Propose, which is audited of some peers only."""

AUDITED: Final[Mapping[int, Audited]] = {
    ApiKey.ADD_RAFT_VOTER: Audited(names=lambda request: [_voter_with_listeners(request)], has_error=True),
    ApiKey.REMOVE_RAFT_VOTER: Audited(names=lambda request: [_voter(request)], has_error=True),
    ApiKey.UPDATE_RAFT_VOTER: Audited(names=lambda request: [_voter_with_listeners(request)], has_error=True),
    PrivateApiKey.ELECTION_PRIORITY: Audited(
        names=lambda request: [f"{_voter(request)} with priority {request.priority}"], has_error=True
    ),
    ApiKey.UPDATE_FEATURES: Audited(
        names=lambda request: [f"{row.feature} to level {row.max_version_level}" for row in request.feature_updates],
        has_error=True,
        rows=lambda answer: answer.results,
        validates=True,
    ),
    ApiKey.UNREGISTER_BROKER: Audited(names=lambda request: [f"broker {request.broker_id}"], has_error=True),
    ApiKey.CREATE_TOPICS: Audited(
        names=lambda request: [row.name for row in request.topics],
        rows=lambda answer: answer.topics,
        validates=True,
    ),
    ApiKey.DELETE_TOPICS: Audited(
        names=lambda request: [
            *(row.name or uuid_text(row.topic_id) for row in request.topics),
            *request.topic_names,
        ],
        rows=lambda answer: answer.responses,
    ),
    ApiKey.CREATE_PARTITIONS: Audited(
        names=lambda request: [row.name for row in request.topics],
        rows=lambda answer: answer.results,
        validates=True,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Audited(
        names=lambda request: [row.name or "a topic without a name" for row in request.topics],
        has_error=True,
        rows=lambda answer: _inner(row.partitions for row in answer.responses),
    ),
    ApiKey.ELECT_LEADERS: Audited(
        names=lambda request: _partitions(request.topic_partitions),
        has_error=True,
        rows=lambda answer: _inner(row.partition_result for row in answer.replica_election_results),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Audited(
        names=lambda request: [_config(row) for row in request.resources],
        rows=lambda answer: answer.responses,
        validates=True,
    ),
    ApiKey.ALTER_CONFIGS: Audited(
        names=lambda request: [_config(row) for row in request.resources],
        rows=lambda answer: answer.responses,
        validates=True,
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Audited(
        names=lambda request: [_quota(row) for row in request.entries],
        rows=lambda answer: answer.entries,
        validates=True,
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: Audited(
        names=lambda request: [f"a token of {request.owner_principal_name or 'the sender'}"], has_error=True
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: Audited(names=lambda request: ["a token"], has_error=True),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Audited(names=lambda request: ["a token"], has_error=True),
    ApiKey.CREATE_ACLS: Audited(
        names=lambda request: [_rule(row) for row in request.creations],
        rows=lambda answer: answer.results,
    ),
    ApiKey.DELETE_ACLS: Audited(
        names=lambda request: [_filter(row) for row in request.filters],
        rows=lambda answer: answer.filter_results,
    ),
    ApiKey.DESCRIBE_ACLS: Audited(names=lambda request: [_filter(request)], has_error=True, looks=True),
    ApiKey.DESCRIBE_CONFIGS: Audited(
        names=lambda request: [row.resource_name or "default" for row in request.resources],
        rows=lambda answer: answer.results,
        looks=True,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Audited(
        names=lambda request: _names(request.topics), has_error=True, looks=True
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Audited(
        names=lambda request: [f"user {row.name}" for row in (*request.deletions, *request.upsertions)],
        rows=lambda answer: answer.results,
    ),
}
"""Requests whose answers are audited: they change voters, features, the leader, or the records of a controller; or look
at it, and have a line where rules of access refuse that."""
