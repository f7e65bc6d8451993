"""The addresses of voters are known at once or soon, and never waited for."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from kraftlib.security.addresses import HOSTS_MAX, VoterAddresses, look_up, plain_address
from tests.runtime.quorum import PATIENCE_S, until


class NameServer:
    """Knows no `broken.example`, and answers for all others once it is let to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: Any, **how: Any) -> list[Any]:
        self.asked.append(host)
        if host == "broken.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        self.answers.wait(PATIENCE_S)
        self.answers.set()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 0))]


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
    server = NameServer(monkeypatch)
    voters = VoterAddresses()
    voters.learn(["broken.example", "voter.example", "10.0.0.1"])
    await until(lambda: server.asked == ["broken.example", "voter.example"])
    assert "10.0.0.1" in voters
    assert "10.0.0.7" not in voters
    server.answers.set()
    await until(lambda: "10.0.0.7" in voters)
    voters.learn([])
    assert "10.0.0.7" not in voters


async def test_all_who_ask_for_a_name_share_one_thread_also_if_some_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = NameServer(monkeypatch)
    asking = [asyncio.create_task(look_up("voter.example", 9)) for _ in range(20)]
    await until(lambda: server.asked)
    for task in asking[:10]:
        task.cancel()
    asking.append(asyncio.create_task(look_up("voter.example", 9)))
    await asyncio.sleep(0)
    server.answers.set()
    found = await asyncio.gather(*asking, return_exceptions=True)

    assert server.asked == ["voter.example"]
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [True] * 10 + [False] * 11
    assert found[-1][0][4] == ("10.0.0.7", 0)
    await look_up("voter.example", 9)
    assert server.asked == ["voter.example"] * 2
    with pytest.raises(socket.gaierror, match="no such name"):
        await look_up("broken.example", 9)


def test_a_loop_ends_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor of the loop would be waited for, and with it the name server."""
    server = NameServer(monkeypatch)

    async def leave() -> None:
        asking = asyncio.create_task(look_up("voter.example", 9))
        await until(lambda: server.asked)
        asking.cancel()

    asyncio.run(leave())
    assert not server.answers.is_set()
    server.answers.set()


async def test_a_voter_set_of_thousands_is_cut() -> None:
    voters = VoterAddresses()
    voters.learn(f"10.0.{number // 256}.{number % 256}" for number in range(10_000))
    assert "10.0.0.1" in voters
    assert f"10.0.{HOSTS_MAX // 256}.0" not in voters
