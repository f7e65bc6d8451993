"""The coordination machine, by its commands, questions and changes."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.coordination.access import Gone
from kraftlib.coordination.commands import decode, encode, encode_command
from kraftlib.coordination.history import CHANGES_MAX
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.messages import (
    DELETED_MAX,
    EXISTS,
    NONE,
    Acquire,
    Answer,
    Ask,
    CloseSession,
    Do,
    Event,
    Expire,
    KeepAlive,
    OpenSession,
    Release,
    Result,
    Selector,
    Status,
    Transact,
    Watched,
)
from kraftlib.coordination.sessions import RESULTS_MAX
from kraftlib.errors import ConfigError, RemoteProtocolError, UnsupportedError
from kraftlib.testing.machine_contract import COUNT, MACHINE_CHECKS
from kraftlib.testing.subject import Subject
from tests.coordination.driver import A, B, C, Condition, Driver, Fence, Operation, commands_at_random

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = encode(Selector(watched=Watched.LOCK, name="lock"))
ALL_KEYS = encode(Selector(watched=Watched.PREFIX, name=""))


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.open(A, B, C)
    return driver


def changes(driver: Driver, selector: bytes, since: int) -> list[tuple[int, list[Answer.Row]]]:
    found = driver.machine.changes(selector, since, most=100_000)
    assert not isinstance(found, Gone)
    return [(offset, list(decode(Answer, data).rows)) for offset, data in found]


# Sessions -----------------------------------------------------------------------------------------


def test_a_call_that_is_repeated_gets_the_first_result_and_is_applied_once(driver: Driver) -> None:
    first = driver.do(A, Operation(do=Do.ADD, key="n", delta=5))
    driver.put(B, "n", b"100")
    again = driver.send(A, Transact(then=(Operation(do=Do.ADD, key="n", delta=5),)), number=1)

    assert again == first
    assert driver.value("n") == b"100"


def test_a_call_that_was_acknowledged_is_not_applied_when_it_arrives_late(driver: Driver) -> None:
    driver.send(A, KeepAlive(), number=8, acknowledged=8)
    late = driver.send(A, Transact(then=(Operation(do=Do.PUT, key="k"),)), number=7)

    assert late.status == Status.GIVEN_UP
    assert driver.value("k") is None


def test_a_session_that_acknowledges_nothing_is_refused_and_goes_on_once_it_does(driver: Driver) -> None:
    for _ in range(RESULTS_MAX):
        assert driver.put(A, "k").status == Status.OK
    before = driver.ask(Ask.KEYS, "k").rows

    assert driver.put(A, "k").status == Status.REFUSED
    assert driver.ask(Ask.KEYS, "k").rows == before
    assert driver.send(A, KeepAlive(), number=RESULTS_MAX + 2, acknowledged=RESULTS_MAX + 2).status == Status.OK


def test_a_call_that_was_refused_for_want_of_room_is_not_done_when_it_comes_again(driver: Driver) -> None:
    for _ in range(RESULTS_MAX):
        driver.put(A, "k")
    refused = driver.put(A, "late")
    assert driver.send(A, KeepAlive(), number=RESULTS_MAX + 2, acknowledged=500).status == Status.OK
    again = driver.send(A, Transact(then=(Operation(do=Do.PUT, key="late"),)), number=RESULTS_MAX + 1)

    assert (again, driver.value("late")) == (refused, None)


def test_with_a_session_end_its_ephemeral_keys_and_its_bids_and_nothing_else(driver: Driver) -> None:
    driver.put(A, "gone", ephemeral=True)
    driver.put(A, "stays")
    driver.put(A, "taken over", ephemeral=True)
    driver.put(B, "taken over", b"by B")
    driver.send(A, Acquire(lock="lock"))
    driver.send(B, Acquire(lock="lock"))
    end = driver.send(A, CloseSession())

    assert driver.value("gone") is None
    assert (driver.value("stays"), driver.value("taken over")) == (b"", b"by B")
    assert driver.bids("lock") == [(B, end.offset)], "the record that ends the holder grants the next bid"
    assert driver.put(A, "k").status == Status.SESSION_ENDED
    assert driver.ask(Ask.SESSION, session=A).ttl_ms == 0
    assert driver.ask(Ask.SESSION, session=B).ttl_ms == 1_000


def test_an_expiry_counts_only_in_the_epoch_of_its_leader_and_if_nothing_was_renewed(driver: Driver) -> None:
    revision = driver.put(B, "k", ttl_ms=1_000).offset
    renewed = driver.send(A, KeepAlive()).offset

    def expire(epoch: int, renewed: int, revision: int, *, record_epoch: int) -> Status:
        rows = (Expire.SessionRow(session=A, renewed=renewed),)
        keys = (Expire.KeyRow(key="k", revision=revision),)
        command = encode_command(Expire(epoch=epoch, sessions=rows, keys=keys))
        return Status(driver.raw(command, epoch=record_epoch).status)

    assert expire(3, renewed, revision, record_epoch=4) == Status.REFUSED
    assert expire(4, renewed - 1, revision - 1, record_epoch=4) == Status.OK
    assert driver.ask(Ask.SESSION, session=A).ttl_ms
    assert driver.value("k") == b""
    expire(4, renewed, revision, record_epoch=4)
    assert driver.ask(Ask.SESSION, session=A).ttl_ms == 0
    assert driver.value("k") is None


def test_a_late_duplicate_of_an_opening_begins_another_session_and_brings_no_call_back(driver: Driver) -> None:
    addition = Transact(then=(Operation(do=Do.ADD, key="n", delta=1),))
    driver.send(A, addition, number=1)
    driver.send(A, CloseSession(), number=0)
    assert driver.send(A, OpenSession(ttl_ms=1_000), number=0).status == Status.OK

    assert driver.send(A, addition, number=1).status == Status.SESSION_ENDED
    assert driver.send(A, KeepAlive(), number=0).status == Status.SESSION_ENDED, "a renewal of the one that has ended"
    assert driver.value("n") == b"1"


def test_nobody_is_told_the_id_of_a_session(driver: Driver) -> None:
    secret = UUID(bytes=b"the id of this s")
    driver.open(secret)
    since = driver.machine.applied
    results = [driver.put(secret, "k", ephemeral=True), driver.send(secret, Acquire(lock="lock", owner="me"))]
    told = [
        *map(encode, results),
        encode(driver.ask(Ask.KEYS, "k")),
        encode(driver.ask(Ask.HISTORY, "k")),
        encode(driver.ask(Ask.LOCK, "lock")),
        *[data for selector in (LOCK, ALL_KEYS) for _, data in driver.machine.changes(selector, since, most=100)],
        driver.machine.changes(LOCK, -2, most=1).state,
    ]
    assert [data for data in told if secret.bytes in data] == []
    assert driver.ask(Ask.KEYS, "k").rows[0].session == driver.opened[secret], "all rows of a session say so"
    assert driver.bids("lock")[0][0] == secret


def test_a_call_without_number_cannot_acknowledge_what_has_not_come(driver: Driver) -> None:
    driver.send(A, KeepAlive(), number=3)
    assert driver.send(A, KeepAlive(), number=0, acknowledged=5).status == Status.REFUSED
    assert driver.send(A, KeepAlive(), number=0, acknowledged=4).status == Status.OK
    assert driver.send(A, KeepAlive(), number=0, acknowledged=4).status == Status.OK
    assert driver.put(A, "k").status == Status.GIVEN_UP
    assert driver.send(A, Transact(), number=4).status == Status.OK


def test_calls_that_are_given_up_count_as_results(driver: Driver) -> None:
    for number in range(RESULTS_MAX):
        driver.send(A, Release(number=number + 1), number=2 * RESULTS_MAX + number)
    (session,) = [one for one in driver.machine._state.sessions.live.values() if one.id == A]
    kept = [decode(Result, result).status for result in session.results.values()]
    assert len(kept) - kept.count(Status.REFUSED) == RESULTS_MAX
    assert driver.send(A, KeepAlive(), number=4 * RESULTS_MAX).status == Status.REFUSED


# Keys ---------------------------------------------------------------------------------------------


def test_a_transaction_does_one_branch_or_the_other_and_tells_what_it_met(driver: Driver) -> None:
    first = driver.put(A, "a", b"1").offset
    swap = {"conditions": (Condition(key="a", revision=first), Condition(key="b"))}
    done = driver.do(A, Operation(do=Do.PUT, key="b", value=b"2"), Operation(do=Do.DELETE, key="a"), **swap)
    assert done.succeeded
    assert [(item.key, item.revision) for item in done.items] == [("b", done.offset), ("a", first)]

    otherwise = (Operation(do=Do.GET, key="b"), Operation(do=Do.GET, key="a"))
    refused = driver.do(A, Operation(do=Do.PUT, key="b", value=b"3"), otherwise=otherwise, **swap)
    assert not refused.succeeded
    assert [(item.value, item.revision) for item in refused.items] == [(b"2", done.offset), (None, NONE)]
    assert driver.do(A, conditions=(Condition(key="b", value=b"2"),)).succeeded


def test_a_transaction_that_breaks_a_rule_changes_nothing_and_nobody_hears_of_it(driver: Driver) -> None:
    driver.put(A, "text", b"x")
    before = list(driver.machine.snapshot())[1:]
    since = driver.machine.applied
    numbers = Operation(do=Do.ADD, key="text", delta=1)
    refused = driver.do(
        A,
        Operation(do=Do.DELETE, key="text"),
        Operation(do=Do.APPEND, key="q/"),
        Operation(do=Do.PUT, key="text", value=b"y"),
        numbers,
    )

    assert refused.status == Status.REFUSED
    assert "no number" in refused.reason
    assert (driver.value("text"), driver.ask(Ask.KEYS, "q/", prefix=True).rows) == (b"x", ())
    assert changes(driver, ALL_KEYS, since) == []
    assert [part for part in driver.machine.snapshot() if part[0] == 4] == [part for part in before if part[0] == 4]


def test_numbers_are_added_within_64_bits(driver: Driver) -> None:
    assert driver.do(A, Operation(do=Do.ADD, key="n", delta=-3)).items[0].value == b"-3"
    assert driver.do(A, Operation(do=Do.ADD, key="n", delta=2**63 - 1)).items[0].value == b"%d" % (2**63 - 4)
    assert driver.do(A, Operation(do=Do.ADD, key="n", delta=2**63 - 1)).status == Status.REFUSED


def test_what_is_appended_is_taken_in_order_once(driver: Driver) -> None:
    driver.do(A, *[Operation(do=Do.APPEND, key="q/", value=b"%d" % n) for n in range(3)])
    driver.do(B, Operation(do=Do.APPEND, key="q/", value=b"3"))

    take = Operation(do=Do.TAKE, key="q/")
    assert [driver.do(C, take).items[0].value for _ in range(5)] == [b"0", b"1", b"2", b"3", None]


def test_numbered_keys_take_the_sum_of_the_addition_before_them(driver: Driver) -> None:
    def numbered(session: UUID) -> list[str]:
        done = driver.do(
            session,
            Operation(do=Do.ADD, key="n", delta=1),
            Operation(do=Do.PUT_NUMBERED, key="q/x-\0", value=b"1", delta=-1, ephemeral=True),
            Operation(do=Do.PUT_NUMBERED, key="q/\0/log\0"),
        )
        return [item.key for item in done.items[1:]]

    assert [numbered(A), numbered(B)] == [
        ["q/x-0000000000", "q/0000000001/log\0"],
        ["q/x-0000000001", "q/0000000002/log\0"],
    ]
    driver.send(A, CloseSession())
    assert [row.name for row in driver.ask(Ask.KEYS, "q/x", prefix=True).rows] == ["q/x-0000000001"]


def test_a_value_is_replaced_and_the_key_stays_with_its_session(driver: Driver) -> None:
    driver.put(A, "k", b"1", ephemeral=True)
    done = driver.do(B, Operation(do=Do.REPLACE, key="k", value=b"2"))
    assert driver.ask(Ask.KEYS, "k").rows[0].revision == done.offset
    assert driver.value("k") == b"2"
    driver.send(A, CloseSession())
    assert driver.value("k") is None
    assert "no key 'k'" in driver.do(B, Operation(do=Do.REPLACE, key="k")).reason


def test_a_condition_may_ask_that_a_key_exists(driver: Driver) -> None:
    exists = (Condition(key="k", revision=EXISTS),)
    assert not driver.do(A, conditions=exists).succeeded
    driver.put(A, "k")
    assert driver.do(A, conditions=exists).succeeded


def test_a_range_is_read_in_pages(driver: Driver) -> None:
    driver.do(A, *[Operation(do=Do.PUT, key=f"p/{n}") for n in range(5)], Operation(do=Do.PUT, key="q"))

    first = driver.ask(Ask.KEYS, "p/", prefix=True, most=2)
    rest = driver.ask(Ask.KEYS, "p/", prefix=True, most=3, after=first.rows[-1].name)
    assert [row.name for row in (*first.rows, *rest.rows)] == [f"p/{n}" for n in range(5)]
    assert (first.more, rest.more) == (True, False)
    assert driver.do(A, Operation(do=Do.DELETE_PREFIX, key="p/")).items[0].revision == 5
    assert [row.name for row in driver.ask(Ask.KEYS, prefix=True).rows] == ["q"]


def test_a_record_deletes_a_bounded_number_of_keys_and_says_whether_there_are_more(driver: Driver) -> None:
    for at in range(0, DELETED_MAX + 100, 100):
        driver.do(A, *[Operation(do=Do.PUT, key=f"p/{at + n:05}") for n in range(100)])
    clear = Operation(do=Do.DELETE_PREFIX, key="p/")

    first = driver.send(A, Transact(then=(Operation(do=Do.DELETE_PREFIX, key="p/0000"), clear)), number=0).items
    assert [(item.revision, item.more) for item in first] == [(10, False), (DELETED_MAX - 10, True)]
    assert [row.name for row in driver.ask(Ask.KEYS, prefix=True, most=1).rows] == [f"p/{DELETED_MAX:05}"]
    refused = driver.do(A, clear, Operation(do=Do.PUT, key="n", value=b"x"), Operation(do=Do.ADD, key="n"))
    assert refused.status == Status.REFUSED
    (second,) = driver.send(A, Transact(then=(clear,)), number=0).items
    assert (second.revision, second.more) == (100, False)


# Locks --------------------------------------------------------------------------------------------


def test_a_lock_is_granted_first_come_first_served_by_the_record_that_frees_it(driver: Driver) -> None:
    granted = driver.send(A, Acquire(lock="lock"))
    assert granted.token == granted.offset
    assert driver.send(B, Acquire(lock="lock")).waits
    assert driver.send(C, Acquire(lock="lock")).waits
    assert not driver.send(A, Acquire(lock="lock", wait=False)).waits

    freed = driver.send(A, Release(number=1))
    assert driver.bids("lock") == [(B, freed.offset), (C, NONE)]
    assert driver.send(C, Release(number=1)).succeeded, "a bid that waits is withdrawn"
    assert not driver.send(C, Release(number=1)).succeeded
    assert driver.bids("lock") == [(B, freed.offset)]


def test_a_bid_that_was_withdrawn_before_it_arrived_is_not_made(driver: Driver) -> None:
    driver.send(A, Release(number=5), number=6)
    assert driver.send(A, Acquire(lock="lock"), number=5).status == Status.GIVEN_UP
    assert driver.bids("lock") == []


def test_a_record_grants_one_bid_at_most_and_a_renewal_grants_the_own_one(driver: Driver) -> None:
    everything = 2**31 - 1
    driver.send(A, Acquire(lock="rw", limit=everything, permits=everything))
    driver.send(B, Acquire(lock="rw", limit=everything))
    driver.send(C, Acquire(lock="rw", limit=everything))

    freed = driver.send(A, Release(number=1)).offset
    assert driver.bids("rw") == [(B, freed), (C, NONE)]
    assert [row.event for row in driver.ask(Ask.LOCK, "rw").rows] == [Event.GRANTED, Event.READY]
    renewal = driver.send(C, KeepAlive()).offset
    assert driver.bids("rw") == [(B, freed), (C, renewal)]


def test_a_writer_is_not_starved_by_readers(driver: Driver) -> None:
    everything = 2**31 - 1
    driver.send(A, Acquire(lock="rw", limit=everything))
    assert driver.send(B, Acquire(lock="rw", limit=everything, permits=everything)).waits
    assert driver.send(C, Acquire(lock="rw", limit=everything)).waits


def test_a_fence_lets_a_write_pass_only_while_the_lock_is_held_with_its_token(driver: Driver) -> None:
    first = driver.send(A, Acquire(lock="lock")).token
    fenced = {"fences": (Fence(lock="lock", token=first),)}
    write = Operation(do=Do.PUT, key="k", value=b"by A")
    assert driver.do(C, write, **fenced).status == Status.OK, "whoever was handed the token may write"
    driver.send(B, Acquire(lock="lock"))
    driver.send(A, Release(number=1))

    late = driver.do(A, Operation(do=Do.PUT, key="k", value=b"late"), **fenced)
    assert late.status == Status.FENCED
    assert driver.do(A, write, fences=(Fence(lock="lock", token=NONE),)).status == Status.FENCED
    assert driver.value("k") == b"by A"


def test_an_owner_that_bids_again_replaces_its_own_bid(driver: Driver) -> None:
    driver.send(A, Acquire(lock="lock", owner="w1", replace=True))
    driver.send(B, Acquire(lock="lock", owner="w2", replace=True))
    again = driver.send(C, Acquire(lock="lock", owner="w1", replace=True))

    assert again.waits
    assert driver.bids("lock") == [(B, again.offset), (C, NONE)]


def test_a_lock_in_use_keeps_its_limit(driver: Driver) -> None:
    driver.send(A, Acquire(lock="lock", limit=2))
    assert "limit=2" in driver.send(B, Acquire(lock="lock", limit=3)).reason
    assert driver.send(B, Acquire(lock="lock", limit=2, permits=1)).token != NONE


# Changes ------------------------------------------------------------------------------------------


def test_changes_come_in_order_each_with_its_record_and_only_what_was_selected(driver: Driver) -> None:
    since = driver.machine.applied
    driver.put(A, "a", b"1")
    granted = driver.send(A, Acquire(lock="lock")).offset
    driver.do(B, Operation(do=Do.PUT, key="b"), Operation(do=Do.DELETE, key="a"))

    found = changes(driver, ALL_KEYS, since)
    assert [(offset, [(row.event, row.name) for row in rows]) for offset, rows in found] == [
        (since + 1, [(Event.PUT, "a")]),
        (since + 3, [(Event.PUT, "b"), (Event.DELETED, "a")]),
    ]
    assert [[row.event for row in rows] for _, rows in changes(driver, LOCK, since)] == [
        [Event.BID, Event.READY, Event.GRANTED]
    ]
    assert changes(driver, LOCK, granted) == []
    history = driver.ask(Ask.HISTORY, "a").rows
    assert [(row.event, row.revision) for row in history] == [(Event.PUT, since + 1), (Event.DELETED, since + 3)]


def test_where_the_history_is_gone_a_full_state_follows(driver: Driver) -> None:
    driver.put(A, "first")
    driver.send(A, KeepAlive(), number=10, acknowledged=10)
    kept = Transact(then=tuple(Operation(do=Do.PUT, key=f"k{n}") for n in range(100)))
    for _ in range(CHANGES_MAX // 100):
        driver.send(A, kept, number=0)

    gone = driver.machine.changes(ALL_KEYS, 0, most=1)
    assert isinstance(gone, Gone)
    assert gone.offset == driver.machine.applied
    rows = decode(Answer, gone.state).rows
    assert {row.name for row in rows} == {"first", *(f"k{n}" for n in range(100))}
    assert len(changes(driver, ALL_KEYS, gone.offset - 5)) == 5
    assert driver.ask(Ask.HISTORY, "first").gone


def test_a_full_state_and_all_answers_come_in_pages(driver: Driver) -> None:
    names = [f"k{n:04}" for n in range(1_100)]
    for at in range(0, len(names), 100):
        driver.send(A, Transact(then=tuple(Operation(do=Do.PUT, key=name) for name in names[at : at + 100])), number=0)
    for number in range(1, 1_003):
        driver.send(A, Acquire(lock="lock"), number=number, acknowledged=number)

    for selector in (ALL_KEYS, LOCK):
        gone = driver.machine.changes(selector, -2, most=1)
        assert isinstance(gone, Gone)
        first = decode(Answer, gone.state)
        assert (len(first.rows), first.more) == (1_000, True)
    last = driver.ask(Ask.LOCK, "lock", number=first.rows[-1].revision)
    assert (len(last.rows), last.more) == (2, False)

    pages = [driver.ask(Ask.HISTORY, "k", prefix=True, most=250)]
    while pages[-1].more:
        pages.append(driver.ask(Ask.HISTORY, "k", prefix=True, most=250, number=pages[-1].rows[-1].revision))
    assert [len(page.rows) for page in pages] == [300, 300, 300, 200], "no record is cut in two"
    assert [row.name for page in pages for row in page.rows] == names


# All commands -------------------------------------------------------------------------------------


def test_garbage_is_refused_and_the_same_everywhere_but_a_newer_command_stops_the_machine(driver: Driver) -> None:
    before = list(driver.machine.snapshot())[1:]
    for data in (b"", b"\x05", b"\x05\x00garbage", encode_command(KeepAlive())):
        assert driver.raw(data).status == Status.REFUSED
    assert list(driver.machine.snapshot())[1:] == before
    applied = driver.machine.applied
    for newer in (b"\x63\x00", b"\x02\x01"):
        with pytest.raises(UnsupportedError, match="upgrade"):
            driver.raw(newer)
    assert driver.machine.applied == applied


def apply_all(machine: ServiceMachine, commands: Sequence[bytes]) -> list[bytes]:
    driver = Driver(machine)
    return [encode(driver.raw(command)) for command in commands]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 150), cut=st.integers(0, 150))
def test_a_restored_machine_equals_the_one_that_wrote(seed: int, count: int, cut: int) -> None:
    """A machine that had another past is restored, and both go on with the same records."""
    commands = list(commands_at_random(seed, count))
    original, other = ServiceMachine(), ServiceMachine()
    apply_all(original, commands[:cut])
    apply_all(other, list(commands_at_random(seed + 1, 50)))
    frozen = original.freeze()
    rest = commands[cut:]
    copied = list(original.snapshot())
    results = apply_all(original, rest)
    other.restore(frozen)

    assert list(other.snapshot()) == copied
    assert apply_all(other, rest) == results
    assert list(other.snapshot()) == list(original.snapshot())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 100), most=st.integers(1, 20), large=st.integers(0, 200))
def test_a_machine_that_is_asked_first_applies_commands_as_the_others_do(
    seed: int, count: int, most: int, large: int
) -> None:
    """It remembers some of those that it has checked; the ones in the log may come in another order, and twice."""
    chance = random.Random(seed)
    commands = list(commands_at_random(seed, count))
    asked, other = ServiceMachine(), ServiceMachine()
    checked = [b"\x05\x00garbage", *chance.choices(commands, k=count)]
    with (
        mock.patch("kraftlib.coordination.machine.CHECKED_MAX", most),
        mock.patch("kraftlib.coordination.machine.CHECKED_BYTES_MAX", large),
    ):
        for command in checked:
            with suppress(ConfigError):
                asked.check(command)
        applied = [*commands, *checked]
        assert apply_all(asked, applied) == apply_all(other, applied)
    assert list(asked.snapshot()) == list(other.snapshot())


HOSTILE = st.tuples(
    st.sampled_from([A, A, A, B]),
    st.one_of(
        st.sampled_from([KeepAlive(), KeepAlive(), CloseSession(), OpenSession(ttl_ms=1_000), OpenSession()]),
        st.builds(Release, number=st.integers(-1, 6)),
        st.builds(Release, number=st.integers(1, 6)),
        st.builds(Acquire, lock=st.sampled_from("xy"), wait=st.booleans(), owner=st.just("o"), replace=st.booleans()),
        st.builds(Operation, do=st.sampled_from(Do), key=st.sampled_from(["", "a", "ab"]), ephemeral=st.booleans()).map(
            lambda operation: Transact(then=(operation,))
        ),
    ),
    st.integers(-1, 6),
    st.sampled_from([-1, 0, 0, 0, 1, 2, 3, 9]),
    st.integers(0, 3),
)
"""Session, command, sequence, acknowledged, and by how many the opening is wrong."""


@settings(max_examples=200, deadline=None)
@given(st.lists(HOSTILE, min_size=20, max_size=40), st.integers(3, 18))
def test_a_restored_machine_answers_hostile_clients_as_the_others_do(steps: list[Any], cut: int) -> None:
    with (
        mock.patch("kraftlib.coordination.sessions.RESULTS_MAX", 6),
        mock.patch("kraftlib.coordination.sessions.RESULTS_BYTES_MAX", 90),
    ):
        first, second = Driver(), Driver()
        first.open(A)
        for at, (session, body, sequence, acknowledged, wrong) in enumerate(steps):
            live = first.machine._state.sessions.live.get(session)
            opened = -1 if live is None else live.opened - max(0, wrong - 2)
            command = encode_command(body, session=session, opened=opened, sequence=sequence, acknowledged=acknowledged)
            if at == cut:
                second.machine.restore(first.machine.freeze())
            result = first.raw(command)
            if at >= cut:
                assert encode(second.raw(command)) == encode(result)
        assert cut >= len(steps) or list(second.machine.snapshot()) == list(first.machine.snapshot())


def command_at_random(chance: random.Random, number: int) -> bytes:
    return COMMANDS[number]


COMMANDS = list(commands_at_random(3, COUNT))


@pytest.mark.parametrize("check", MACHINE_CHECKS, ids=lambda check: check.__name__)
def test_the_machine_keeps_the_contract_of_state_machines(check: Callable[[Subject], None]) -> None:
    check(Subject(machine=ServiceMachine, value=command_at_random))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_tokens_grow_and_no_record_grants_two_bids_and_permits_are_kept(seed: int) -> None:
    driver = Driver()
    last = NONE
    for command in commands_at_random(seed, 150):
        before = driver.machine.applied
        driver.raw(command)
        granted = []
        for lock, limit in (("lock", 1), ("pair", 2), ("rw", 2**31 - 1)):
            selector = encode(Selector(watched=Watched.LOCK, name=lock))
            rows = [row for _, rows in changes(driver, selector, before) for row in rows]
            granted += [row.token for row in rows if row.event == Event.GRANTED]
            bids = driver.ask(Ask.LOCK, lock).rows
            assert sum(row.permits for row in bids if row.event != Event.BID) <= limit
            live = {session.opened for session in driver.machine._state.sessions.live.values()}
            assert all(row.session in live for row in bids)
            states = [row.event == Event.BID for row in bids]
            assert states == sorted(states), "nobody is served before one who came first"
        assert granted in ([], [driver.machine.applied])
        assert all(token > last for token in granted)
        last = max([last, *granted])


def test_the_same_records_make_the_same_bytes_in_every_process() -> None:
    program = "import hashlib\nfrom tests.coordination.test_machine import digest\nprint(digest())\n"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{digest()}\n"}


def digest() -> str:
    machine = ServiceMachine()
    results = apply_all(machine, list(commands_at_random(7, 2_000)))
    return hashlib.sha256(b"".join([*results, *machine.snapshot()])).hexdigest()


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([], RemoteProtocolError),
        ([b"\x01\x01"], UnsupportedError),
        ([b"\x63\x00"], UnsupportedError),
        ([b"\x01\x00\x00\x01" + bytes(17)], UnsupportedError),
        ([b"\x03\x00" + bytes(10)], RemoteProtocolError),
    ],
)
def test_a_snapshot_that_is_not_understood_is_refused_and_the_state_stays(
    driver: Driver, values: list[bytes], error: type[Exception]
) -> None:
    before = list(driver.machine.snapshot())
    with pytest.raises(error):
        driver.machine.restore(values)
    assert list(driver.machine.snapshot()) == before


def test_a_question_and_a_selector_that_are_not_known_are_refused(driver: Driver) -> None:
    for data in (b"", b"\x01", b"\x00\x63" + bytes(30)):
        with pytest.raises(ConfigError):
            driver.machine.query(data)
        with pytest.raises(ConfigError):
            driver.machine.changes(data, 0, most=1)


def test_a_session_is_opened_once_however_often_that_is_asked_for(driver: Driver) -> None:
    driver.put(A, "k", ephemeral=True)
    driver.open(A)
    assert driver.value("k") == b""
    assert driver.send(A, OpenSession(ttl_ms=50), number=0).status == Status.REFUSED
