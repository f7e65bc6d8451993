"""What wrong passwords cost, and whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from kraftlib.security import password_checks
from kraftlib.security.password_checks import ADDRESS_FAILURES, FAILURES, QUEUE_MAX, PasswordChecks


@pytest.fixture
async def checks(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PasswordChecks]:
    """Time gives nothing back."""
    monkeypatch.setattr(password_checks, "ADDRESS_FAILURES_PER_S", 0.0)
    monkeypatch.setattr(password_checks, "FAILURES_PER_S", 0.0)
    made = PasswordChecks(asyncio.get_running_loop(), is_voter_host=lambda host: host == "voter")
    yield made
    made.close()


async def tried(checks: PasswordChecks, host: str, *, is_right: bool) -> bool | None:
    answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
    checks.submit(host, lambda: is_right, answer.set_result)
    async with asyncio.timeout(20):
        return await answer


async def test_an_address_has_so_many_wrong_passwords_and_others_have_theirs(checks: PasswordChecks) -> None:
    assert [await tried(checks, "a", is_right=True) for _ in range(2 * ADDRESS_FAILURES)] == [True] * 20
    found = [await tried(checks, "a", is_right=False) for _ in range(ADDRESS_FAILURES + 5)]
    assert found == [False] * ADDRESS_FAILURES + [None] * 5
    assert await tried(checks, "a", is_right=True) is None
    assert await tried(checks, "b", is_right=False) is False


async def test_all_together_have_so_many_and_voters_and_those_that_have_logged_in_go_on(checks: PasswordChecks) -> None:
    assert await tried(checks, "known", is_right=True)
    found = [await tried(checks, f"{number}", is_right=False) for number in range(FAILURES + 5)]
    assert found == [False] * FAILURES + [None] * 5
    assert await tried(checks, "new", is_right=True) is None
    assert await tried(checks, "voter", is_right=True), "also at a replica that has just been started again"
    assert await tried(checks, "known", is_right=True)


async def test_passwords_that_wait_together_cost_no_more_than_one_by_one(checks: PasswordChecks) -> None:
    found = await asyncio.gather(*[tried(checks, "a", is_right=False) for _ in range(ADDRESS_FAILURES + 5)])
    assert found == [False] * ADDRESS_FAILURES + [None] * 5
    hosts = [f"{number}" for number in range(FAILURES)]
    found = await asyncio.gather(*[tried(checks, host, is_right=False) for host in hosts])
    assert found.count(False) == FAILURES - ADDRESS_FAILURES


async def test_nothing_is_checked_after_the_end(checks: PasswordChecks) -> None:
    """A connection that goes a moment later may still send a password."""
    checks.close()
    checks.submit("late", lambda: True, lambda is_right: pytest.fail(f"it was told {is_right}"))
    await asyncio.sleep(0)


async def test_a_check_that_raises_keeps_nobody_waiting(checks: PasswordChecks) -> None:
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    checks.submit("a", lambda: bool(1 // 0), lambda is_right: None)
    assert await tried(checks, "b", is_right=True)
    assert [type(error) for error in told] == [ZeroDivisionError]


async def test_time_gives_tokens_back() -> None:
    now = [0.0]
    loop = asyncio.get_running_loop()
    checks = PasswordChecks(SimpleNamespace(time=lambda: now[0], run_in_executor=loop.run_in_executor))
    for _ in range(ADDRESS_FAILURES):
        assert await tried(checks, "a", is_right=False) is False
    for now[0], expected in ((0.9, None), (1.0, False), (1.9, None), (3.0, True)):
        assert await tried(checks, "a", is_right=expected is True) is expected
    checks.close()


async def test_the_queue_is_short(checks: PasswordChecks) -> None:
    go = threading.Event()
    answers: list[bool | None] = []
    all_told = asyncio.Event()

    def tell(answer: bool | None) -> None:
        answers.append(answer)
        if len(answers) == QUEUE_MAX + 5:
            all_told.set()

    for number in range(QUEUE_MAX + 5):
        checks.submit(f"{number}", lambda: go.wait(20), tell)
    assert answers == [None] * 5
    go.set()
    async with asyncio.timeout(20):
        await all_told.wait()
    assert answers[5:] == [True] * QUEUE_MAX
