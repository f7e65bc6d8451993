"""Finds, for the leader, the sessions that are not renewed and the keys whose time has passed.

This is no part of the replicated state. A leader measures, by its own monotonic clock, how long it is since it applied
the last renewal; a new leader cannot know when that was, so it grants every session and key its full time. An expired
session or key becomes a record (`Expire`), and it ends when that is applied, on every replica alike.

So a session that is not renewed lives for its ttl at least, from the moment at which its last renewal was applied, and
for its ttl, one election and the ttl again at most: if the leader is lost when the first is nearly over.

A leader that was paused has heard of no renewal meanwhile, while its followers may have waited. So its pause does not
count: the measured time goes on unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kraftlib.coordination.commands import encode_command
from kraftlib.coordination.keys import Keys
from kraftlib.coordination.messages import EXPIRE_MAX, Expire
from kraftlib.coordination.sessions import Session
from kraftlib.types import Epoch, Offset

LOOK_MS: Final = 100
"""A leader looks this often, or more often."""

PAUSE_MS: Final = 5 * LOOK_MS
"""A leader that has not looked for longer was paused."""


class Expiry:
    """Deadlines of the sessions and keys, as seen by the leader of one epoch."""

    def __init__(self) -> None:
        self._epoch: Epoch | None = None
        self._looked_ms = 0
        self._paused_ms = 0
        """All pauses of this epoch."""
        self._deadlines: dict[object, tuple[Offset, int]] = {}
        """By session or key: the record that it was last renewed by, and the deadline in ms."""

    def due(self, epoch: Epoch, now_ms: int, *, sessions: Collection[Session], keys: Keys) -> Sequence[bytes]:
        """Return commands that end what is over, at most `EXPIRE_MAX` sessions and keys each."""
        if epoch != self._epoch:
            self._epoch, self._deadlines = epoch, {}
            self._looked_ms, self._paused_ms = now_ms, 0
        now_ms = self._without_pauses(now_ms)
        known, self._deadlines = self._deadlines, {}
        over = [
            Expire.SessionRow(session=session.id, renewed=session.renewed)
            for session in sessions
            if self._is_over(known, session.id, session.renewed, session.ttl_ms, now_ms)
        ]
        rows = [
            Expire.KeyRow(key=key, revision=revision)
            for key, revision, ttl_ms in _timed(keys)
            if self._is_over(known, key, revision, ttl_ms, now_ms)
        ]
        return [
            encode_command(Expire(epoch=epoch, sessions=tuple(over[at:end]), keys=tuple(rows[at:end])))
            for at in range(0, max(len(over), len(rows)), EXPIRE_MAX)
            for end in [at + EXPIRE_MAX]
        ]

    def _without_pauses(self, now_ms: int) -> int:
        since_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if since_ms > PAUSE_MS:
            self._paused_ms += since_ms - LOOK_MS  # an instance that is slow for ever still comes to an end
        return now_ms - self._paused_ms

    def _is_over(
        self, known: Mapping[object, tuple[Offset, int]], thing: object, renewed: Offset, ttl_ms: int, now_ms: int
    ) -> bool:
        seen, deadline = known.get(thing, (None, 0))
        if seen != renewed:
            deadline = now_ms + ttl_ms
        self._deadlines[thing] = renewed, deadline
        return now_ms >= deadline


def _timed(keys: Keys) -> Iterable[tuple[str, Offset, int]]:
    for key in keys.timed:
        value = keys.values[key]
        yield key, value.revision, value.ttl_ms
