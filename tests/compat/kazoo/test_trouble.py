"""Attempts that fail: `test_watches` and `test_client` have what is tried."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kraftlib.compat.kazoo.trouble import PAUSE_MAX_S, Trouble


async def test_each_reason_is_told_once_and_the_pauses_grow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    trouble = Trouble(logging.getLogger("test"), "no session yet", pause_s=0.5)
    for reason in ("down", "down", "down", "not for you", "not for you", "not for you"):
        await trouble.pause(ValueError(reason))
    assert pauses == [0.5, 1, 2, 4, PAUSE_MAX_S, PAUSE_MAX_S]
    assert [record.getMessage() for record in caplog.records] == ["no session yet: down", "no session yet: not for you"]

    trouble.is_over()
    await trouble.pause(ValueError("not for you"))
    assert (pauses[-1], len(caplog.records)) == (0.5, 3)
