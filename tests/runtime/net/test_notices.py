"""Trouble is counted always and logged rarely."""

from __future__ import annotations

import logging

import pytest

from kraftlib.runtime.net.notices import LINES_MAX, REMEMBERED_MAX, Notices, quoted
from tests.clocks import Clock

logger = logging.getLogger("tests.notices")


def test_the_same_trouble_with_the_same_peer_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notices = Notices(logger, clock)
    for _ in range(100):
        notices.warn("frame", "1.2.3.4", "bad frame of %s", "1.2.3.4")
    notices.warn("frame", "5.6.7.8", "bad frame of %s", "5.6.7.8")
    notices.warn("http", "1.2.3.4", "HTTP of %s", "1.2.3.4")
    assert caplog.messages == ["bad frame of 1.2.3.4", "bad frame of 5.6.7.8", "HTTP of 1.2.3.4"]

    clock.now += 60
    notices.warn("frame", "1.2.3.4", "bad frame of %s", "1.2.3.4")

    assert caplog.messages[3:] == ["bad frame of 1.2.3.4 (and 99 times since the last such line)"]
    assert notices.counts == {"frame": 102, "http": 1}


def test_a_flood_of_peers_takes_no_memory() -> None:
    notices = Notices(logging.getLogger("tests.silent"), Clock())
    notices._logger.disabled = True
    for number in range(3 * REMEMBERED_MAX):
        notices.warn("frame", number, "bad")

    assert len(notices._last) <= REMEMBERED_MAX
    assert notices.counts["frame"] == 3 * REMEMBERED_MAX


def test_six_thousand_addresses_have_one_budget_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notices = Notices(logger, clock)
    for number in range(6_000):
        notices.warn("frame", f"10.0.{number // 256}.{number % 256}", "bad frame of %s", number)
        clock.now += 0.009
    assert len(caplog.messages) == LINES_MAX
    assert sum(map(len, caplog.messages)) < 10_000

    clock.now += 60
    notices.summarize()

    assert caplog.messages[LINES_MAX:] == [
        f"{6_000 - LINES_MAX} more problems with peers have no line here: frame 5970"
    ]
    assert notices.counts == {"frame": 6_000}
    notices.warn("frame", "1.2.3.4", "bad frame of %s", "1.2.3.4")
    assert caplog.messages[-1] == "bad frame of 1.2.3.4"


def test_a_flood_of_one_kind_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices(logger, Clock())
    for number in range(1_000):
        notices.warn("frame", number, "bad frame")
    notices.warn("denied", "1.2.3.4", "denied")
    assert caplog.messages[-1] == "denied"
    assert len(caplog.messages) == LINES_MAX + 1


def test_lines_and_their_counts_add_up_to_all_problems(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the peers that were logged are forgotten."""
    clock = Clock()
    notices = Notices(logger, clock)
    for number in range(2 * REMEMBERED_MAX):
        for _ in range(3):
            notices.warn("frame", number, "bad frame")
        clock.now += 2
    for number in range(2 * REMEMBERED_MAX):
        clock.now += 60
        notices.warn("frame", number, "bad frame")
    notices.summarize(now=True)

    lines = sum(message.startswith("bad frame") for message in caplog.messages)
    repeated = sum(int(message.split("(and ")[1].split()[0]) for message in caplog.messages if "(and " in message)
    left_out = sum(int(message.split()[0]) for message in caplog.messages if "more problems" in message)
    assert lines + repeated + left_out == notices.counts["frame"] == 8 * REMEMBERED_MAX


def test_what_a_peer_sent_cannot_forge_a_line() -> None:
    assert "\n" not in quoted("raft\nINFO all is well")
    assert "\x1b" not in quoted("\x1b[2J")
    assert len(quoted("x" * 100_000)) < 300
