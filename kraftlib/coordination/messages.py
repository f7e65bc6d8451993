"""The bytes of the coordination machine: commands, results, questions, answers, changes and snapshot parts.

All are declared structs (`kraftlib.codec.declared`), written in flexible encoding behind two bytes: a kind and a
version. A revision is the offset of the record that wrote a key; `NONE` stands for a missing one.

`KINDS` lists every command by its kind. A number is never used again for something else.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from kraftlib.codec.declared import Message, Struct, array, binary, boolean, int8, int32, int64, message, string, uuid
from kraftlib.frozen import frozen

NONE: Final = -1
"""No offset: the revision of an absent key, the token of a bid that is not granted."""

EXISTS: Final = -2
"""In a condition, in place of a revision: the key exists, whichever its revision is."""

PLACEHOLDER: Final = "\0"
"""Stands for the number in the key of a PUT_NUMBERED."""

NUMBER_DIGITS: Final = 20
"""Of a number of 64 bits with its sign, at most."""

OPERATIONS_MAX: Final = 256
"""Conditions, fences, operations of one transaction, each."""

EXPIRE_MAX: Final = 1_000
"""Sessions, and keys, that one record expires."""

DELETED_MAX: Final = 1_000
"""Keys that one record deletes by their prefixes."""


class Kind(enum.IntEnum):
    """The kind of a command: its first byte."""

    OPEN_SESSION = 1
    KEEP_ALIVE = 2
    CLOSE_SESSION = 3
    EXPIRE = 4
    TRANSACT = 5
    ACQUIRE = 6
    RELEASE = 7


class Do(enum.IntEnum):
    """The kind of an operation on keys."""

    GET = 0
    """Read a key."""
    PUT = 1
    """Write a key, with a time to live or for as long as the session lives, if asked."""
    DELETE = 2
    """Delete a key."""
    DELETE_PREFIX = 3
    """Delete keys that begin with `key`, at most `DELETED_MAX` by one record; the result's revision is their number."""
    ADD = 4
    """Add `delta` to a key that holds a decimal number, or nothing; the result has the new value."""
    APPEND = 5
    """Write a new key: `key` and the place of this operation in the log, so that keys sort as they were written."""
    TAKE = 6
    """Read and delete the first key that begins with `key`."""
    PUT_NUMBERED = 7
    """As PUT, where the first `PLACEHOLDER` of `key` stands for the sum of the last ADD before it, plus `delta`, in ten
    digits. So the keys below one name get ascending numbers, without a gap in which others see the number in use."""
    REPLACE = 8
    """Write the value of a key that exists, and leave its time to live and its session as they are."""


class Status(enum.IntEnum):
    """The outcome of a command."""

    OK = 0
    SESSION_ENDED = 1
    """The session is not known, or not any more."""
    FENCED = 2
    """A lock that the command names is not held with that token."""
    GIVEN_UP = 3
    """The call was acknowledged, or given up, by its own session before it arrived."""
    REFUSED = 4
    """The command breaks a rule; `reason` says which. Nothing was changed."""


class Ask(enum.IntEnum):
    """The kind of a question."""

    KEYS = 1
    """The key `name`; or all keys that begin with it, if `prefix`."""
    HISTORY = 2
    """The changes of the same, after the record at `number`, as far as they are kept."""
    LOCK = 3
    """The bids of the lock `name`, holders first, in their order: that of their tickets."""
    SESSION = 4
    """The session `session`: `ttl_ms` is 0, if it is not alive."""


class Event(enum.IntEnum):
    """The kind of a change."""

    PUT = 1
    DELETED = 2
    BID = 3
    """A bid was made: `revision` is its ticket."""
    READY = 4
    """There is room for a bid, and any record of its session grants it. At most one bid is granted by a record."""
    GRANTED = 5
    """A bid holds the lock: `token` is the offset of this record."""
    ENDED = 6
    """A bid is over: released, withdrawn, or its session has ended."""


class Watched(enum.IntEnum):
    """The kind of a selector."""

    KEY = 1
    PREFIX = 2
    LOCK = 3


# Commands -----------------------------------------------------------------------------------------


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Identity(Message):
    """The identity of a call; it stands in front of every command. A repeated call has the same one."""

    session: UUID = uuid("0+")
    """Chosen at random by the client, and its secret: a client that knows it acts for the session."""
    opened: int = int64("0+", default=NONE)
    """The result's offset of the `OpenSession`: an id that is opened again, by a duplicate, names another session."""
    sequence: int = int64("0+")
    """From 1, ascending in a session. 0: the call has no result that matters, and is not remembered."""
    acknowledged: int = int64("0+")
    """The caller waits for no result of a lower sequence number any more."""


@message(kind="data", versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class OpenSession(Message):
    """Begin the session of the identity, whose `opened` is not looked at. Repeated: nothing changes."""

    ttl_ms: int = int32("0+")
    owner: str = string("0+")
    """For people."""


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class KeepAlive(Message):
    """Renew the session. Every other command does so, too."""


@message(kind="data", versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class CloseSession(Message):
    """End the session: its ephemeral keys are deleted, its bids are over."""


@message(kind="data", versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class Expire(Message):
    """End sessions that were not renewed, and delete keys whose time is over. Proposed by the leader only.

    Counts only in a record of the epoch `epoch`. A session that was renewed, or a key that was written, by a record
    that the leader had not applied when it decided, lives on.
    """

    epoch: int = int32("0+")
    sessions: tuple[Expire.SessionRow, ...] = array("SessionRow", "0+", most=EXPIRE_MAX)
    keys: tuple[Expire.KeyRow, ...] = array("KeyRow", "0+", most=EXPIRE_MAX)

    @frozen(kw_only=True, eq=False, repr=False)
    class SessionRow(Struct):
        """A session and the last record that renewed it."""

        session: UUID = uuid("0+")
        renewed: int = int64("0+")

    @frozen(kw_only=True, eq=False, repr=False)
    class KeyRow(Struct):
        """A key and its revision."""

        key: str = string("0+")
        revision: int = int64("0+")


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Transact(Message):
    """If all conditions hold, do all of `then`, else all of `otherwise`: atomically, in order."""

    fences: tuple[Transact.Fence, ...] = array("Fence", "0+", most=OPERATIONS_MAX)
    """Locks that must be held. If one is not, nothing is done at all."""
    conditions: tuple[Transact.Condition, ...] = array("Condition", "0+", most=OPERATIONS_MAX)
    then: tuple[Transact.Operation, ...] = array("Operation", "0+", most=OPERATIONS_MAX)
    otherwise: tuple[Transact.Operation, ...] = array("Operation", "0+", most=OPERATIONS_MAX)

    @frozen(kw_only=True, eq=False, repr=False)
    class Fence(Struct):
        """The lock is held by the grant with this token, by whichever session."""

        lock: str = string("0+")
        token: int = int64("0+")

    @frozen(kw_only=True, eq=False, repr=False)
    class Condition(Struct):
        """The key has this value; or, if that is null, this revision (`NONE`: there is no such key; `EXISTS`: any)."""

        key: str = string("0+")
        value: bytes | None = binary("0+", nullable="0+", default=None)
        revision: int = int64("0+", default=NONE)

    @frozen(kw_only=True, eq=False, repr=False)
    class Operation(Struct):
        """One operation, see `Do`."""

        do: int = int8("0+")
        key: str = string("0+")
        value: bytes = binary("0+")
        ttl_ms: int = int32("0+")
        """0: no end of its own."""
        ephemeral: bool = boolean("0+")
        """The key is deleted when the session of this call ends."""
        delta: int = int64("0+")


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Acquire(Message):
    """Bid for `permits` of the `limit` of a lock; they are granted first come, first served.

    A lock is of limit 1; a semaphore of n; readers take one of `LIMIT_MAX` permits, and a writer all of them.
    """

    lock: str = string("0+")
    limit: int = int32("0+", default=1)
    permits: int = int32("0+", default=1)
    wait: bool = boolean("0+", default=True)
    """False: if it cannot be granted by this record, it is over."""
    owner: str = string("0+")
    """The name of the bidder."""
    replace: bool = boolean("0+")
    """End all other bids of this owner for this lock first, granted ones, too."""


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Release(Message):
    """End the bid that this session made in the earlier call `number`, granted or not. Repeated: nothing changes.

    If that call arrives later, it is not applied any more. This one has a sequence number of its own.
    """

    number: int = int64("0+")


KINDS: Final[Mapping[int, type[Message]]] = {
    Kind.OPEN_SESSION: OpenSession,
    Kind.KEEP_ALIVE: KeepAlive,
    Kind.CLOSE_SESSION: CloseSession,
    Kind.EXPIRE: Expire,
    Kind.TRANSACT: Transact,
    Kind.ACQUIRE: Acquire,
    Kind.RELEASE: Release,
}


# Results, questions, answers ------------------------------------------------------------------------


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Result(Message):
    """The result of a command, kept until the caller acknowledges it."""

    status: int = int8("0+")
    reason: str = string("0+")
    offset: int = int64("0+", default=NONE)
    """Of the record that was applied first: a repeated call gets the same."""
    succeeded: bool = boolean("0+", default=True)
    """Transact: the conditions held. Release: there was such a bid."""
    items: tuple[Result.Item, ...] = array("Item", "0+")
    """One for each operation that was done."""
    token: int = int64("0+", default=NONE)
    """Acquire: the token, if it was granted."""
    waits: bool = boolean("0+")
    """Acquire: the bid waits."""

    @frozen(kw_only=True, eq=False, repr=False)
    class Item(Struct):
        """The key that an operation has read, written or deleted; `revision` is `NONE` where there was none."""

        key: str = string("0+")
        value: bytes | None = binary("0+", nullable="0+", default=None)
        """Of GET, ADD and TAKE."""
        revision: int = int64("0+", default=NONE)
        more: bool = boolean("0+")
        """DELETE_PREFIX: there are more such keys."""


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Question(Message):
    """A read, see `Ask`."""

    ask: int = int8("0+")
    name: str = string("0+")
    prefix: bool = boolean("0+")
    after: str = string("0+")
    """Keys: those that sort after this one."""
    most: int = int32("0+", default=1_000)
    """The number of keys, changes or bids. All changes of the last record come, even if they are more."""
    number: int = int64("0+", default=NONE)
    """History: the changes after this record. Lock: the bids with a greater ticket."""
    session: UUID = uuid("0+")


@message(kind="data", versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class Answer(Message):
    """The answer to a question, and what a watch delivers."""

    rows: tuple[Answer.Row, ...] = array("Row", "0+")
    more: bool = boolean("0+")
    """There are more than these: ask for those after the last one."""
    gone: bool = boolean("0+")
    """Of a history: some of the changes that were asked for are not kept any more."""
    ttl_ms: int = int32("0+")

    @frozen(kw_only=True, eq=False, repr=False)
    class Row(Struct):
        """A key, a bid, or a change of either; see `Event`."""

        event: int = int8("0+")
        name: str = string("0+")
        value: bytes | None = binary("0+", nullable="0+", default=None)
        revision: int = int64("0+", default=NONE)
        """Of a key: the record that wrote or deleted it. Of a bid: its ticket, the record that made it."""
        session: int = int64("0+", default=NONE)
        """Of an ephemeral key, and of a bid: the offset at which its session was opened. The id is a secret."""
        owner: str = string("0+")
        token: int = int64("0+", default=NONE)
        permits: int = int32("0+")
        ttl_ms: int = int32("0+")


@message(kind="data", versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class Selector(Message):
    """The things that a watch is for, see `Watched`."""

    watched: int = int8("0+")
    name: str = string("0+")
