"""A controller of Kafka and one of ours are asked what hardly anybody asks: answers and records are compared."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest
from tests.interop.admin_requests import BROKERS, heartbeat, registration
from tests.interop.asked import Asked
from tests.interop.lab import Lab
from tests.interop.odd_requests import KINDS, REAL, of_topics
from tests.interop.test_admin_requests import IMAGE_S, controllers, done


@pytest.fixture
def both(lab: Lab) -> Iterator[tuple[Asked, Asked]]:
    """Kafka's and ours with five brokers and the topics that `of_topics` creates."""
    for pair in controllers(lab, elr=1):
        for there in pair:
            for number in BROKERS:
                there.ask(registration(there, number))
                there.written()
                there.ask(heartbeat(there, number))
                there.written()
            for request, version in of_topics():
                if not request.validate_only:
                    there.ask(request, version)
            there.written()
            assert there.state.topics.named(REAL) is not None
        yield pair


def comparable(said: tuple[Any, Any]) -> str:
    """Return an answer and its records as text. Ids are not told apart: some are of what is only tried."""
    return re.sub(r"'id \d+'", "'an id'", repr(said))


@pytest.mark.since("4.3")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_controller_of_kafka_and_ours_do_the_same_at_the_edges(both: tuple[Asked, Asked], kind: str) -> None:
    """Java's numbers, codes of nobody, long names, lists with blanks: the same errors and records."""
    differing = []
    for request, version in KINDS[kind]():
        theirs, ours = (done(there, request, version) for there in both)
        if comparable(theirs) != comparable(ours) and isinstance(request, DescribeConfigsRequest):
            time.sleep(IMAGE_S)  # Kafka's controller reads this in an image that follows its log
            theirs = done(both[0], request, version)
        if comparable(theirs) != comparable(ours):
            differing.append((request, version, theirs, ours))
    assert differing == []
