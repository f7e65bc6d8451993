"""Peers that do not read share one budget, and the slowest pay for it."""

from __future__ import annotations

import pytest

from kraftlib.security.answers import Account, AnswerBudget


class Peers:
    """Connections whose unread bytes are set by hand."""

    def __init__(self, max_bytes: int) -> None:
        self.now = 0.0
        self.budget = AnswerBudget(max_bytes, lambda: self.now)
        self.unread: dict[str, int] = {}
        self.closed: list[str] = []
        self.accounts: dict[str, Account] = {}

    def give(self, name: str, size: int, *, is_voter: bool = False) -> None:
        if name not in self.accounts:
            self.accounts[name] = Account(
                measure=lambda: self.unread[name], close=lambda: self._close(name), is_voter=is_voter
            )
        self.unread[name] = self.unread.get(name, 0) + size
        self.accounts[name].sent_bytes += size
        self.budget.update(self.accounts[name])

    def read(self, name: str, size: int) -> None:
        self.unread[name] -= size
        self.budget.update(self.accounts[name])

    def _close(self, name: str) -> None:
        self.closed.append(name)
        self.unread[name] = 0


def test_what_was_read_is_given_back() -> None:
    peers = Peers(100)
    for _ in range(10):
        peers.give("a", 90)
        peers.read("a", 90)
    assert peers.budget.waiting_bytes == 0
    assert peers.closed == []


def test_beyond_the_budget_the_one_goes_that_has_not_read_for_longest() -> None:
    peers = Peers(100)
    peers.give("reads a little", 40)
    peers.now += 1
    peers.give("reads", 40)
    peers.now += 1
    peers.read("reads a little", 1)
    peers.read("reads", 40)
    peers.give("reads", 40)
    peers.now += 1
    peers.give("new", 40)
    assert peers.closed == ["reads a little"]
    assert peers.budget.waiting_bytes == 80


def test_whoever_reads_all_that_waited_begins_anew_though_its_buffer_is_never_empty() -> None:
    peers = Peers(100)
    peers.give("steady", 40)
    peers.now += 1
    peers.give("deaf", 40)
    for _ in range(3):
        peers.now += 1
        peers.unread["steady"] -= 35
        peers.give("steady", 35)
    peers.give("new", 40)
    assert peers.closed == ["deaf"]


def test_voters_go_last() -> None:
    peers = Peers(100)
    peers.give("voter", 60, is_voter=True)
    peers.now += 1
    peers.give("stranger", 60)
    assert peers.closed == ["stranger"]


@pytest.mark.parametrize("size", [101, 1_000_000])
def test_one_that_holds_more_than_all_may_goes_alone(size: int) -> None:
    peers = Peers(100)
    peers.give("a", 10)
    peers.now += 1
    peers.unread["a"] = 0  # it has read meanwhile, which is not known yet
    peers.give("b", size)
    assert peers.closed == ["b"]
    assert peers.budget.waiting_bytes == 0
