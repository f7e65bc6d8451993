"""Messages that travel as bytes come out as they went in."""

from __future__ import annotations

import random

import pytest

from kraftlib.testing.recode import OLDEST, Recoder, same
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse


def complain(text: str) -> None:
    raise AssertionError(text)


def test_no_message_is_recoded_unless_asked_for() -> None:
    recoder = Recoder(random.Random(1), one_in=0, complain=complain)
    request, response = FetchRequest(max_wait_ms=3), FetchResponse(throttle_time_ms=3)

    assert recoder.request(request) == (request, 18)
    assert recoder.response(response, 18) is response
    assert recoder.recoded == 0


def test_a_recoded_request_is_equal_in_all_that_its_version_has() -> None:
    recoder = Recoder(random.Random(1), one_in=1, complain=complain)
    request = FetchRequest(max_wait_ms=3, max_bytes=7, cluster_id="c")
    seen = {recoder.request(request)[1] for _ in range(50)}
    copy, _ = recoder.request(request)

    assert seen == {17, 18}
    assert (copy, copy is request) == (request, False)


def test_a_response_goes_out_in_the_version_of_its_request() -> None:
    recoder = Recoder(random.Random(1), one_in=0, complain=complain)
    response = FetchResponse(throttle_time_ms=3)

    assert recoder.response(response, 17) == response
    assert recoder.recoded == 1


def test_a_field_that_a_version_lacks_is_no_difference() -> None:
    partition = EndQuorumEpochRequest.PartitionData(preferred_successors=(1, 2))
    assert same(partition, EndQuorumEpochRequest.PartitionData(), 1)
    assert not same(partition, EndQuorumEpochRequest.PartitionData(), 0)
    assert not same((1, 2), (1, 2, 3), 0)


@pytest.mark.parametrize("kind", OLDEST)
def test_the_oldest_versions_exist(kind: type) -> None:
    assert OLDEST[kind] in kind.valid_versions  # type: ignore[attr-defined]
