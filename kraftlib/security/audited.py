"""The words of the audit log: which requests are audited, what each of them changes, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraftlib.types import ZERO_UUID, Endpoint, uuid_text
from kraftlib.wire.apis import ApiKey, ErrorCode, PrivateApiKey, error_name

NAMES_MAX: Final = 8
"""Names in one line."""

AUDITED: Final = frozenset(
    {
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.UPDATE_FEATURES,
        PrivateApiKey.ELECTION_PRIORITY,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""Requests whose answers are audited: they change voters, features, who leads, or what a controller keeps."""

RESOURCES: Final = "0 any TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER".split()
PERMISSIONS: Final = "0 any DENY ALLOW".split()
OPERATIONS: Final = (
    "0 any ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE"
    " CREATE_TOKENS DESCRIBE_TOKENS TWO_PHASE_COMMIT"
).split()
"""The words for the codes of access rules (KIP-11), by code."""


def subject_of(request: Any) -> str:
    """Return what a request changes, for people: a voter with its endpoints, features, topics; empty for others."""
    if request.api_key not in AUDITED:
        return ""
    if updates := getattr(request, "feature_updates", None):
        return ", ".join(f"{row.feature} to level {row.max_version_level}" for row in updates[:NAMES_MAX])
    if (broker_id := getattr(request, "broker_id", None)) is not None:
        return f"broker {broker_id}"
    if names := _names_in(request):
        more = len(names) - NAMES_MAX
        text = ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
        return text + (" (to validate only)" if _is_rehearsal(request) else "")
    return _voter_in(request)


def _names_in(request: Any) -> list[str]:
    """Return the names of what is changed; of configurations and quotas with their keys. Values may be secret."""
    topics = [
        getattr(row, "name", None) or getattr(row, "topic", None) or uuid_text(getattr(row, "topic_id", ZERO_UUID))
        for row in (getattr(request, "topics", None) or getattr(request, "topic_partitions", None) or ())
    ]
    resources = [
        f"{row.resource_name or 'default'} ({', '.join(config.name for config in row.configs[:NAMES_MAX])})"
        for row in getattr(request, "resources", ())
    ]
    quotas = [
        ", ".join(f"{part.entity_type} {part.entity_name or 'default'}" for part in row.entity[:NAMES_MAX])
        + f" ({', '.join(op.key for op in row.ops[:NAMES_MAX])})"
        for row in getattr(request, "entries", ())
    ]
    rules = [*map(_rule, getattr(request, "creations", ())), *map(_filter, getattr(request, "filters", ()))]
    users = [f"user {row.name}" for rows in ("deletions", "upsertions") for row in getattr(request, rows, ())]
    return [*topics, *getattr(request, "topic_names", ()), *resources, *quotas, *rules, *users]


def _rule(row: Any) -> str:
    what = f"{_word(RESOURCES, row.resource_type)} {row.resource_name}"
    return f"{_word(PERMISSIONS, row.permission_type)} {_word(OPERATIONS, row.operation)} on {what} for {row.principal}"


def _filter(row: Any) -> str:
    resource, operation = _word(RESOURCES, row.resource_type_filter), _word(OPERATIONS, row.operation)
    name, principal = row.resource_name_filter or "any", row.principal_filter or "anybody"
    return f"{_word(PERMISSIONS, row.permission_type)} {operation} on {resource} {name} for {principal}"


def _word(words: Sequence[str], number: int) -> str:
    return words[number] if 0 < number < len(words) else str(number)


def _voter_in(request: Any) -> str:
    voter_id, directory_id = getattr(request, "voter_id", None), getattr(request, "voter_directory_id", ZERO_UUID)
    if voter_id is None:
        return ""
    text = f"voter {voter_id}" + ("" if directory_id == ZERO_UUID else f":{uuid_text(directory_id)}")
    places = [f"{row.name}={Endpoint(row.host, row.port)}" for row in getattr(request, "listeners", ())[:NAMES_MAX]]
    if (priority := getattr(request, "priority", None)) is not None:
        text += f" with priority {priority}"
    return text + (f" at {', '.join(places)}" if places else "")


def outcome_of(answer: Any) -> str:
    """Return the error of an answer, with its words; `NONE` if there is none. Of several rows it is the first error."""
    if answer is None:
        return "the connection was closed"
    rows, top = _rows_in(answer), getattr(answer, "error_code", 0)
    failed = [row for row in rows if row.error_code]
    if not top and not failed:
        return ErrorCode.NONE.name
    worst = answer if top else failed[0]
    words = getattr(worst, "error_message", None)
    text = error_name(worst.error_code) + (f": {words}" if words else "")
    done = 0 if top else len(rows) - len(failed)
    return f"{done} of {len(rows)} done; {text}" if done else text


def is_done(request: Any, answer: Any) -> bool:
    """Whether an answer says that something was changed."""
    if answer is None or _is_rehearsal(request) or getattr(answer, "error_code", False):
        return False
    rows = _rows_in(answer)
    return not rows or any(not row.error_code for row in rows)


def _is_rehearsal(request: Any) -> bool:
    return bool(getattr(request, "validate_only", False))


def _rows_in(answer: Any) -> list[Any]:
    """Return the rows of an answer that have an error code: a row of a topic may have them in its partitions."""
    found: list[Any] = []
    for name in ("results", "topics", "responses", "entries", "filter_results", "replica_election_results"):
        for row in getattr(answer, name, ()):
            if hasattr(row, "error_code"):
                found.append(row)
            else:
                found += getattr(row, "partitions", getattr(row, "partition_result", ()))
    return found
