from __future__ import annotations

import subprocess
import sys

import pytest

from kraftlib.wire.apis import APIS, ApiKey, ErrorCode, api, api_of, error_name
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests import schema_twin
from tests.captured import RELEASES


def test_the_table_names_the_messages_of_each_api() -> None:
    for key, entry in APIS.items():
        name = ApiKey(key).name.title().replace("_", "")
        assert (entry.request.__name__, entry.response.__name__) == (f"{name}Request", f"{name}Response")
        assert (entry.request.api_key, entry.request.kind) == (key, "request")
        assert (entry.response.api_key, entry.response.kind) == (key, "response")
        assert entry.request.valid_versions == entry.response.valid_versions == entry.versions
        assert entry.request.flexible_versions == entry.response.flexible_versions


def test_the_table_holds_all_requests_of_the_released_schemas() -> None:
    for release, lacking in (("kafka-4.4.0", set()), *((r, {ApiKey.UNREGISTER_CONTROLLER}) for r in RELEASES)):
        released = {s["apiKey"] for s in schema_twin.schemas(release).values() if s["type"] == "request"}
        assert released == set(APIS) - lacking


@pytest.mark.parametrize(
    ("key", "versions", "first_flexible"),
    [
        (ApiKey.FETCH, "4-18", 12),
        (ApiKey.API_VERSIONS, "0-5", 3),
        (ApiKey.VOTE, "0-2", 0),
        (ApiKey.BEGIN_QUORUM_EPOCH, "0-1", 1),
        (ApiKey.END_QUORUM_EPOCH, "0-1", 1),
        (ApiKey.DESCRIBE_QUORUM, "0-2", 0),
        (ApiKey.FETCH_SNAPSHOT, "0-1", 0),
        (ApiKey.ADD_RAFT_VOTER, "0-1", 0),
        (ApiKey.REMOVE_RAFT_VOTER, "0", 0),
        (ApiKey.UPDATE_RAFT_VOTER, "0", 0),
    ],
)
def test_the_raft_messages_are_known_in_every_version_of_kafka_3_9_to_4_4(
    key: ApiKey, versions: str, first_flexible: int
) -> None:
    assert (str(APIS[key].versions), APIS[key].request.flexible_versions.first) == (versions, first_flexible)


def test_an_api_is_found_by_number_and_by_message() -> None:
    assert api(52) is api_of(VoteRequest) is api_of(VoteResponse) is APIS[52]
    assert api(0) is None
    with pytest.raises(KeyError):
        APIS[0]


def test_an_error_code_without_a_name_is_its_number() -> None:
    assert error_name(ErrorCode.FENCED_LEADER_EPOCH) == error_name(74) == "FENCED_LEADER_EPOCH"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert error_name(12345) == "error 12345"


def test_messages_are_not_imported_before_they_are_asked_for() -> None:
    code = (
        "import sys, kraftlib.wire.frames, kraftlib.wire.apis as apis\n"
        "loaded = lambda: {n.split('.')[-1] for n in sys.modules if n.startswith('kraftlib.wire.messages.')}\n"
        "assert loaded() == {'headers', 'fetch'}, loaded()\n"
        "apis.api(52)\n"
        "assert loaded() == {'headers', 'fetch', 'vote'}, loaded()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
