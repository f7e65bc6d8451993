"""Consumer groups: each offset is committed once, by one member, whatever is killed; and the machine keeps the kit."""

from __future__ import annotations

import asyncio
import json
import random as chance
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kraftlib
from examples import consumer_groups
from examples.consumer_groups import Command, Consumer, Groups, RebalancedError
from kraftlib import CommittedRecord, ConfigError
from kraftlib.testing import Subject
from kraftlib.testing.machine_contract import MACHINE_CHECKS
from tests.examples.programs import programs
from tests.runtime.quorum import until


def some_command(random: chance.Random, number: int) -> bytes:
    """Calls of five members of two groups, some sent again, some of a generation that is over, and what expires."""
    do = random.choice(("join", "join", "heartbeat", "commit", "commit", "leave", "expire"))
    member = random.choice(("", "a", "b", "c", "d"))
    topics = {topic: random.randrange(4) for topic in ("x", "y")}
    generation, number = random.randrange(1 + number // 4), number - random.randrange(3)
    offsets = {random.choice(("x-0", "x-1", "y-0")): number}
    command = Command(do=do, group=random.choice("gh"), member=member, number=max(number, 0), generation=generation)
    return json.dumps(json.loads(command.encode()) | {"topics": topics, "offsets": offsets}).encode()


@pytest.mark.parametrize("check", MACHINE_CHECKS, ids=lambda check: check.__name__)
def test_the_groups_keep_the_contract_of_machines(check: Callable[[Subject], None]) -> None:
    check(Subject(machine=Groups, value=some_command))


class Alone:
    """The machine without a quorum."""

    def __init__(self) -> None:
        self.machine = Groups()
        self._offset = 0

    def __call__(self, do: str, member: str, number: int, **fields: Any) -> Any:
        command = Command(do=do, group="g", member=member, number=number, **fields).encode()
        self._offset += 1
        return json.loads(self.machine.apply(CommittedRecord(self._offset, 1, 0, command)))


def test_a_generation_that_is_over_commits_nothing_and_a_call_that_is_repeated_has_its_first_answer() -> None:
    do = Alone()
    first = do("join", "a", 1, topics={"t": 2})
    assert first == {"error": "", "generation": 1, "offsets": {"t-0": 0, "t-1": 0}}
    assert do("commit", "a", 2, generation=1, offsets={"t-0": 7})["offsets"] == {"t-0": 7, "t-1": 0}
    assert do("join", "b", 1, topics={"t": 2}) == {"error": "", "generation": 2, "offsets": {"t-1": 0}}
    late = do("commit", "a", 3, generation=1, offsets={"t-0": 8})
    assert (late["error"], late["offsets"]) == ("generation 1 is over, it is 2", {"t-0": 7})
    assert do("commit", "a", 3, generation=1, offsets={"t-0": 8}) == late
    assert (
        do("commit", "b", 2, generation=2, offsets={"t-0": 8})["error"] == "a partition is not assigned to this member"
    )
    assert do("commit", "a", 4, generation=2, offsets={"t-0": 9})["error"] == ""
    assert do("commit", "a", 2, generation=2, offsets={"t-0": 1})["offsets"] == {"t-0": 9}
    do("leave", "a", 5)
    assert do("heartbeat", "b", 3) == {"error": "", "generation": 3, "offsets": {"t-0": 9, "t-1": 0}}
    assert do("heartbeat", "a", 6) == {"error": "unknown member: join"}


def test_what_is_not_heard_of_expires_by_the_clock_of_the_leader() -> None:
    do = Alone()
    machine, times = do.machine, {"session_ms": 1_000}
    do("join", "a", 1, topics={"t": 1}, **times)
    do("commit", "a", 2, generation=1, offsets={"t-0": 5})
    assert machine.due(1, 0) == machine.due(1, 999) == []
    (over,) = machine.due(1, 1_000)
    assert machine.due(2, 1_500) == [], "a new leader gives the full time again"
    with pytest.raises(ConfigError, match="only the leader"):
        machine.check(over)
    do("heartbeat", "a", 3)
    machine.apply(CommittedRecord(10, 2, 0, over))
    assert json.loads(machine.query(b"g"))["assigned"] == {"a": ["t-0"]}, "it was renewed meanwhile"

    machine.due(3, 0)
    (over,) = machine.due(3, 1_000)
    machine.apply(CommittedRecord(11, 3, 0, over))
    assert json.loads(machine.query(b"g"))["assigned"] == {}
    machine.due(3, 1_001)
    (forgotten,) = machine.due(3, 1_001 + consumer_groups.RETENTION_MS)
    assert any(b"offset" in value for value in machine.snapshot())
    machine.apply(CommittedRecord(12, 3, 0, forgotten))
    assert list(machine.snapshot()) == [b'[["applied"], 12]']


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"do": "steal"}', b'{"do": "join", "topics": {"t": 99999999}}'])
def test_what_is_no_command_is_refused(data: bytes) -> None:
    machine = Groups()
    with pytest.raises(ConfigError):
        machine.check(data)
    assert json.loads(machine.apply(CommittedRecord(1, 1, 0, data)))["error"]


async def work(consumer: Consumer, committed: dict[str, list[int]]) -> None:
    """Commit one offset after the other, of each partition."""
    while True:
        for partition, offset in list(consumer.offsets.items()):
            try:
                await consumer.commit({partition: offset + 1})
                committed[partition].append(offset + 1)
            except RebalancedError:
                break
        await asyncio.sleep(0.01)


async def test_each_offset_is_committed_once_though_the_leader_and_a_consumer_are_killed(tmp_path: Path) -> None:
    program, committed, topics = str(Path(consumer_groups.__file__)), defaultdict[str, list[int]](list), {"orders": 4}
    partitions = {f"orders-{number}" for number in range(4)}
    with programs(tmp_path) as three:
        for number in (1, 2, 3):
            three.start(number, program, "serve", str(three.config(number)))
        async with kraftlib.connect(three.servers) as kraft, asyncio.TaskGroup() as tasks:
            one, two = (Consumer(kraft, "billing", topics, session_ms=1_000) for _ in range(2))
            async with one:
                await two.__aenter__()
                one_works = tasks.create_task(work(one, committed))
                two_works = tasks.create_task(work(two, committed))
                await until(lambda: set(committed) == partitions and len(one.offsets) == len(two.offsets) == 2)
                three.kill(int(three.running[1].log_text().split()[-1]))
                before = sum(map(len, committed.values()))
                await until(lambda: sum(map(len, committed.values())) > before + 8)

                two_works.cancel()
                await two.vanish()  # it dies without a word
                await until(lambda: set(one.offsets) == partitions)
                before = len(committed["orders-0"])
                await until(lambda: len(committed["orders-0"]) > before + 3)
                one_works.cancel()
    for partition, offsets in committed.items():
        missing = set(range(1, offsets[-1])) - set(offsets)
        assert offsets == sorted(set(offsets)), f"{partition} was committed twice, or set back"
        assert len(missing) <= 1, f"only the last commit of the consumer that died has told nobody, not {missing}"
