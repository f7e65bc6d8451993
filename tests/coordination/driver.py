"""A machine that is told what to do, and commands at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import UUID

from kraftlib.codec.declared import Message
from kraftlib.coordination.commands import decode, decode_command, encode, encode_command
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.messages import (
    EXISTS,
    NONE,
    Acquire,
    Answer,
    Ask,
    CloseSession,
    Do,
    Expire,
    KeepAlive,
    Kind,
    OpenSession,
    Question,
    Release,
    Result,
    Status,
    Transact,
)
from kraftlib.runtime.committed import CommittedRecord

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
Operation, Condition, Fence = Transact.Operation, Transact.Condition, Transact.Fence


class Driver:
    """Applies one record after the other."""

    def __init__(self, machine: ServiceMachine | None = None) -> None:
        self.machine = machine or ServiceMachine()
        self.numbers: dict[UUID, int] = {}
        self.opened: dict[UUID, int] = {}

    def raw(self, data: bytes, *, epoch: int = 1) -> Result:
        record = CommittedRecord(self.machine.applied + 1, epoch, 0, data)
        return decode(Result, self.machine.apply(record))

    def send(self, session: UUID, body: Message, *, number: int | None = None, acknowledged: int = 0) -> Result:
        """Make a call with the next number of the session, or with `number`."""
        if number is None:
            number = self.numbers[session] = self.numbers.get(session, 0) + 1
        opened = self.opened.get(session, -1)
        command = encode_command(body, session=session, opened=opened, sequence=number, acknowledged=acknowledged)
        return self.raw(command)

    def open(self, *sessions: UUID) -> None:
        for session in sessions:
            self.opened[session] = self.send(session, OpenSession(ttl_ms=1_000), number=0).offset

    def do(self, session: UUID, *operations: Operation, **more: object) -> Result:
        return self.send(session, Transact(then=operations, **more))  # type: ignore[arg-type]

    def put(self, session: UUID, key: str, value: bytes = b"", **more: object) -> Result:
        return self.do(session, Operation(do=Do.PUT, key=key, value=value, **more))  # type: ignore[arg-type]

    def ask(self, ask: Ask, name: str = "", **more: object) -> Answer:
        question = Question(ask=ask, name=name, **more)  # type: ignore[arg-type]
        return decode(Answer, self.machine.query(encode(question)))

    def value(self, key: str) -> bytes | None:
        rows = self.ask(Ask.KEYS, key).rows
        return rows[0].value if rows else None

    def bids(self, lock: str) -> list[tuple[UUID, int]]:
        """Session and token of each."""
        return [(self.named(row), row.token) for row in self.ask(Ask.LOCK, lock).rows]

    def named(self, row: Answer.Row) -> UUID:
        """The session that a row speaks of."""
        return next(session for session, opened in self.opened.items() if opened == row.session)


KEYS = ["a", "b", "queue/1", "queue/2", "n"]
LOCKS = {"lock": 1, "pair": 2, "rw": 0x7FFFFFFF}


def commands_at_random(seed: int, count: int) -> Iterator[bytes]:
    """Yield commands of three sessions, of all kinds, repeated ones and wrong ones among them: from offset 0 on."""
    chance, driver = random.Random(seed), Driver()
    numbers = dict.fromkeys((A, B, C), 0)
    sent: list[bytes] = []
    for offset in range(count):
        session = chance.choice((A, B, C))
        if sent and chance.random() < 0.1:
            command = chance.choice(sent)
        else:
            numbers[session] += 1
            command = encode_command(
                _body(chance, numbers[session], offset),
                session=session,
                opened=driver.opened.get(session, -1),
                sequence=numbers[session],
                acknowledged=chance.randrange(numbers[session] + 1),
            )
            sent.append(command)
        result = driver.raw(command)
        if command[0] == Kind.OPEN_SESSION and result.status == Status.OK:
            driver.opened[decode_command(command).identity.session] = result.offset
        yield command


def _body(chance: random.Random, number: int, offset: int) -> Message:
    lock = chance.choice(list(LOCKS))
    permits = chance.choice((1, LOCKS[lock]))
    wait, replace = chance.random() < 0.8, chance.random() < 0.2
    bodies = [
        lambda: OpenSession(ttl_ms=1_000, owner="x"),
        KeepAlive,
        lambda: CloseSession() if chance.random() < 0.2 else KeepAlive(),
        lambda: Expire(
            epoch=chance.choice((1, 1, 2)),
            sessions=(Expire.SessionRow(session=chance.choice((A, B, C)), renewed=offset - chance.randrange(1, 4)),),
            keys=(Expire.KeyRow(key=chance.choice(KEYS), revision=offset - chance.randrange(1, 6)),),
        ),
        lambda: _transact(chance),
        lambda: _transact(chance),
        lambda: Acquire(
            lock=lock, limit=LOCKS[lock], permits=permits, wait=wait, owner=chance.choice("pq"), replace=replace
        ),
        lambda: Release(number=max(1, number - chance.randrange(1, 5))),
    ]
    return chance.choice(bodies)()


def _transact(chance: random.Random) -> Transact:
    def operation() -> Operation:
        return Operation(
            do=chance.choice([do for do in Do if do != Do.PUT_NUMBERED]),
            key=chance.choice(KEYS),
            value=chance.choice((b"1", b"2", b"x")),
            ttl_ms=chance.choice((0, 0, 1_000)),
            ephemeral=chance.random() < 0.3,
            delta=chance.randrange(-2, 3),
        )

    return Transact(
        fences=(Fence(lock="lock", token=chance.randrange(50)),) if chance.random() < 0.1 else (),
        conditions=(
            Condition(
                key=chance.choice(KEYS), value=chance.choice((None, b"1")), revision=chance.choice((NONE, EXISTS))
            ),
        ),
        then=(*(operation() for _ in range(chance.randrange(4))), *_numbered(chance)),
        otherwise=tuple(operation() for _ in range(chance.randrange(3))),
    )


def _numbered(chance: random.Random) -> tuple[Operation, ...]:
    if chance.random() < 0.7:
        return ()
    return (
        Operation(do=Do.ADD, key="n", delta=1),
        Operation(do=Do.PUT_NUMBERED, key="queue/\0", ephemeral=chance.random() < 0.5, delta=-1),
    )
