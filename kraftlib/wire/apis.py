"""Which requests there are: numbers, messages, versions; and the error codes of their answers.

Messages are imported when they are first asked for: a replica needs few of them, and `import kraftlib` none.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.frozen import immutable


class ApiKey(enum.IntEnum):
    """The number of a request. The raft messages first, then what brokers and tools ask a controller."""

    FETCH = 1
    API_VERSIONS = 18
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    FETCH_SNAPSHOT = 59
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82

    SASL_HANDSHAKE = 17
    SASL_AUTHENTICATE = 36

    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    ALTER_CLIENT_QUOTAS = 49
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    ALLOCATE_PRODUCER_IDS = 67
    CONTROLLER_REGISTRATION = 70
    ASSIGN_REPLICAS_TO_DIRS = 73
    UNREGISTER_CONTROLLER = 94


class PrivateApiKey(enum.IntEnum):
    """Requests of our own replicas and clients, far beyond Kafka's numbers. A Kafka peer never hears of them."""

    READ_BARRIER = 30_000
    SNAPSHOT_HASH = 30_001
    ELECTION_PRIORITY = 30_002
    PROPOSE = 30_003
    CALL = 30_004
    QUERY = 30_005
    WATCH = 30_006
    STATE_DIGEST = 30_007


FIRST_PRIVATE_KEY: Final = 30_000


class ErrorCode(enum.IntEnum):
    """The error codes that KRaft uses. Others may arrive, so a received code stays a plain number."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_CLUSTER_ID = 104
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGISTRATION = 119
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


_API_KEYS: Final[frozenset[int]] = frozenset(ApiKey) | frozenset(PrivateApiKey)
_ERROR_CODES: Final = frozenset(ErrorCode)


def error_name(code: int) -> str:
    """Return the name of an error code, or its number where we have no name for it."""
    return ErrorCode(code).name if code in _ERROR_CODES else f"error {code}"


@immutable(kw_only=True)
class Api:
    """One request and its response."""

    key: ApiKey | PrivateApiKey
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> Versions:
        """The versions that we can read and write."""
        return self.request.valid_versions


@cache
def api(key: int) -> Api | None:
    """Return the API of a number, or None, if we do not know it."""
    if key not in _API_KEYS:
        return None
    named = PrivateApiKey(key) if key >= FIRST_PRIVATE_KEY else ApiKey(key)
    request, response = _messages(named)
    return Api(key=named, request=request, response=response)


def error_answer(request: Message, error_code: int, *, version: int | None = None) -> Message:
    """Return the answer to `request` in `version` (None: the newest) that is this error and nothing else.

    Most have a place for it at the top, in the others each row has it, and a few have both.
    """
    from kraftlib.wire.error_rows import error_rows, rows_beside

    rows = error_rows(request, error_code)
    if rows is not None:
        return rows
    beside = rows_beside(request, error_code)
    if request.api_key != ApiKey.ELECT_LEADERS or version != 0:  # that one has no place at the top
        beside["error_code"] = error_code
    response: Message = APIS[request.api_key].response(**beside)
    return response


def api_of(message_class: type[Message]) -> Api | None:
    """Return the API that a request or response belongs to."""
    return api(message_class.api_key)


class _Apis(Mapping[int, Api]):
    def __getitem__(self, key: int) -> Api:
        found = api(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(ApiKey)

    def __len__(self) -> int:
        return len(ApiKey)


APIS: Final[Mapping[int, Api]] = _Apis()
"""All by number, each loaded when it is looked up; those of Kafka are counted, the private ones just found."""


_SHARED_MODULES: Final[Mapping[ApiKey | PrivateApiKey, str]] = {
    ApiKey.ADD_RAFT_VOTER: "raft_voters",
    ApiKey.REMOVE_RAFT_VOTER: "raft_voters",
    ApiKey.UPDATE_RAFT_VOTER: "raft_voters",
    ApiKey.DESCRIBE_ACLS: "acls",
    ApiKey.CREATE_ACLS: "acls",
    ApiKey.DELETE_ACLS: "acls",
    ApiKey.CREATE_DELEGATION_TOKEN: "delegation_tokens",
    ApiKey.RENEW_DELEGATION_TOKEN: "delegation_tokens",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "delegation_tokens",
}
"""The modules of `kraftlib.wire.messages` with several APIs. Each other module has the name of its API."""


def _messages(key: ApiKey | PrivateApiKey) -> tuple[type[Message], type[Message]]:
    """Return request and response of an API: CREATE_TOPICS has CreateTopicsRequest and CreateTopicsResponse."""
    module = importlib.import_module(f"kraftlib.wire.messages.{_SHARED_MODULES.get(key, key.name.lower())}")
    name = key.name.title().replace("_", "")
    return getattr(module, f"{name}Request"), getattr(module, f"{name}Response")
