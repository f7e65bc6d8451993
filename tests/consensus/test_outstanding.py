"""One request per destination, and an answer is used once."""

from __future__ import annotations

from kraftlib.consensus.outstanding import FIRST_LANE, OutstandingRequests
from kraftlib.types import Endpoint

PLACE = Endpoint("localhost", 1)


def test_an_answer_is_used_once() -> None:
    """The second copy of it finds nothing (scenario L1)."""
    connections = OutstandingRequests(request_timeout_ms=100)
    number = connections.open(2, PLACE, "question", 0)

    assert connections.take(number) is not None
    assert connections.take(number) is None


def test_a_destination_with_a_request_outstanding_is_not_ready() -> None:
    """Until it answers, or its time is up: then the late answer is ignored."""
    connections = OutstandingRequests(request_timeout_ms=100)
    number = connections.open(2, PLACE, "question", 0)

    assert not connections.is_ready(2, 99)
    assert connections.is_ready(3, 0)
    assert connections.expire(99) == []
    assert [request.destination for request in connections.expire(100)] == [2]
    assert connections.is_ready(2, 100)
    assert connections.take(number) is None


def test_everything_that_is_late_expires_at_once() -> None:
    """In the order in which it was sent, and nothing that was sent later."""
    connections = OutstandingRequests(request_timeout_ms=100)
    for destination, sent_ms in ((3, 0), (2, 5), (4, 6)):
        connections.open(destination, PLACE, "question", sent_ms)

    assert [request.destination for request in connections.expire(105)] == [3, 2]
    assert [connections.is_ready(destination, 105) for destination in (2, 3, 4)] == [True, True, False]


def test_failures_in_a_row_double_the_pause_up_to_half_a_second() -> None:
    """And a success makes the next one the first again."""
    connections = OutstandingRequests(request_timeout_ms=100)
    pauses = []
    for _ in range(7):
        connections.failed(2, 0, 20)
        pauses.append(connections.deadline_ms(0))
        connections.retry_now(2)
    connections.succeeded(2)
    connections.failed(2, 0, 20)

    assert pauses == [20, 40, 80, 160, 320, 500, 500]
    assert connections.deadline_ms(0) == 20


def test_a_change_of_role_forgets_everything() -> None:
    """No answer to an earlier role's question is heard (KIP-595, Configurations)."""
    connections = OutstandingRequests(request_timeout_ms=100)
    number = connections.open(2, PLACE, "question", 0)
    connections.failed(3, 0, 20)
    connections.forget()

    assert connections.take(number) is None
    assert connections.idle
    assert connections.is_ready(2, 0)
    assert connections.is_ready(3, 0)
    assert connections.deadline_ms(0) is None


def test_correlation_ids_stay_within_31_bits() -> None:
    """They travel as an int32."""
    connections = OutstandingRequests(request_timeout_ms=100, next_correlation_id=0x7FFFFFFF)

    assert connections.open(2, PLACE, "question", 0) == 0x7FFFFFFF
    assert connections.open(3, PLACE, "question", 0) == 0


def test_a_shorter_pause_does_not_cut_a_longer_one_short() -> None:
    """And a pause is over at its end, not after it."""
    connections = OutstandingRequests(request_timeout_ms=100)
    connections.back_off(2, 80)
    connections.back_off(2, 50)

    assert connections.is_backing_off(2, 79)
    assert not connections.is_backing_off(2, 80)
    assert not connections.is_ready(2, 79)
    assert connections.is_ready(2, 80)


def test_a_pause_that_is_configured_longer_than_the_longest_stays_so_long() -> None:
    connections = OutstandingRequests(request_timeout_ms=100)
    for _ in range(40):
        connections.failed(2, 0, 2_000)

    assert connections.deadline_ms(0) == 2_000
    assert connections.failures(2) == 16


def test_what_runs_beside_the_connection_between_replicas_does_not_keep_it_busy() -> None:
    connections = OutstandingRequests(request_timeout_ms=100)
    connections.open(FIRST_LANE, PLACE, "beside", 0)
    assert connections.idle
    connections.open(FIRST_LANE + 1, PLACE, "question", 0)
    assert not connections.idle


def test_a_change_of_role_forgets_failures() -> None:
    """What failed in the role before says nothing of what is asked now."""
    connections = OutstandingRequests(request_timeout_ms=100)
    connections.failed(2, 0, 20)
    connections.forget()

    assert connections.failures(2) == 0
