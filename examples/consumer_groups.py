"""Consumer groups and offsets, as of Kafka's group coordinator: a state machine of one's own behind `kraftlib.open`.

The members of a group share the partitions of topics. Whoever joins, leaves or is not heard of for its session's time
begins a new *generation*, in which the partitions are dealt anew. A commit names the generation that it belongs to, and
is refused if that is over: a consumer that was paused cannot set back what its successor has done. The offsets of a
group without members are forgotten after `RETENTION_MS`.

A machine that `kraftlib.open` serves answers `call`, `query` and `watch` (`kraftlib.coordination.access.Machine`), with
bytes of its own: here JSON. A client may send a call again, as the same bytes, so each has a number, and a number that
was seen gets the answer that it got before. No replica looks at a clock: the leader proposes what has expired.

The snapshot has one value for each key, however many commits there were, and an increment has the keys that changed
since (`IncrementalStateMachine`), as if the log of commits were compacted by key.

    python examples/consumer_groups.py serve replica-1.toml
    python examples/consumer_groups.py consume 127.0.0.1:9191,127.0.0.1:9192 billing orders=6
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import attrs
from attrs.validators import deep_mapping, ge, in_, instance_of, max_len

import kraftlib
from kraftlib import CommittedRecord, ConfigError, KraftError
from kraftlib.coordination.access import Gone
from kraftlib.recipes.kraft import Kraft
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine

RETENTION_MS: Final = 7 * 24 * 3_600_000
PARTITIONS_MAX: Final = 10_000
TIMEOUT_MS: Final = 30_000

GROUP, MEMBER, OFFSET = "group", "member", "offset"
Key = tuple[str, ...]
"""(GROUP, group), (MEMBER, group, member) or (OFFSET, group, partition); a partition is `topic-number`."""

NAME: Any = [instance_of(str), max_len(255)]
NUMBERS: Any = [deep_mapping(instance_of(str), ge(0)), max_len(PARTITIONS_MAX)]


@attrs.frozen(kw_only=True)
class Command:
    """What a member calls, or, with `expire`, the leader proposes."""

    do: str = attrs.field(validator=in_(("join", "heartbeat", "commit", "leave", "expire")))
    group: str = attrs.field(default="", validator=NAME)
    member: str = attrs.field(default="", validator=NAME)
    number: int = attrs.field(default=0, validator=instance_of(int))
    """Counts the calls of the member; of what has expired, the offset of its last record."""
    generation: int = attrs.field(default=0, validator=instance_of(int))
    session_ms: int = attrs.field(default=10_000, validator=[instance_of(int), ge(100)])
    topics: dict[str, int] = attrs.field(factory=dict, validator=NUMBERS)
    """Of `join`: the number of partitions of each topic."""
    offsets: dict[str, int] = attrs.field(factory=dict, validator=NUMBERS)
    """Of `commit`: the next offset of each partition."""

    def encode(self) -> bytes:
        """Return the value of a record."""
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Command:
        """Return the command. Raises: ConfigError."""
        try:
            command = cls(**json.loads(data))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{data[:80]!r} is no command: {error}") from None
        if sum(command.topics.values()) > PARTITIONS_MAX:
            raise ConfigError(f"{command.topics} are more than {PARTITIONS_MAX} partitions")
        return command


class Groups(IncrementalStateMachine):
    """The state: contents by key. A content is replaced and never changed, so that a copy of the dict is a snapshot."""

    def __init__(self) -> None:
        self.applied: int = -1
        self._entries: dict[str, dict[Key, Any]] = {GROUP: {}, MEMBER: {}, OFFSET: {}}
        self._changed: set[Key] = set()
        self._deadlines: dict[Key, tuple[int, int]] = {}
        self._epoch: int = -1

    def _get(self, *key: str) -> Any:
        return self._entries[key[0]].get(key)

    def _set(self, *key: str, to: Any) -> None:
        self._changed.add(key)
        if to is None:
            self._entries[key[0]].pop(key, None)
        else:
            self._entries[key[0]][key] = to

    # --- commands ----------------------------------------------------------------------------------------------------

    def check(self, command: bytes) -> None:
        """Refuse what a client may not propose."""
        if Command.decode(command).do == "expire":
            raise ConfigError("only the leader says what has expired")

    def apply(self, record: CommittedRecord) -> bytes:
        """Carry out a command, once, and return generation, partitions and offsets of the member."""
        self.applied = record.offset
        try:
            command = Command.decode(record.value)
        except ConfigError as error:
            return json.dumps({"error": str(error)}).encode()
        group, member = command.group, self._get(MEMBER, command.group, command.member)
        if command.do == "expire":
            self._expire(command, member)
        elif member is None and command.do != "join":
            return json.dumps({"error": "unknown member: join"}).encode()
        elif member is None or command.number > member["number"]:
            before = member or {"topics": None}
            member = {**before, "number": command.number, "renewed": record.offset, "error": ""}
            self._set(MEMBER, group, command.member, to=member)
            self._carry_out(command, member)
        return json.dumps(self._answer(group, command.member)).encode()

    def _carry_out(self, command: Command, member: dict[str, Any]) -> None:
        key = (MEMBER, command.group, command.member)
        match command.do:
            case "join" if command.topics != member["topics"]:
                self._set(*key, to={**member, "topics": command.topics, "session_ms": command.session_ms})
                self._rebalance(command.group)
            case "leave":
                self._set(*key, to=None)
                self._rebalance(command.group)
            case "commit":
                group = self._get(GROUP, command.group)
                if command.generation != group["generation"]:
                    error = f"generation {command.generation} is over, it is {group['generation']}"
                    self._set(*key, to={**member, "error": error})
                elif not set(command.offsets) <= set(group["assigned"][command.member]):
                    self._set(*key, to={**member, "error": "a partition is not assigned to this member"})
                else:
                    for partition, offset in command.offsets.items():
                        self._set(OFFSET, command.group, partition, to=offset)

    def _expire(self, command: Command, member: dict[str, Any] | None) -> None:
        """End a member, or the offsets of a group without members, unless it was heard of meanwhile."""
        group = self._get(GROUP, command.group)
        if member is not None and member["renewed"] == command.number:
            self._set(MEMBER, command.group, command.member, to=None)
            self._rebalance(command.group)
        elif not command.member and group is not None and group["changed"] == command.number and not group["assigned"]:
            self._set(GROUP, command.group, to=None)
            for key in [key for key in self._entries[OFFSET] if key[1] == command.group]:
                self._set(*key, to=None)

    def _rebalance(self, group: str) -> None:
        """Begin a generation: deal the partitions of each topic to the members that asked for it."""
        members = {key[2]: value["topics"] for key, value in self._entries[MEMBER].items() if key[1] == group}
        assigned: dict[str, list[str]] = {member: [] for member in sorted(members)}
        for topic in sorted({topic for topics in members.values() for topic in topics}):
            takers = [member for member in assigned if topic in members[member]]
            for number in range(max(members[member][topic] for member in takers)):
                assigned[takers[number % len(takers)]].append(f"{topic}-{number}")
        generation = (self._get(GROUP, group) or {"generation": 0})["generation"] + 1
        self._set(GROUP, group, to={"generation": generation, "changed": self.applied, "assigned": assigned})

    def _answer(self, group: str, member: str) -> dict[str, Any]:
        state, own = self._get(GROUP, group), self._get(MEMBER, group, member)
        if state is None or own is None:
            return {"error": ""}
        offsets = {partition: self._get(OFFSET, group, partition) or 0 for partition in state["assigned"][member]}
        return {"error": own["error"], "generation": state["generation"], "offsets": offsets}

    # --- reads and time ----------------------------------------------------------------------------------------------

    def query(self, question: bytes) -> bytes:
        """Return the state of the group that `question` names, null if there is none."""
        return json.dumps(self._get(GROUP, question.decode("utf-8", "replace"))).encode()

    def changes(self, selector: bytes, since: int, *, most: int) -> Sequence[tuple[int, bytes]] | Gone:
        """Return the state of a group that has changed since: its last generation is all that a watch needs."""
        group = self._get(GROUP, selector.decode("utf-8", "replace"))
        return Gone(self.applied, self.query(selector)) if group and group["changed"] > since else ()

    def due(self, epoch: int, now_ms: int) -> Sequence[bytes]:
        """Return what has expired, as the leader's clock says. A new leader gives everybody the full time again."""
        known = self._deadlines if epoch == self._epoch else {}
        self._deadlines, self._epoch = {}, epoch
        lives = {key: (value["renewed"], value["session_ms"]) for key, value in self._entries[MEMBER].items()}
        for key, value in self._entries[GROUP].items():
            if not value["assigned"]:
                lives[key] = value["changed"], RETENTION_MS
        over = []
        for key, (renewed, time_ms) in lives.items():
            deadline = known[key] if key in known and known[key][0] == renewed else (renewed, now_ms + time_ms)
            self._deadlines[key] = deadline
            if deadline[1] <= now_ms:
                over.append(Command(do="expire", group=key[1], member="".join(key[2:]), number=renewed).encode())
        return over

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _contents(self) -> dict[Key, Any]:
        return {("applied",): self.applied} | {key: to for table in self._entries.values() for key, to in table.items()}

    def snapshot(self) -> Iterable[bytes]:
        """Return key and content of everything."""
        contents = self._contents()
        return (encoded(key, contents[key]) for key in sorted(contents))

    def freeze(self) -> Iterable[bytes]:
        """The same, and note changes anew."""
        self._changed = set()
        return self.snapshot()

    def freeze_changes(self) -> Iterable[tuple[bytes, bytes | None]]:
        """Return what has changed since the last time."""
        changed, self._changed = self._changed | {("applied",)}, set()
        now = {key: self.applied if key == ("applied",) else self._get(*key) for key in changed}
        return ((json.dumps(key).encode(), None if to is None else encoded(key, to)) for key, to in now.items())

    def key_of(self, value: bytes) -> bytes:
        """Return the key of a value of a snapshot."""
        return json.dumps(json.loads(value)[0]).encode()

    def restore(self, values: Iterable[bytes]) -> None:
        """Take over a snapshot."""
        entries: dict[str, dict[Key, Any]] = {GROUP: {}, MEMBER: {}, OFFSET: {}, "applied": {}}
        for key, content in map(json.loads, values):
            entries[key[0]][tuple(key)] = content
        self.applied = entries.pop("applied").get(("applied",), -1)
        self._entries, self._changed = entries, set()


def encoded(key: Key, content: Any) -> bytes:
    """Return a value of a snapshot."""
    return json.dumps([key, content]).encode()


# --- the client ------------------------------------------------------------------------------------------------------


class RebalancedError(Exception):
    """The generation is over, and nothing was committed: go on with `Consumer.offsets`, which are those of the next."""


class Consumer:
    """A member of a group, for an `async with`: `offsets` are its partitions and where to read on in each of them."""

    def __init__(self, kraft: Kraft, group: str, topics: Mapping[str, int], *, session_ms: int = 10_000) -> None:
        self.offsets: dict[str, int] = {}
        self.generation = 0
        self._kraft = kraft
        self._group = group
        self._joining = {"topics": dict(topics), "session_ms": session_ms}
        self._interval_s = session_ms / 3_000
        self._member = str(uuid.uuid4())
        self._number = 0
        self._calling = asyncio.Lock()  # numbers arrive in their order
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Consumer:
        await self._call("join", **self._joining)
        self._tasks = [asyncio.create_task(self._stay()), asyncio.create_task(self._follow())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.vanish()
        await self._call("leave")

    async def vanish(self) -> None:
        """Do no more, and say so to nobody: the group finds out when the session is over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit the next offsets. Raises: RebalancedError."""
        if error := await self._call("commit", generation=self.generation, offsets=dict(offsets)):
            raise RebalancedError(error)
        self.offsets.update(offsets)

    async def _call(self, do: str, **fields: Any) -> str:
        """Return the error of a call, and take over what it says of the generation."""
        async with self._calling:
            self._number += 1
            command = Command(do=do, group=self._group, member=self._member, number=self._number, **fields)
            answer = json.loads((await self._kraft.call(command.encode(), timeout_ms=TIMEOUT_MS)).result)
            error: str = answer["error"]
            if answer.get("generation", self.generation) != self.generation:
                self.generation, self.offsets = answer["generation"], answer["offsets"]
        if error.startswith("unknown member") and do != "leave":
            await self._call("join", **self._joining)
        return error

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._heartbeat()

    async def _follow(self) -> None:
        """Ask for the new partitions as soon as there is a new generation."""
        async for _ in self._kraft.watch(self._group.encode(), None):
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        try:
            await self._call("heartbeat")
        except KraftError as error:  # no quorum within the time
            print(f"no heartbeat: {error}", file=sys.stderr)


async def serve(config: str) -> None:
    """Run a replica, and say who leads."""
    async with kraftlib.open(config, machine=Groups()) as kraft:
        leader = None
        while True:
            if leader != (leader := kraft.replica.leader_and_epoch().leader_id):
                print(f"leader is {leader}", flush=True)
            await asyncio.sleep(0.05)


async def consume(servers: str, group: str, topics: Mapping[str, int]) -> None:
    """Consume records that are not there: count on, and commit."""
    async with kraftlib.connect(servers) as kraft, Consumer(kraft, group, topics) as consumer:
        while True:
            for partition, offset in list(consumer.offsets.items()):
                try:
                    await consumer.commit({partition: offset + 1})
                    print(f"generation {consumer.generation}: {partition} at {offset + 1}", flush=True)
                except RebalancedError as error:
                    print(error, flush=True)
                    break
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", config]:
            asyncio.run(serve(config))
        case ["consume", servers, group, *topics] if topics:
            pairs = (topic.partition("=") for topic in topics)
            asyncio.run(consume(servers, group, {name: int(count) for name, _, count in pairs}))
        case _:
            sys.exit(__doc__)
