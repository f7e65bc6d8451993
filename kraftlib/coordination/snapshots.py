"""The state of the coordination machine as values of a snapshot, and back.

    int8 tag, int8 version, struct

The first part is a `Header`, which has the version of the whole; the others follow. Two machines that have applied the
same records write the same bytes, whatever their past: keys, locks and sessions stand in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

import attrs

from kraftlib.codec.declarations import declared_fields
from kraftlib.codec.declared import Message, binary, boolean, int16, int32, int64, message, string
from kraftlib.codec.declared import uuid as uuid_field
from kraftlib.coordination.commands import decode, encode
from kraftlib.coordination.history import History
from kraftlib.coordination.keys import Keys, Value
from kraftlib.coordination.locks import Bid, Locks
from kraftlib.coordination.messages import NONE, Answer
from kraftlib.coordination.sessions import Session, Sessions
from kraftlib.coordination.state import State
from kraftlib.errors import RemoteProtocolError, UnsupportedError
from kraftlib.types import Offset

VERSION: Final = 0
"""The version of the snapshot as a whole."""

HEADER, SESSION, RESULT, KEY, BID, READY, CHANGES = range(1, 8)


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Header(Message):
    """The first part."""

    version: int = int16("0+")
    applied: int = int64("0+")
    history_start: int = int64("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SessionPart(Message):
    """A live session."""

    id: UUID = uuid_field("0+")
    ttl_ms: int = int32("0+")
    owner: str = string("0+")
    opened: int = int64("0+")
    renewed: int = int64("0+")
    acknowledged: int = int64("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ResultPart(Message):
    """A result of the last session."""

    number: int = int64("0+")
    result: bytes = binary("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class KeyPart(Message):
    """A key."""

    key: str = string("0+")
    value: bytes = binary("0+")
    revision: int = int64("0+")
    session: int = int64("0+", default=NONE)
    ttl_ms: int = int32("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BidPart(Message):
    """A bid: those of a lock in their order."""

    ticket: int = int64("0+")
    lock: str = string("0+")
    limit: int = int32("0+")
    permits: int = int32("0+")
    session: int = int64("0+")
    number: int = int64("0+")
    owner: str = string("0+")
    ready: bool = boolean("0+")
    token: int = int64("0+", default=NONE)


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReadyPart(Message):
    """The ticket of a bid that is to be granted, in order."""

    ticket: int = int64("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ChangesPart(Message):
    """The changes of one record."""

    offset: int = int64("0+")
    answer: bytes = binary("0+")
    """An `Answer`, encoded."""


_PARTS: Final[dict[int, type[Message]]] = {
    HEADER: Header,
    SESSION: SessionPart,
    RESULT: ResultPart,
    KEY: KeyPart,
    BID: BidPart,
    READY: ReadyPart,
    CHANGES: ChangesPart,
}
_TAG_OF: Final = {part: tag for tag, part in _PARTS.items()}


def freeze(state: State) -> Iterable[bytes]:
    """Return the parts, to be iterated over later: only references to values that do not change are copied now."""
    header = Header(version=VERSION, applied=state.applied, history_start=state.history.start)
    sessions, keys = state.sessions.copies(), state.keys.frozen()
    bids = [bid for name in state.locks.names() for bid in state.locks.bids(name)]
    ready, changes = list(state.locks.ready), list(state.history.records)
    return (
        bytes((_TAG_OF[type(part)],)) + encode(part) for part in _parts(header, sessions, keys, bids, ready, changes)
    )


def _parts(
    header: Header,
    sessions: list[Session],
    keys: Iterable[tuple[str, Value]],
    bids: list[Bid],
    ready: list[Offset],
    changes: list[tuple[Offset, tuple[Answer.Row, ...]]],
) -> Iterator[Message]:
    yield header
    for session in sessions:
        yield SessionPart(
            id=session.id,
            ttl_ms=session.ttl_ms,
            owner=session.owner,
            opened=session.opened,
            renewed=session.renewed,
            acknowledged=session.acknowledged,
        )
        for number, result in session.results.items():
            yield ResultPart(number=number, result=result)
    for key, value in keys:
        yield KeyPart(key=key, **attrs.asdict(value))
    for bid in bids:
        yield BidPart(**attrs.asdict(bid))
    for ticket in ready:
        yield ReadyPart(ticket=ticket)
    for offset, rows in changes:
        yield ChangesPart(offset=offset, answer=encode(Answer(rows=rows)))


def restore(values: Iterable[bytes]) -> State:
    """Build the state from its parts.

    Raises: UnsupportedError, if a newer release has written them; RemoteProtocolError, if they do not fit together.
    """
    parts = _read(values)
    header = next(parts, None)
    if not isinstance(header, Header):
        raise RemoteProtocolError(f"a snapshot of the coordination machine begins with a header, not {header!r}")
    if header.version != VERSION:
        raise UnsupportedError(f"a snapshot in version {header.version} is not known to this release: upgrade it")
    sessions: list[Session] = []
    keys: list[tuple[str, Value]] = []
    bids: list[Bid] = []
    ready: list[Offset] = []
    changes: list[tuple[Offset, tuple[Answer.Row, ...]]] = []
    for part in parts:
        match part:
            case SessionPart():
                sessions.append(Session(**_fields(part)))
            case ResultPart() if sessions:
                sessions[-1].keep(part.number, part.result)
            case KeyPart():
                keys.append((part.key, Value(part.value, part.revision, part.session, part.ttl_ms)))
            case BidPart():
                bids.append(Bid(**_fields(part)))
            case ReadyPart():
                ready.append(part.ticket)
            case ChangesPart():
                changes.append((part.offset, decode(Answer, part.answer).rows))
            case _:
                raise RemoteProtocolError(f"a part of a snapshot stands in the wrong place: {part!r}")
    if not set(ready) <= {bid.ticket for bid in bids if bid.ready}:
        raise RemoteProtocolError("a bid is to be granted for which the snapshot has no room")
    return State(
        applied=header.applied,
        sessions=Sessions(sessions),
        keys=Keys(keys),
        locks=Locks(bids, ready),
        history=History(header.history_start, changes),
    )


def _read(values: Iterable[bytes]) -> Iterator[Message]:
    for value in values:
        part = _PARTS.get(value[0]) if value else None
        if part is None:
            raise UnsupportedError(f"part {value[:1]!r} of a snapshot is not known to this release: upgrade it")
        yield decode(part, value[1:])


def _fields(part: Message) -> dict[str, Any]:
    return {name: getattr(part, name) for name, _, _ in declared_fields(type(part))}
