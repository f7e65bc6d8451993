"""Commits, state machines, callers and reads: C1 to C7."""

from __future__ import annotations

from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError, KraftError, NotLeaderError
from kraftlib.runtime.committed import BatchReader
from kraftlib.runtime.listener import Listener
from kraftlib.runtime.waiters import COMMITTED
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Process
from kraftlib.testing.trace import Step
from kraftlib.testing.workload import Outcome
from kraftlib.types import Offset
from kraftlib.wire.messages.fetch import FetchResponse
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story, is_settled

scenario: Final = Chapter()


@attrs.define(eq=False)
class Reading:
    """A read barrier: the end of what was committed for sure when it was asked for, and the offset of its answer."""

    committed: Offset
    offset: Offset | None = None
    error: BaseException | None = None

    def done(self) -> bool:
        """As `Promise.done`."""
        return self.offset is not None or self.error is not None

    def set_result(self, result: Any, /) -> None:
        """It may read."""
        self.offset = result

    def set_exception(self, exception: BaseException, /) -> None:
        """Nothing is known."""
        self.error = exception


def read(story: Story, node: SimulatedNode) -> Reading:
    """Ask for a read barrier on a node, which may be paused: then it is asked first thing when it goes on."""
    reading = Reading(committed=story.committed)
    if node.process is not None:
        node.process.deliver(node.process.executor.read_barrier, reading, 2 * story.config.request_timeout_ms)
    return reading


@scenario(
    "C1",
    "leaders change, logs are cut back, replicas restart and load snapshots, while a state machine counts",
    expected="every record is applied once and in order on every replica, and all states are equal",
    observers=1,
)
def applied_exactly_once(story: Story) -> None:
    observer = story.node(4)
    for _ in range(3):
        leader = story.leader()
        story.append(3, values=2)
        story.snapshot(story.random.choice(story.nodes))
        story.snapshot(leader)
        story.cut(leader)
        story.append(2, to=leader, wait=False)
        story.replaced(leader)
        story.crash(observer)
        observer.wipe()
        story.heal()
        story.start(observer)
        new = story.leader()
        story.append(3)
        victim = story.followers(new)[0]
        story.kill(victim)
        story.append(1)
        story.start(victim)
        story.everybody_has_everything()
    counts = story.world.trace.counts
    story.happened("logs cut back", counts[Step.TRUNCATED])
    story.happened("snapshots loaded", counts[Step.INSTALLED])
    story.happened("restarts", counts[Step.STARTED] - len(story.nodes))


@scenario(
    "C2",
    "a leader stands still while another one is elected and appends; then it is asked what may be read",
    expected="its answer, if there is one, is no older than what was committed when it was asked",
    draw=lambda random: {"voters": random.choice((3, 5)), "observers": random.choice((0, 1))},
)
def deposed_leader_reads_nothing_old(story: Story) -> None:
    readings: list[Reading] = []
    for _ in range(3):
        old = story.leader()
        story.append(1)
        # Confirmations of this one are on their way when it stops: they must not do for a later one.
        readings.append(read(story, old))
        story.pass_ms(story.random.choice((0, 0, 1)))
        if old.process is not None:
            old.process.pause()
        story.replaced(old)
        story.append(2)
        story.happened("leader stood still while others committed")
        readings.append(read(story, old))
        if old.process is not None:
            old.process.resume()
        for node in story.nodes:
            readings += [read(story, node), read(story, node)]
        story.pass_ms(story.config.fetch_timeout_ms)
        # The answer to a read barrier overtakes the records that it names.
        behind = story.followers()[0]
        late = story.meddling.delay(FetchResponse, 20, target=behind.key.id)
        story.append(1)
        readings.append(read(story, behind))
        story.pass_ms(story.config.fetch_timeout_ms // 2)
        late.stop()
        story.happened("reads of a replica whose log was behind", late.count)
        story.leader()
    story.pass_ms(5 * story.config.request_timeout_ms)
    story.happened("reads that were allowed", sum(reading.offset is not None for reading in readings))
    story.expect(all(reading.done() for reading in readings), "a read barrier has no end")
    for reading in readings:
        if reading.offset is not None:
            story.expect(
                reading.offset >= reading.committed,
                f"read from {reading.offset}, though {reading.committed} was committed when it was asked for",
            )


@scenario(
    "C3",
    "a leader loses its leadership with appends at every stage of their way",
    expected="each caller hears committed, not appended, or unknown, and the log bears it out",
)
def outcome_of_an_append(story: Story) -> None:
    outcomes: set[Outcome] = set()
    for ways in ("both", "sends", "hears", "none"):
        leader = story.leader()
        story.everybody_has_everything()
        calls = [*story.append(1, to=leader, wait=False)]
        story.pass_ms(story.random.randint(0, 2))
        if ways != "none":
            story.cut(leader, ways=ways)
        calls += story.append(2, to=leader, wait=False)
        story.pass_ms(story.random.randint(0, 2))
        story.resign(leader)
        calls += story.append(2, to=leader, wait=False)
        story.pass_ms(1)
        refused = story.append(1, to=leader, wait=False)
        story.expect(not refused, f"{leader} takes records after it resigned")
        story.until(lambda calls=calls: is_settled(calls), story.patience_ms, "a caller hears nothing")  # type: ignore[misc]
        outcomes |= {call.outcome for call in story.world.workload.appends}
        story.heal()
        story.leader()
        story.everybody_has_everything()
    for outcome in (Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN):
        story.happened(f"append {outcome.name.lower()}", outcome in outcomes)


@scenario(
    "C4",
    "a leader is deposed and elected again between the moment a caller looked and its append",
    expected="an append for an older epoch is refused as not leader, one for a newer epoch as a mistake",
)
def append_of_an_older_epoch(story: Story) -> None:
    leader = story.leader()
    epoch = leader.leads or 0
    story.elect(story.followers(leader)[0])
    story.elect(leader)
    story.happened("epochs in between", (leader.leads or 0) - epoch)
    end_offset = leader.chain.end_offset
    for asked, expected in ((epoch, NotLeaderError), ((leader.leads or 0) + 1, ConfigError)):
        told: KraftError | None = None
        try:
            leader.append([b"of another epoch"], level=COMMITTED, promise=Reading(committed=0), epoch=asked)
        except KraftError as error:
            told = error
        story.expect(isinstance(told, expected), f"an append for epoch {asked} in {leader.leads} ends in {told!r}")
    story.pass_ms(10)
    story.expect(leader.chain.end_offset == end_offset, "it was appended all the same")


@scenario(
    "C5",
    "a quorum of one loses power with records that are not on its disk yet",
    expected="nothing was acknowledged before its own flush",
    voters=1,
)
def alone_and_not_flushed(story: Story) -> None:
    for _ in range(4):
        leader = story.leader()
        leader.disk.hung = True
        calls = story.append(3, to=leader, wait=False)
        story.pass_ms(20)
        story.happened("records not flushed", leader.chain.end_offset - leader.flushed_offset)
        told = [call for call in calls if call.outcome is Outcome.ACKNOWLEDGED]
        story.expect(not told, "acknowledged before the only disk has it")
        story.crash(leader)
        leader.disk.unhang()
        story.start(leader)


@scenario(
    "C6",
    "a leader that is cut off is fed by a fast client",
    expected="a bounded number of bytes is taken, then appends are refused; service goes on once it is back",
    config={"backlog_max_bytes": 4_096, "fetch_timeout_ms": 2_000, "request_timeout_ms": 300},
)
def bounded_backlog(story: Story) -> None:
    leader = story.leader()
    story.world.workload.value_bytes = 100
    before = leader.chain.end_offset
    story.cut(leader, ways="sends", holds=True)
    taken = 0
    for _ in range(200):
        taken += len(story.append(1, to=leader, wait=False))
        story.pass_ms(1)
    story.expect(leader.leads is not None, "it gave up too early to show anything")
    story.happened("appends refused", 200 - taken)
    held = sum(len(entry.batch.data) for entry in leader.chain.between(before, leader.chain.end_offset))
    story.expect(held <= 16 * 4_096, f"{held} bytes are not committed, 4,096 were allowed")
    story.heal()
    story.until(lambda: story.committed >= before + taken, story.patience_ms, "taken records are not committed")
    story.append(3)


class Raising(Listener):
    """A listener that raises now and then."""

    raised = 0

    def __init__(self, process: Process) -> None:
        self._process = process

    def handle_commit(self, reader: BatchReader) -> None:
        """Raise, or take what comes."""
        for batch in reader:
            if batch.base_offset % 3 == 0:
                type(self).raised += 1
                raise ValueError("the application has a bug")


@scenario(
    "C7",
    "a callback of the application raises",
    expected="that listener hears nothing more; the replica, the other listeners and the callers go on",
    listener=Raising,
)
def raising_callback(story: Story) -> None:
    before = Raising.raised
    story.append(10)
    story.elect(story.followers()[0])
    story.append(5)
    story.happened("callback raised", Raising.raised - before)
    story.expect(all(node.is_up and node.lives == 1 for node in story.nodes), "a replica has stopped because of it")
