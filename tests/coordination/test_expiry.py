"""What a leader finds to be over, by its own clock."""

from __future__ import annotations

from uuid import UUID

from kraftlib.coordination.commands import NAME_BYTES_MAX
from kraftlib.coordination.expiry import AT_ONCE
from kraftlib.coordination.messages import Ask, KeepAlive
from kraftlib.records.batch import HEADER_SIZE
from kraftlib.records.values import RECORD_OVERHEAD_MAX
from tests.coordination.driver import A, B, Driver, Operation


def tick(driver: Driver, epoch: int, now_ms: int) -> int:
    """Propose what is due, as the leader of `epoch`; return the number of commands."""
    due = driver.machine.due(epoch, now_ms)
    for command in due:
        driver.raw(command, epoch=epoch)
    return len(due)


def alive(driver: Driver) -> list[bool]:
    return [driver.ask(Ask.SESSION, session=session).ttl_ms > 0 for session in (A, B)]


def test_a_session_ends_when_its_time_is_over_and_not_while_it_is_renewed() -> None:
    driver = Driver()
    driver.open(A, B)
    for now in range(0, 1_000, 100):
        assert tick(driver, 1, now) == 0
        driver.send(B, KeepAlive())
    assert tick(driver, 1, 1_000) == 1
    assert alive(driver) == [False, True]
    assert tick(driver, 1, 1_100) == 0


def test_a_new_leader_grants_every_session_and_key_its_full_time() -> None:
    driver = Driver()
    driver.open(A, B)
    driver.put(A, "k", ttl_ms=500)
    tick(driver, 1, 0)
    tick(driver, 2, 900)
    assert tick(driver, 2, 1_399) == 0
    assert tick(driver, 2, 1_400) == 1
    assert driver.value("k") is None
    assert alive(driver) == [True, True]
    tick(driver, 2, 1_900)
    assert alive(driver) == [False, False]


def test_the_time_for_which_a_leader_is_paused_ends_no_session() -> None:
    driver = Driver()
    driver.open(A, B)
    tick(driver, 1, 0)
    tick(driver, 1, 400)
    assert tick(driver, 1, 60_000) == 0
    driver.send(B, KeepAlive())
    for now in range(60_100, 60_500, 100):
        assert tick(driver, 1, now) == 0
    tick(driver, 1, 60_500)
    assert alive(driver) == [False, True], "the time goes on from where it stood"


def test_a_leader_that_is_slow_for_ever_ends_sessions_all_the_same() -> None:
    driver = Driver()
    driver.open(A, B)
    for now in range(0, 60_000, 600):
        tick(driver, 1, now)
    assert alive(driver) == [False, False]


def test_a_key_that_is_written_again_has_its_time_again() -> None:
    driver = Driver()
    driver.open(A)
    driver.put(A, "k", ttl_ms=500)
    tick(driver, 1, 0)
    driver.put(A, "k", ttl_ms=500)
    tick(driver, 1, 400)
    assert tick(driver, 1, 600) == 0
    assert driver.value("k") == b""
    tick(driver, 1, 900)
    assert driver.value("k") is None


def test_a_renewal_that_overtakes_the_expiry_saves_the_session() -> None:
    driver = Driver()
    driver.open(A, B)
    tick(driver, 1, 0)
    tick(driver, 1, 500)
    (due,) = driver.machine.due(1, 1_000)
    driver.send(A, KeepAlive())
    driver.raw(due)
    assert alive(driver) == [True, False]


def test_many_that_are_over_come_in_records_of_bounded_size_until_they_are_gone() -> None:
    driver = Driver()
    driver.open(A)
    driver.do(A, *[Operation(do=1, key=f"k{n}", ttl_ms=100) for n in range(AT_ONCE + 1)])
    tick(driver, 1, 0)
    assert len(driver.machine.due(1, 100)) == 2
    assert tick(driver, 1, 101) == 2, "what is due is due until it is applied"
    assert driver.ask(Ask.KEYS, prefix=True).rows == ()


def test_a_thousand_keys_with_the_longest_names_and_their_session_are_over_at_once() -> None:
    """As one record they were larger than a command may be: it was refused, and proposed again, without end."""
    driver = Driver()
    driver.open(A, B)
    for at in range(0, 1_000, 100):
        names = [f"{n:04}".ljust(NAME_BYTES_MAX, "x") for n in range(at, at + 100)]
        driver.do(A, *[Operation(do=1, key=name, ttl_ms=1_000) for name in names])
    tick(driver, 1, 0)
    tick(driver, 1, 500)
    tick(driver, 1, 1_000)
    assert driver.ask(Ask.KEYS, prefix=True).rows == ()
    assert alive(driver) == [False, False]


def test_a_command_that_ends_sessions_fits_into_the_smallest_batch() -> None:
    driver = Driver()
    driver.open(*[UUID(int=number) for number in range(1, 101)])
    tick(driver, 1, 0)
    tick(driver, 1, 500)
    due = driver.machine.due(1, 1_000)
    assert max(map(len, due)) + RECORD_OVERHEAD_MAX + HEADER_SIZE <= 1_024, "the least of batch_max_bytes"
    assert tick(driver, 1, 1_001) == len(due)
    assert tick(driver, 1, 1_002) == 0
