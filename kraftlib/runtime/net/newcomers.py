"""Accepted connections come here first. Their first bytes are looked at, and who may stay is admitted.

A connection whose first bytes have not come waits in a slot of the port, and is closed when it waits for too long.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from kraftlib.runtime.net.newcomer import Complaint, FirstBytes, Newcomer, first_bytes
from kraftlib.runtime.net.tcp_connection import CLOSED, Shared
from kraftlib.runtime.net.transport import Peer


class Newcomers:
    """The newcomers of all ports of one server.

    `has_seat` gives one a slot if there is any, else it closes it; `admit` takes one over that has a slot; `leave` is
    told of one that waits no more, and closes it.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        has_seat: Callable[[Newcomer], bool],
        admit: Callable[[Newcomer], None],
        leave: Callable[[Newcomer], None],
        is_voter_host: Callable[[str], bool],
    ) -> None:
        self._shared: Final = shared
        self._has_seat: Final = has_seat
        self._admit: Final = admit
        self._leave: Final = leave
        self._is_voter_host: Final = is_voter_host
        self._waiting: Final[set[Newcomer]] = set()

    def __len__(self) -> int:
        """Return how many wait for their first bytes."""
        return len(self._waiting)

    def arrive(self, accepted: socket.socket, caller: Callable[[], tuple[str, Peer]], rules: FirstBytes) -> None:
        """Turn a connection away, admit it, or let it wait. `caller` returns whose it is, or raises OSError."""
        first = first_bytes(accepted)
        try:
            newcomer = None if first == b"" else Newcomer(accepted, *caller(), rules, self._shared.now())
        except OSError:
            newcomer = None
        if newcomer is None:
            accepted.close()  # it is gone
            return
        if first is not None and self._is_turned_away(newcomer, first):
            return
        if not self._has_seat(newcomer):
            return
        if first is not None:
            self._admit(newcomer)
        else:
            self._waiting.add(newcomer)
            self._shared.loop.add_reader(accepted.fileno(), self._look_again, newcomer)

    def refuse(self, newcomer: Newcomer, kind: str, reason: str) -> None:
        """Close one that waits, and tell the operator."""
        self._shared.notices.warn(kind, newcomer.host, CLOSED, newcomer.peer.address, reason)
        self._stop_waiting(newcomer)
        self._leave(newcomer)

    def sweep(self) -> None:
        """Close those that have waited for too long."""
        now, most_ms = self._shared.now(), self._shared.limits.first_frame_ms
        for newcomer in [each for each in self._waiting if now - each.accepted_at > most_ms / 1000]:
            self.refuse(newcomer, "no_first_frame", f"no request came within {most_ms} ms")

    def close(self) -> None:
        """Close all that wait."""
        for newcomer in list(self._waiting):
            self._stop_waiting(newcomer)
            self._leave(newcomer)

    def _look_again(self, newcomer: Newcomer) -> None:
        first = first_bytes(newcomer.accepted)
        if first is None:
            return
        self._stop_waiting(newcomer)
        if not first or self._is_turned_away(newcomer, first):
            self._leave(newcomer)
        else:
            self._admit(newcomer)

    def _stop_waiting(self, newcomer: Newcomer) -> None:
        self._waiting.discard(newcomer)
        self._shared.loop.remove_reader(newcomer.accepted.fileno())

    def _is_turned_away(self, newcomer: Newcomer, first: bytes) -> bool:
        """Close a connection if its `first` bytes break the rules, and return whether they did."""
        found = newcomer.rules.complaint(first) or self._too_many_handshakes(newcomer)
        if found is None:
            return False
        self._shared.notices.warn(found.kind, newcomer.host, CLOSED, newcomer.peer.address, found.reason)
        if found.attempt is not None:
            self._shared.tell_refusal(newcomer.peer, found.attempt, found.reason)
        newcomer.close(found.answer)
        return True

    def _too_many_handshakes(self, newcomer: Newcomer) -> Complaint | None:
        rules = newcomer.rules
        if not (rules.is_encrypted or rules.asks_login) or self._is_voter_host(newcomer.host):
            return None
        if self._shared.handshakes.may_begin(newcomer.host):
            return None
        limit = self._shared.limits.handshakes_per_second
        reason = f"its address begins more handshakes than handshakes_per_second = {limit} allows"
        return Complaint("too_many_handshakes", reason)
