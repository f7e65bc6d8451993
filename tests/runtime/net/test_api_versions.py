"""What we say we speak, and what we make of what others say."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.api_versions.v4.request import ApiVersionsRequest as KioRequest
from kio.schema.types import BrokerId  # noqa: F401 - proves that the package is whole

from kraftlib.codec.versions import Versions
from kraftlib.runtime.net import api_versions
from kraftlib.wire.apis import ApiKey, ErrorCode, api
from kraftlib.wire.frames import decode_request, decode_response, encode_response
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.vote import VoteRequest
from tests.captured import RELEASES, pairs

ALLOWED = string.ascii_letters + string.digits + "-."


def captured(release: str) -> list[dict[str, Any]]:
    return [pair for pair in pairs(release, "wire") if pair["api_key"] == ApiKey.API_VERSIONS]


def features(response: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {row.name: (row.min_version, row.max_version) for row in response.supported_features}


def test_we_serve_what_we_can_read_and_write() -> None:
    for key, served in api_versions.SERVED.items():
        known = api(key)
        assert known is not None
        assert served.intersection(known.versions) == served


@pytest.mark.parametrize("release", RELEASES)
def test_real_clients_are_answered(release: str) -> None:
    assert captured(release)
    for pair in captured(release):
        request = decode_request(pair["request"])
        response = api_versions.answer(request.message, request.api_version, finalized={"kraft.version": 1})
        frame = encode_response(response, version=request.api_version, correlation_id=request.correlation_id)

        _, read = decode_response(frame, api_key=18, version=request.api_version)
        assert read == response
        assert {row.api_key: (row.min_version, row.max_version) for row in response.api_keys} == {
            1: (13, 18),
            18: (0, 5),
            52: (0, 2),
            53: (0, 1),
            54: (0, 1),
            55: (0, 2),
            57: (0, 2),
            59: (0, 1),
            60: (0, 2),
            80: (0, 1),
            81: (0, 0),
            82: (0, 0),
        }
        assert response.error_code == 0


def test_an_adder_of_voters_finds_kraft_version() -> None:
    response = api_versions.answer(api_versions.question(), 4, finalized={})
    assert features(response) == {"kraft.version": (0, 1)}
    assert response.finalized_features == ()
    assert response.finalized_features_epoch == -1


def test_a_feature_that_begins_at_0_is_hidden_from_clients_that_cannot_bear_it() -> None:
    supported = {"kraft.version": Versions(0, 1), "metadata.version": Versions(7, 30)}
    response = api_versions.answer(api_versions.question(), 3, finalized={}, supported=supported)
    assert features(response) == {"metadata.version": (7, 30)}


def test_level_0_of_a_feature_is_not_told() -> None:
    levels = {"kraft.version": 0, "metadata.version": 25}
    response = api_versions.answer(api_versions.question(), 4, finalized=levels)
    rows = [(row.name, row.min_version_level, row.max_version_level) for row in response.finalized_features]
    assert rows == [("metadata.version", 25, 25)]


@pytest.mark.parametrize("name", ["", "with blank", "-x", "x.", "ü", "a\n", "a_b", "x" * 30_000 + "!"])
@pytest.mark.parametrize("field", ["client_software_name", "client_software_version"])
def test_a_bad_software_name_is_refused_from_version_3_on(name: str, field: str) -> None:
    request = ApiVersionsRequest(**{"client_software_name": "a", "client_software_version": "1", field: name})
    for version in (3, 4):
        response = api_versions.answer(request, version, finalized={})
        assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, ())
    assert api_versions.answer(request, 2, finalized={}).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("meant", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"cluster_id": "another", "node_id": 99}, ErrorCode.NONE),
        ({"cluster_id": "another"}, ErrorCode.INVALID_REQUEST),
        ({"node_id": 0}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_whom_a_client_of_version_5_means_is_named_wholly_or_not_at_all(meant: dict[str, Any], error: int) -> None:
    """And then a controller looks no further (Kafka 4.4; brokers do): each request says which cluster it means."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1", **meant)
    response = api_versions.answer(request, 5, finalized={})
    assert (response.error_code, bool(response.api_keys)) == (error, error == ErrorCode.NONE)


@given(st.text(alphabet=ALLOWED + " _ü", max_size=6))
def test_software_names_are_those_of_kip_511(text: str) -> None:
    import re

    expected = re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", text) is not None
    assert api_versions.is_software_name(text) == expected


def test_we_call_ourselves_by_a_good_name() -> None:
    question = api_versions.question()
    assert question.client_software_name == "kraftlib"
    assert api_versions.is_software_name(question.client_software_version)
    assert KioRequest(client_software_name="kraftlib", client_software_version=question.client_software_version)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((), 0),
        (((18, 0, 2),), 2),
        (((18, 1, 1),), 1),
        (((18, 5, 9),), None),
        (((18, 0, 4),), None),
        (((1, 0, 1),), None),
    ],
)
def test_a_refused_question_is_asked_again_in_a_version_that_was_named(
    rows: tuple[tuple[int, int, int], ...], expected: int | None
) -> None:
    entries = tuple(
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last) for key, first, last in rows
    )
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=entries)
    assert api_versions.version_to_ask_again(response) == expected


@pytest.mark.parametrize(
    ("theirs", "expected"), [((0, 2), 2), ((0, 1), 1), ((2, 9), 2), ((3, 9), None), ((5, 1), None), ((-3, -1), None)]
)
def test_the_highest_version_of_both_is_spoken(theirs: tuple[int, int], expected: int | None) -> None:
    assert api_versions.common_version(VoteRequest, {ApiKey.VOTE: Versions(*theirs)}) == expected
    assert api_versions.common_version(FetchRequest, {ApiKey.VOTE: Versions(*theirs)}) is None
