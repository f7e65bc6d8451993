"""Averages, maxima and rates over a window that moves, and the way from drain to commit."""

from __future__ import annotations

import math

import pytest

from kraftlib.consensus.roles import Role
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.runtime.metrics import WINDOW_NS, RaftMetrics, Sampled

SECOND_NS = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 5

    def __call__(self) -> int:
        return self.now_ns


def batch(base_offset: int, count: int) -> Batch:
    return encode_batch([b"value"] * count, timestamp_ms=1, base_offset=base_offset, epoch=1)


def test_nothing_recorded_is_no_number() -> None:
    sampled = Sampled(Clock())
    assert math.isnan(sampled.average)
    assert math.isnan(sampled.maximum)
    assert sampled.rate == 0


def test_average_maximum_and_rate() -> None:
    clock = Clock()
    sampled = Sampled(clock)
    for value in (1.0, 5.0, 3.0):
        sampled.record(value)
    clock.now_ns += 2 * SECOND_NS

    assert (sampled.average, sampled.maximum, sampled.rate) == (3.0, 5.0, 4.5)


def test_what_is_older_than_two_windows_is_forgotten() -> None:
    clock = Clock()
    sampled = Sampled(clock)
    sampled.record(100.0)
    clock.now_ns += WINDOW_NS
    sampled.record(1.0)
    assert (sampled.average, sampled.maximum) == (50.5, 100.0)
    clock.now_ns += WINDOW_NS
    assert (sampled.average, sampled.maximum) == (1.0, 1.0)
    clock.now_ns += WINDOW_NS
    assert math.isnan(sampled.average)


def test_a_long_silence_forgets_at_once() -> None:
    clock = Clock()
    sampled = Sampled(clock)
    sampled.record(100.0)
    clock.now_ns += 10 * WINDOW_NS
    sampled.record(1.0)
    assert sampled.maximum == 1.0


def test_commit_latency_is_per_record_as_kafka_counts_it_and_per_batch_beside_it() -> None:
    clock = Clock()
    metrics = RaftMetrics(clock)
    metrics.drained([batch(0, 1), batch(1, 4)])
    clock.now_ns += 8_000_000
    first, second = batch(0, 1).size, batch(1, 4).size
    assert metrics.committed(3) == first, "the second batch is not committed as a whole"
    assert metrics.committed(5) == second
    assert metrics.committed(5) == 0

    named = metrics.to_dict()
    assert named["commit-latency-max"] == 8.0
    assert named["commit-latency-avg"] == pytest.approx((8.0 + 2.0) / 2)
    assert named["batch-commit-latency-avg"] == 8.0
    clock.now_ns += SECOND_NS
    assert metrics.to_dict()["append-records-rate"] == pytest.approx(5 / 1.008, rel=1e-6)


def test_what_a_lost_leadership_left_is_not_counted_for_the_next() -> None:
    metrics = RaftMetrics(Clock())
    metrics.drained([batch(0, 1)])
    metrics.leadership_began()
    assert metrics.committed(10) == 0


def test_election_latency_runs_from_the_last_start_to_the_end_of_the_election() -> None:
    clock = Clock()
    metrics = RaftMetrics(clock)
    metrics.role_changed(Role.PROSPECTIVE)
    clock.now_ns += 50_000_000
    metrics.role_changed(Role.CANDIDATE)
    clock.now_ns += 20_000_000
    metrics.role_changed(Role.LEADER)
    clock.now_ns += 99_000_000
    metrics.role_changed(Role.FOLLOWER)

    assert metrics.election_latency.maximum == 20.0
    assert metrics.election_latency.average == 20.0


def test_idleness_is_measured_between_two_questions() -> None:
    clock = Clock()
    metrics = RaftMetrics(clock)
    assert math.isnan(metrics.to_dict()["poll-idle-ratio-avg"])
    clock.now_ns += 3_600 * SECOND_NS
    assert 0.9 < metrics.to_dict()["poll-idle-ratio-avg"] <= 1.0
