"""The addresses of voters are known at once or soon, and never waited for."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from kraftlib.security.addresses import HOSTS_MAX, VoterAddresses, plain_address


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("voter-1.example", None),
        ("", None),
        ("10.1.2.3.4", None),
    ],
)
def test_one_address_is_written_in_one_way(text: str, plain: str | None) -> None:
    assert plain_address(text) == plain


async def test_numbers_are_known_at_once_and_forgotten_with_their_voters() -> None:
    voters = VoterAddresses()
    voters.learn(["10.0.0.1", "::1"])
    assert "10.0.0.1" in voters
    assert "::ffff:10.0.0.1" in voters
    assert "10.0.0.2" not in voters
    voters.learn(["10.0.0.2"])
    assert "10.0.0.1" not in voters
    assert "10.0.0.2" in voters


async def test_a_name_is_resolved_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answered = asyncio.Event()

    async def getaddrinfo(host: str, port: Any, **how: Any) -> list[Any]:
        asked.append(host)
        if host == "broken.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        await answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    voters = VoterAddresses()
    voters.learn(["broken.example", "voter.example", "10.0.0.1"])
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked == ["broken.example", "voter.example"]
    assert "10.0.0.1" in voters
    assert "10.0.0.7" not in voters
    answered.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert "10.0.0.7" in voters
    voters.learn([])
    assert "10.0.0.7" not in voters


async def test_a_voter_set_of_thousands_is_cut() -> None:
    voters = VoterAddresses()
    voters.learn(f"10.0.{number // 256}.{number % 256}" for number in range(10_000))
    assert "10.0.0.1" in voters
    assert f"10.0.{HOSTS_MAX // 256}.0" not in voters
