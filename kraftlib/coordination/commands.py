"""Commands and questions to bytes and back, and the bounds that each must keep.

    command              int8 kind, int8 version, Identity, the message of that kind
    all else             int8 version, message

`check_command` refuses a command before it is appended. Commands in the log are checked again when they are applied:
another release may have let it through. There a broken rule is a result, and the same one on every replica; only a kind
or a version that is not known raises, for a newer replica knows what it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar
from uuid import UUID

from kraftlib.codec.declared import Message, read, write_into
from kraftlib.codec.reader import Reader
from kraftlib.coordination.messages import (
    KINDS,
    NONE,
    NUMBER_DIGITS,
    PLACEHOLDER,
    Acquire,
    Ask,
    Do,
    Identity,
    Kind,
    OpenSession,
    Question,
    Release,
    Selector,
    Transact,
    Watched,
)
from kraftlib.errors import ConfigError, LocalProtocolError, ProtocolError, RemoteProtocolError, UnsupportedError
from kraftlib.frozen import frozen
from kraftlib.types import ZERO_UUID, Offset
from kraftlib.wire.bounds import PROPOSED_BYTES

VERSION: Final = 0
COMMAND_BYTES_MAX: Final = PROPOSED_BYTES
"""Any replica takes a command, and forwards it."""

HEADER_BYTES: Final = 2
"""The kind and the version, in front of a command."""

NAME_BYTES_MAX: Final = 1_024
"""Bytes of UTF-8 of a key, of the name of a lock, and of an owner."""

NAME_CHARACTERS: Final = NAME_BYTES_MAX // 4
"""So many characters are never more bytes: each has four at most."""

TTL_MS_MIN: Final = 100
TTL_MS_MAX: Final = 24 * 3_600_000
LIMIT_MAX: Final = 0x7FFFFFFF
ROWS_MAX: Final = 10_000
"""Rows of an answer."""

_DOS: Final = frozenset(Do)
_WITH_ANY_NAME: Final = frozenset({Do.DELETE_PREFIX, Do.APPEND, Do.TAKE})
_ADD: Final = int(Do.ADD)
_PUT_NUMBERED: Final = int(Do.PUT_NUMBERED)
_KIND_OF: Final = {message: kind for kind, message in KINDS.items()}
M = TypeVar("M", bound=Message)


@frozen
class Command:
    """A decoded command."""

    kind: int
    identity: Identity
    body: Message


def encode_command(
    body: Message, *, session: UUID = ZERO_UUID, opened: Offset = NONE, sequence: int = 0, acknowledged: int = 0
) -> bytes:
    """Return the bytes of a command. Raises: ConfigError, if a value does not fit into its field."""
    out = bytearray((_KIND_OF[type(body)], VERSION))
    try:
        identity = Identity(session=session, opened=opened, sequence=sequence, acknowledged=acknowledged)
        write_into(out, identity, VERSION)
        write_into(out, body, VERSION)
    except LocalProtocolError as error:
        raise ConfigError(f"{body!r} is no command: {error}") from None
    return bytes(out)


def decode_command(data: bytes) -> Command:
    """Read a command.

    Raises: UnsupportedError, if its kind or version is not known here; RemoteProtocolError, if it is garbage.
    """
    if len(data) > COMMAND_BYTES_MAX:
        raise RemoteProtocolError(f"a command of {len(data)} bytes is larger than {COMMAND_BYTES_MAX}")
    if len(data) < HEADER_BYTES:
        raise RemoteProtocolError(f"a command of {len(data)} bytes has no kind and version")
    reader = Reader(data, HEADER_BYTES)
    kind, version = data[0], data[1]
    message = KINDS.get(kind)
    if message is None or version != VERSION:
        raise UnsupportedError(f"command {kind} in version {version} is not known to this release: upgrade the replica")
    return Command(kind, read(Identity, reader, VERSION), read(message, reader, VERSION, expect_end=True))


def check_command(data: bytes) -> Command:
    """Return the command, if a client may propose it. Raises: ConfigError."""
    try:
        command = decode_command(data)
    except (ProtocolError, UnsupportedError) as error:
        raise ConfigError(f"this is no command: {error}") from None
    if command.kind == Kind.EXPIRE:
        raise ConfigError("only the leader itself proposes what has expired")
    reason = broken_rule(command)
    if reason:
        raise ConfigError(reason)
    return command


def broken_rule(command: Command) -> str:
    """Return the rule that a command breaks, whatever the state; empty, if none."""
    if command.kind != Kind.EXPIRE and command.identity.session == ZERO_UUID:
        return "a command belongs to a session, and this one names none"
    sequence, acknowledged = command.identity.sequence, command.identity.acknowledged
    if sequence < 0 or acknowledged < 0 or 0 < sequence < acknowledged:
        return f"sequence={sequence} with acknowledged={acknowledged}: a call cannot be over before it is made"
    match command.body:
        case OpenSession(ttl_ms=ttl_ms, owner=owner):
            return _ttl_rule(ttl_ms) or _name_rule(owner, may_be_empty=True)
        case Transact() as body:
            return _transact_rule(body)
        case Acquire() as body:
            return _acquire_rule(body, sequence)
        case Release(number=number) if not 1 <= number < sequence:
            return f"number={number} with sequence={sequence}: only an earlier call is released, by a numbered one"
    return ""


def _transact_rule(body: Transact) -> str:
    for fence in body.fences:
        if rule := _name_rule(fence.lock):
            return rule
    for condition in body.conditions:
        if rule := _name_rule(condition.key):
            return rule
    if rule := _numbered_rule(body.then) or _numbered_rule(body.otherwise):
        return rule
    for operation in (*body.then, *body.otherwise):
        if rule := _operation_rule(operation):
            return rule
    return ""


def _operation_rule(operation: Transact.Operation) -> str:
    if operation.do not in _DOS:
        return f"operation {operation.do} is not known"
    rule = _name_rule(operation.key, may_be_empty=operation.do in _WITH_ANY_NAME)
    return rule or (_ttl_rule(operation.ttl_ms) if operation.ttl_ms else "")


def _numbered_rule(branch: Iterable[Transact.Operation]) -> str:
    added = False
    for operation in branch:
        added |= operation.do == _ADD
        if operation.do == _PUT_NUMBERED:
            if not added:
                return f"the number in {operation.key!r} is that of an ADD before it, and there is none"
            if PLACEHOLDER not in operation.key:
                return f"the key {operation.key!r} has no place for its number: put {PLACEHOLDER!r} there"
            if rule := _name_rule(operation.key.replace(PLACEHOLDER, "0" * NUMBER_DIGITS, 1)):
                return rule
    return ""


def _acquire_rule(body: Acquire, sequence: int) -> str:
    if rule := _name_rule(body.lock) or _name_rule(body.owner, may_be_empty=not body.replace):
        return rule
    if not 1 <= body.permits <= body.limit:
        return f"permits={body.permits} must be 1 to limit={body.limit}"
    return "" if sequence else "a bid needs a sequence number, by which it is released"


def _ttl_rule(ttl_ms: int) -> str:
    return (
        "" if TTL_MS_MIN <= ttl_ms <= TTL_MS_MAX else f"ttl_ms={ttl_ms} must lie within {TTL_MS_MIN} and {TTL_MS_MAX}"
    )


def _name_rule(name: str, *, may_be_empty: bool = False) -> str:
    if 0 < len(name) <= NAME_CHARACTERS:
        return ""
    if not name and not may_be_empty:
        return "a name must not be empty"
    size = len(name.encode())
    return "" if size <= NAME_BYTES_MAX else f"a name of {size} bytes is longer than {NAME_BYTES_MAX}: {name[:32]!r}…"


# All else -----------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """Return the bytes of a result, a question, an answer, a selector, or a part of a snapshot."""
    out = bytearray((VERSION,))
    try:
        write_into(out, message, VERSION)
    except LocalProtocolError as error:
        raise ConfigError(f"{message!r} does not fit into its fields: {error}") from None
    return bytes(out)


def decode(cls: type[M], data: bytes) -> M:
    """Read what `encode` has written. Raises: RemoteProtocolError; UnsupportedError, if it is of another version."""
    reader = Reader(data)
    version = reader.int8()
    if version != VERSION:
        raise UnsupportedError(f"{cls.__name__} in version {version} is not known to this release: upgrade it")
    return read(cls, reader, VERSION, expect_end=True)


def decode_question(data: bytes) -> Question:
    """Read a question. Raises: ConfigError."""
    question = _asked(Question, data)
    if question.ask not in Ask.__members__.values():
        raise ConfigError(f"question {question.ask} is not known to this release")
    if not 1 <= question.most <= ROWS_MAX:
        raise ConfigError(f"most={question.most} must lie within 1 and {ROWS_MAX}")
    return question


def decode_selector(data: bytes) -> Selector:
    """Read a selector. Raises: ConfigError."""
    selector = _asked(Selector, data)
    if selector.watched not in Watched.__members__.values():
        raise ConfigError(f"selector {selector.watched} is not known to this release")
    return selector


def _asked(cls: type[M], data: bytes) -> M:
    try:
        return decode(cls, data)
    except (ProtocolError, UnsupportedError) as error:
        raise ConfigError(f"this is no {cls.__name__.lower()}: {error}") from None
