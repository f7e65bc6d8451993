"""The appender for threads: any number of them put, and all hear of the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kraftlib import blocking
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ClosedError, KraftError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.client import appender, thread_appender
from kraftlib.types import Endpoint
from tests.runtime.quorum import PATIENCE_S
from tests.test_blocking import leader_of, public, three

__all__ = ["three"]


def test_both_appenders_have_the_same_names() -> None:
    threads, tasks = (set(public(face.Appender)) - {"__init__"} for face in (thread_appender, appender))
    of_tasks_alone = {"encoded", "put_encoded", "reach"}  # what the other one is built on
    assert threads - {"settled", "end_offset"} == tasks - of_tasks_alone


def test_threads_put_many_values_and_each_keeps_its_order(three: dict[int, blocking.RaftClient[Any]]) -> None:
    leader = leader_of(three)
    results: list[int] = []
    with leader.appender(
        wait="applied", max_in_flight=50, on_settled=lambda appended: results.extend(appended.results)
    ) as many:

        def put(first: int) -> None:
            many.put(first)
            many.put_many([first] * 499)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, (1, 1_000, 1_000_000, 1_000_000_000), timeout=PATIENCE_S))
        many.flush()
        assert many.taken == many.settled == len(results) == 2_000
    assert results[-1] == 500 * 1_001_001_001
    assert many.end_offset == leader.log_end_offset()
    with pytest.raises(ClosedError):
        many.put(1)
    assert leader.propose_many([1, 1])[1] == results[-1] + 2


class Halting(JsonSerde):
    """Raises a bare StopIteration for a 3."""

    def to_bytes(self, value: Any) -> bytes:
        return super().to_bytes(value) if value != 3 else next(iter(()))


def test_a_serde_that_raises_stop_iteration_drops_nothing_without_a_word() -> None:
    config = RaftConfig(node_id=1, voters=(StaticVoter(1, Endpoint("127.0.0.1", 0)),))
    with blocking.RaftClient(config, serde=Halting()) as client:
        client.wait_for_leader(timeout_ms=30_000)
        with client.appender() as many:
            with pytest.raises(StopIteration):
                many.put_many([1, 2, 3, 4])
            many.flush()
            assert many.taken == many.settled == 2


def test_who_waits_for_room_hears_of_the_end(three: dict[int, blocking.RaftClient[Any]]) -> None:
    leader = leader_of(three)
    many = leader.appender(max_in_flight=1)
    for client in three.values():
        if client is not leader:
            client.shutdown(timeout_ms=0)

    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(many.put_many, [1] * 100)
        leader.shutdown(timeout_ms=0)
        with pytest.raises(KraftError):
            putting.result(PATIENCE_S)
    with pytest.raises(KraftError):
        many.flush()
    assert many.settled < 100
    with pytest.raises(ClosedError):
        leader.appender()
