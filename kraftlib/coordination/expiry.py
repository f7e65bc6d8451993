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

from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeVar

from kraftlib.coordination.commands import encode_command
from kraftlib.coordination.keys import Keys
from kraftlib.coordination.messages import Expire
from kraftlib.coordination.sessions import Session
from kraftlib.types import Epoch, Offset

LOOK_MS: Final = 100
"""A leader looks this often, or more often."""

T = TypeVar("T")
Deadlines = dict[object, tuple[Offset, int]]
"""The record by which each session or key was last renewed, and its deadline in ms."""

AT_ONCE: Final = 16
"""Sessions, or keys, that one command ends: with the longest names it is small, too, and fits into a batch."""

PAUSE_MS: Final = 5 * LOOK_MS
"""A leader that has not looked for longer was paused."""


class Expiry:
    """Deadlines of the sessions and keys, as seen by the leader of one epoch."""

    def __init__(self) -> None:
        self._epoch: Epoch | None = None
        self._looked_ms = 0
        self._paused_ms = 0
        """All pauses of this epoch."""
        self._sessions: Deadlines = {}
        """By the offset at which each was opened."""
        self._keys: Deadlines = {}

    def due(self, epoch: Epoch, now_ms: int, *, sessions: Collection[Session], keys: Keys) -> Sequence[bytes]:
        """Return commands that end what is over, at most `AT_ONCE` sessions or keys each."""
        if epoch != self._epoch:
            self._epoch, self._sessions, self._keys = epoch, {}, {}
            self._looked_ms, self._paused_ms = now_ms, 0
        now_ms = self._without_pauses(now_ms)
        alive = [(session, session.opened, session.renewed, session.ttl_ms) for session in sessions]
        timed = [(key, key, value.revision, value.ttl_ms) for key in keys.timed for value in [keys.values[key]]]
        over, self._sessions = _over(self._sessions, alive, now_ms)
        gone, self._keys = _over(self._keys, timed, now_ms)
        ended = [Expire.SessionRow(session=session.id, renewed=session.renewed) for session in over]
        rows = [Expire.KeyRow(key=key, revision=keys.values[key].revision) for key in gone]
        return [
            encode_command(Expire(epoch=epoch, sessions=tuple(ended[at : at + AT_ONCE])))
            for at in range(0, len(ended), AT_ONCE)
        ] + [
            encode_command(Expire(epoch=epoch, keys=tuple(rows[at : at + AT_ONCE])))
            for at in range(0, len(rows), AT_ONCE)
        ]

    def _without_pauses(self, now_ms: int) -> int:
        since_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if since_ms > PAUSE_MS:
            self._paused_ms += since_ms - LOOK_MS  # an instance that is slow for ever still comes to an end
        return now_ms - self._paused_ms


def _over(known: Deadlines, things: Iterable[tuple[T, object, Offset, int]], now_ms: int) -> tuple[list[T], Deadlines]:
    """Return those of the things that are over, and the deadlines of all. A leader does this with thousands of them."""
    over: list[T] = []
    deadlines: Deadlines = {}
    for thing, name, renewed, ttl_ms in things:
        deadline = known.get(name)
        if deadline is None or deadline[0] != renewed:
            deadline = renewed, now_ms + ttl_ms
        deadlines[name] = deadline
        if now_ms >= deadline[1]:
            over.append(thing)
    return over, deadlines
