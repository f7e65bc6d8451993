"""Snapshots: N2, N4, N5, N8 to N12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlib.runtime.committed import LoadedSnapshot
from kraftlib.runtime.listener import Listener
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Process
from kraftlib.testing.trace import Step
from kraftlib.types import LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tools.scenarios import handmade as msg
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story

scenario: Final = Chapter()

SMALL_CHUNKS: Final = {"snapshot_max_bytes": 40}


def empty_observer(story: Story) -> SimulatedNode:
    """Give the observer a new, empty disk, and start it: it needs a snapshot if the leader has one."""
    observer = story.nodes[-1]
    story.crash(observer)
    observer.wipe()
    story.start(observer)
    return observer


def installed(story: Story) -> int:
    """Return how often a snapshot has replaced a log so far."""
    return story.world.trace.counts[Step.INSTALLED]


def install_on(story: Story, observer: SimulatedNode, before: int) -> None:
    """Wait until one more snapshot is installed and the observer has everything."""
    story.until(lambda: installed(story) > before, story.patience_ms, f"{observer} never gets the snapshot")
    story.everybody_has_everything()


@scenario(
    "N2",
    "snapshots are taken at one offset after the other, and a new replica begins with each",
    expected="the end of a snapshot is exclusive everywhere: no record is missing and none comes twice",
    observers=1,
)
def snapshot_at_every_offset(story: Story) -> None:
    for _ in range(8):
        story.append(1, values=story.random.randint(1, 3))
        leader = story.leader()
        story.everybody_has_everything()
        before = installed(story)
        story.happened("snapshot", story.snapshot(leader))
        install_on(story, empty_observer(story), before)


def damaged(data: Any) -> bytes:
    """One bit of a chunk, flipped."""
    copy = bytearray(data)
    copy[len(copy) // 2] ^= 4
    return bytes(copy)


def chunk(message: FetchSnapshotResponse) -> Any:
    """The partition of a FetchSnapshot answer."""
    return message.topics[0].partitions[0]


DAMAGES: Final[dict[str, Callable[[FetchSnapshotResponse], FetchSnapshotResponse]]] = {
    "a flipped bit": lambda m: msg.with_chunk(m, unaligned_records=damaged(chunk(m).unaligned_records)),
    "a size too large": lambda m: msg.with_chunk(m, size=chunk(m).size + 7),
    "a size too small": lambda m: msg.with_chunk(m, size=chunk(m).position + len(chunk(m).unaligned_records)),
}


@scenario(
    "N4",
    "a snapshot arrives with a flipped bit, or its leader lies about its size",
    expected="it is verified before anything is replaced, refused, and fetched anew",
    observers=1,
    config=SMALL_CHUNKS,
)
def damaged_snapshot(story: Story) -> None:
    for name, damage in DAMAGES.items():
        story.append(3, values=2)
        story.everybody_has_everything()
        story.snapshot(story.leader())
        rule = story.meddling.alter(FetchSnapshotResponse, damage, where=msg.has_chunk, times=1)
        before = installed(story)
        observer = empty_observer(story)
        story.until(lambda rule=rule: rule.count > 0, story.patience_ms, "no snapshot is fetched")  # type: ignore[misc]
        story.happened(name, rule.count)
        install_on(story, observer, before)
        story.expect(observer.lives > 0 and observer.is_up, "it has stopped because of what came")


@scenario(
    "N5",
    "in the midst of a download the leader changes, or its snapshot is gone",
    expected="the part that came is dropped, and what the leader has now is fetched from its beginning",
    observers=1,
    config=SMALL_CHUNKS,
)
def download_is_interrupted(story: Story) -> None:
    gone = 0
    for how in ("another leader", "gone", "another snapshot", "dead leader"):
        story.append(3, values=2)
        story.everybody_has_everything()
        leader = story.leader()
        for node in story.nodes[:3]:
            story.snapshot(node)
        before = installed(story)
        slow = story.meddling.delay(FetchSnapshotResponse, 8)
        observer = empty_observer(story)
        story.until(lambda slow=slow: slow.count >= 2, story.patience_ms, "no download")  # type: ignore[misc]
        story.happened(f"download interrupted: {how}", installed(story) == before)
        if how == "another leader":
            story.elect(story.followers(leader)[0])
        elif how == "gone":
            slow.stop()
            rule = story.meddling.alter(FetchSnapshotResponse, without_snapshot, where=msg.has_chunk, times=2)
            story.until(lambda rule=rule: rule.count > 0, story.patience_ms, "no more chunks")  # type: ignore[misc]
            gone += rule.count
        elif how == "another snapshot":
            story.append(2)
            story.everybody_has_everything(story.nodes[:3])
            story.snapshot(leader)
        else:
            story.crash(leader)
            story.leader()
            story.start(leader)
        slow.stop()
        install_on(story, observer, before)
        download = getattr(story.state(observer).role_state, "download", None)
        story.expect(download is None, f"{observer} still holds part of a snapshot")


def without_snapshot(message: FetchSnapshotResponse) -> FetchSnapshotResponse:
    """The answer of a leader that has deleted the snapshot."""
    return msg.with_chunk(message, error_code=int(ErrorCode.SNAPSHOT_NOT_FOUND), unaligned_records=b"", size=0)


class LeaderLoads(Listener):
    """Remembers snapshots that it was asked to load after it had heard that its replica leads."""

    wrong: list[str] = []  # noqa: RUF012 - of all that live in one story, which empties it
    loaded = 0

    def __init__(self, process: Process) -> None:
        self._process = process
        self._leads = False

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Hear who leads."""
        self._leads = leader.leader_id == self._process.node_id

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Load a snapshot."""
        type(self).loaded += 1
        if self._leads:
            self.wrong.append(f"{self._process.node} was asked to load {reader.snapshot_id}")


@scenario(
    "N8",
    "leaders have snapshots, take more of them, resign, restart and lead again",
    expected="the listener of a leader is never asked to load one",
    listener=LeaderLoads,
    draw=lambda random: {"voters": random.choice((1, 3))},
)
def leader_loads_nothing(story: Story) -> None:
    LeaderLoads.wrong.clear()
    before = LeaderLoads.loaded
    for _ in range(4):
        story.append(2)
        leader = story.leader()
        story.everybody_has_everything()
        for node in story.nodes:
            story.snapshot(node)
        story.kill(leader)
        story.start(leader)
        story.elect(leader)
        story.append(2, to=leader)
        story.snapshot(leader)
        story.append(1, to=leader)
    story.happened("snapshots loaded at a start", LeaderLoads.loaded - before)
    story.expect(not LeaderLoads.wrong, "; ".join(LeaderLoads.wrong))


@scenario(
    "N9",
    "a new replica comes, and the leader has both its whole log and a snapshot",
    expected="it is sent to the snapshot, and does not replay the log from its beginning",
    observers=1,
)
def snapshot_before_a_long_log(story: Story) -> None:
    story.append(6, values=3)
    story.everybody_has_everything()
    leader = story.leader()
    story.snapshot(leader)
    story.append(1)
    story.happened("log that begins at 0 beside a snapshot", leader.log.start_offset == 0)
    told = story.meddling.alter(FetchResponse, lambda answer: answer, where=msg.names_snapshot)
    before = installed(story)
    observer = empty_observer(story)
    install_on(story, observer, before)
    story.happened("sent to the snapshot", told.count)
    story.expect(observer.log.start_offset > 0, f"{observer} has replayed the log from {observer.log.start_offset}")


def wrong_id(message: FetchSnapshotResponse) -> FetchSnapshotResponse:
    """A chunk of another snapshot."""
    return msg.with_chunk(message, snapshot_id=FetchSnapshotResponse.SnapshotId(end_offset=1, epoch=1))


CHUNKS: Final[dict[str, Callable[[FetchSnapshotResponse], FetchSnapshotResponse]]] = {
    "repeated": lambda m: msg.with_chunk(m, position=max(chunk(m).position - 40, -1)),
    "too far on": lambda m: msg.with_chunk(m, position=chunk(m).position + 40),
    "of another snapshot": wrong_id,
    "of a negative size": lambda m: msg.with_chunk(m, size=-5),
    "empty": lambda m: msg.with_chunk(m, unaligned_records=b""),
    "of no topic": lambda m: FetchSnapshotResponse(),
    "of an unknown error": lambda m: FetchSnapshotResponse(error_code=-1),
}


@scenario(
    "N10",
    "chunks of a snapshot come out of order, twice, of another snapshot, with a negative size, or without a topic",
    expected="the download is dropped and begun again after a pause; no answer ever stops a replica",
    observers=1,
    config=SMALL_CHUNKS,
)
def senseless_chunks(story: Story) -> None:
    for name, change in CHUNKS.items():
        story.append(2, values=2)
        story.everybody_has_everything()
        story.snapshot(story.leader())
        rule = story.meddling.alter(FetchSnapshotResponse, change, where=msg.has_chunk, times=3)
        asked = story.meddling.alter(FetchSnapshotRequest, lambda request: request)
        before, began_ms = installed(story), story.world.now_ms
        observer = empty_observer(story)
        install_on(story, observer, before)
        story.happened(f"chunk {name}", rule.count)
        story.expect(observer.is_up and observer.lives > 0, f"{observer} has stopped because of a chunk {name}")
        limit = 60 + (story.world.now_ms - began_ms) // story.config.retry_backoff_ms
        story.expect(asked.count <= limit, f"{asked.count} requests for one snapshot: a hot loop")
        rule.stop()
        asked.stop()


@scenario(
    "N11",
    "a replica in a late epoch installs a snapshot of an early one",
    expected="its epoch does not fall",
    observers=1,
)
def old_snapshot_new_epoch(story: Story) -> None:
    story.append(3)
    story.everybody_has_everything()
    for node in story.nodes:
        story.snapshot(node)
    oldest = story.leader().log.snapshots()[-1].epoch
    for _ in range(3):
        story.elect(story.followers()[0])
    before, epoch = installed(story), story.epoch
    observer = empty_observer(story)
    install_on(story, observer, before)
    story.happened("epochs between the snapshot and now", epoch - oldest)
    story.expect(story.state(observer).epoch >= epoch, f"{observer} fell back to epoch {story.state(observer).epoch}")


@scenario(
    "N12",
    "the voters change, a snapshot covers the record of it, and replicas know that part from the snapshot only",
    expected="they know the voters all the same, after a restart, too",
    kraft_version=1,
    voters=4,
    observers=1,
)
def voters_known_from_a_snapshot(story: Story) -> None:
    story.leader()
    removed = story.followers()[0]
    story.world.admin.remove(removed.key)
    story.until(lambda: not story.world.is_voter(removed), story.patience_ms, "the removal is not done")
    story.append(3)
    story.everybody_has_everything()
    for node in story.nodes:
        story.snapshot(node)
    before = installed(story)
    observer = empty_observer(story)
    install_on(story, observer, before)
    story.happened("log that begins behind the change", observer.log.start_offset > 0)
    for _ in range(2):
        voters = {voter.key.id for voter in story.state(observer).voters}
        expected = {key.id for key in story.world.current_voters()}
        story.expect(voters == expected, f"{observer} takes {voters} for the voters, they are {expected}")
        story.kill(observer)
        story.start(observer)
        story.everybody_has_everything()
