"""Errors and results cross the wire and come back as what they were."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    DiskFullError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RefusedError,
    RemoteProtocolError,
    ReplicaFailedError,
    UnsupportedError,
)
from kraftlib.proposals.outcomes import (
    RESULTS_MAX_BYTES,
    TEXT_MAX,
    code_of,
    decode_results,
    encode_results,
    error_of,
    text_of,
)
from kraftlib.records.serde import JsonSerde
from kraftlib.types import LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode


@pytest.mark.parametrize(
    "error",
    [
        NotLeaderError("I follow", leader=LeaderAndEpoch(1, 2)),
        DiskFullError("full"),
        BacklogFullError("full"),
        RecordTooLargeError("large"),
        OutcomeUnknownError("who knows"),
        UnsupportedError("no"),
        ClosedError("closed"),
        ConfigError("wrong"),
        TimeoutError("late"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_what_it_was(error: KraftError) -> None:
    arrived = error_of(code_of(error), text_of(error))
    assert (type(arrived), str(arrived)) == (type(error), str(error))


@pytest.mark.parametrize("error", [ReplicaFailedError("the disk failed"), ValueError("a bug")])
def test_an_error_that_is_not_foreseen_leaves_the_outcome_open(error: Exception) -> None:
    assert isinstance(error_of(code_of(error), text_of(error)), OutcomeUnknownError)


def test_who_may_not_ask_was_refused_and_texts_are_bounded() -> None:
    assert isinstance(error_of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None), RefusedError)
    assert len(text_of(ConfigError("x" * 100_000))) == TEXT_MAX
    assert len(str(error_of(ErrorCode.INVALID_REQUEST, "x" * 100_000))) == TEXT_MAX


@pytest.mark.parametrize("result", [None, b"", b"\x00bytes", {"a": [1, None]}, 0, "text"])
def test_a_result_arrives_as_it_was(result: Any) -> None:
    assert decode_results(encode_results([result], JsonSerde()), JsonSerde()) == (result,)


@pytest.mark.parametrize(
    ("result", "reason"),
    [(object(), "object has no JSON form"), (b"x" * RESULTS_MAX_BYTES, f"{RESULTS_MAX_BYTES + 1} bytes exceed")],
    ids=["unspeakable", "large"],
)
def test_a_result_that_cannot_be_sent_says_why(result: Any, reason: str) -> None:
    encoded = encode_results([result], JsonSerde())
    assert sum(map(len, encoded)) < 1_000
    with pytest.raises(RemoteProtocolError, match=reason):
        decode_results(encoded, JsonSerde())


@pytest.mark.parametrize("data", [b"", b"\x09", b"\x02{", b"\x02\xff"])
def test_garbage_is_no_result(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_results([data], JsonSerde())


class Unreadable(JsonSerde):
    """A serde that cannot read what it has written, and says so with an error of its own."""

    def from_bytes(self, data: bytes) -> Any:
        raise ZeroDivisionError("of no use")


def test_a_serde_that_fails_to_read_a_result_leaves_no_doubt_that_there_is_one() -> None:
    with pytest.raises(RemoteProtocolError, match="the result serde cannot read it: of no use"):
        decode_results(encode_results([{"a": 1}], JsonSerde()), Unreadable())
