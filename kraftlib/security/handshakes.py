"""Bounds how many handshakes each address may begin: one of TLS takes the loop of a replica about a millisecond.

A stranger needs neither a certificate nor a password to begin one, and its first message is cheap to make. So each
address has a budget that fills again over time (KIP-612 bounds the connections of an address for the same reason). A
handshake whose peer is not authenticated costs more of it. So users that connect again in a crowd, all from one
address, have the larger share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

REMEMBERED: Final = 512

UNPROVEN_COST: Final = 5
"""A handshake counts as so many until its peer is authenticated."""


class Handshakes:
    """The handshakes of all addresses, in seconds of `clock`.

    An address may have `at_once` of them under way, and `per_second` in the long run if each ends with a peer that is
    authenticated.
    """

    def __init__(self, clock: Callable[[], float], *, at_once: int, per_second: int) -> None:
        self._clock: Final = clock
        self._proven_s: Final = 1 / per_second
        self._unproven_s: Final = UNPROVEN_COST / per_second
        self._at_once_s: Final = at_once * self._unproven_s
        self._whole_at: dict[str, float] = {}
        """When an address will have its whole budget again."""
        self._forget_at = REMEMBERED

    def may_begin(self, host: str) -> bool:
        """Return whether an address may begin a handshake now, and count it if so."""
        now = self._clock()
        whole_at = max(self._whole_at.get(host, now), now) + self._unproven_s
        if whole_at - now > self._at_once_s:
            return False
        if len(self._whole_at) >= self._forget_at:
            self._whole_at = {other: at for other, at in self._whole_at.items() if at > now}
            self._forget_at = max(REMEMBERED, 2 * len(self._whole_at))
        self._whole_at[host] = whole_at
        return True

    def proven(self, host: str) -> None:
        """Take note that a peer at this address is authenticated: give back what its handshake counted too much."""
        if host in self._whole_at:
            self._whole_at[host] -= self._unproven_s - self._proven_s
