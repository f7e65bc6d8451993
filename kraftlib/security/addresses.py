"""The addresses of the voters, as connections show them: numbers at once, names as soon as they are resolved.

Names are resolved one after the other, in a thread of their own, and again every minute: nothing waits for a name
server, and one that never answers keeps a single thread. While a name resolves to nothing, its last known addresses
count.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from kraftlib.security.own_thread import begun
from kraftlib.types import UNIX

HOSTS_MAX: Final = 256
ADDRESSES_MAX: Final = 16
"""Of one name."""

AGAIN_S: Final = 60.0

_asked: Final[WeakValueDictionary[tuple[int, str, int | None], asyncio.Future[Any]]] = WeakValueDictionary()
"""The names that are being looked up, by loop: their threads hold the futures, and these hold the loops."""


async def look_up(name: str, port: int | None) -> Sequence[tuple[Any, ...]]:
    """Return the addresses of a name for TCP, as `socket.getaddrinfo` does. Raises: OSError, ValueError, OverflowError.

    A name server that is silent is waited for up to a minute, and no caller can end that. In the executor of the loop
    it would hold up the end of the loop. So a name has a thread of its own, and all who ask for the name share it.
    """
    key = id(asyncio.get_running_loop()), name, port
    answer = _asked.get(key)
    if answer is None or answer.done():
        answer = _asked[key] = begun(functools.partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM))
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())  # all who asked may be gone
    return await asyncio.shield(answer)


@functools.lru_cache(maxsize=1_024)
def plain_address(text: str) -> str | None:
    """Return a numeric address as it is compared: without its zone, an IPv4 address in IPv6 as IPv4. None: a name.

    It is asked of every connection that is accepted; a peer that makes many is seldom new.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


class VoterAddresses:
    """The addresses of the current voters. `learn` is called on the event loop."""

    def __init__(self) -> None:
        self._numbers: frozenset[str] = frozenset()
        self._names: tuple[str, ...] = ()
        self._found: dict[str, frozenset[str]] = {}
        self._resolving: asyncio.Task[None] | None = None

    def __contains__(self, address: str) -> bool:
        plain = plain_address(address)
        return plain is not None and (plain in self._numbers or any(plain in found for found in self._found.values()))

    def learn(self, hosts: Iterable[str]) -> None:
        """Take these hosts for those of the voters, in place of earlier ones."""
        # Unix sockets are told apart by their users (`kraftlib.security.unix_users`), and their paths are no names.
        wanted = [host for host in dict.fromkeys(hosts) if not host.startswith(UNIX)][:HOSTS_MAX]
        plain = {host: plain_address(host) for host in wanted}
        self._numbers = frozenset(address for address in plain.values() if address is not None)
        names = tuple(host for host in wanted if plain[host] is None)
        if names == self._names:
            return
        self._names = names
        self._found = {name: found for name, found in self._found.items() if name in names}
        self.close()
        if names:
            self._resolving = asyncio.get_running_loop().create_task(self._resolve(), name="kraftlib-voter-addresses")

    def close(self) -> None:
        """Resolve no more names."""
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None

    async def _resolve(self) -> None:
        while True:
            for name in self._names:
                with contextlib.suppress(OSError, UnicodeError):
                    rows = await look_up(name, None)
                    plain = (plain_address(str(row[4][0])) for row in rows[:ADDRESSES_MAX])
                    self._found[name] = frozenset(address for address in plain if address is not None)
            await asyncio.sleep(AGAIN_S)
