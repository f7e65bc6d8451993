"""The ways in which a replica changes its files, each as a small story with marks of what was known when."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

import tests.storage.crash.every_module  # noqa: F401 - else not all is watched
from kraftlib.errors import StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.names import QUORUM_STATE
from kraftlib.types import ElectionState, OffsetAndEpoch, ReplicaKey
from tests.storage.builders import snapshot_bytes, some_batches
from tests.storage.crash.judge import SEGMENT_BYTES
from tests.storage.crash.ledger import (
    Appending,
    Deleting,
    Exact,
    Flushed,
    Frozen,
    Installed,
    Installing,
    Recovered,
    Truncated,
    Truncating,
    Voted,
    Voting,
    Writing,
)
from tools.storage_proof.file_trace import Fault, FileTrace, Image, ProcessKilled
from tools.storage_proof.os_watch import Call


@attrs.define
class Teller:
    """Uses a log and an election store as a replica does, and marks in the trace what it knows."""

    trace: FileTrace
    sync_note: bool = False
    log: FileReplicatedLog = attrs.field(init=False)
    elections: FileQuorumStateStore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.open()

    def open(self, **options: Any) -> None:
        """Open what is there."""
        if not self.sync_note:
            self.trace.mark(Exact(is_exact=False))
        self.log = FileReplicatedLog.open(
            self.trace.directory, segment_bytes=SEGMENT_BYTES, sync_note=self.sync_note, **options
        )
        self.trace.mark(Exact(self.sync_note))
        self.elections = FileQuorumStateStore(self.trace.directory)
        election = self.elections.read() or ElectionState()
        self.trace.mark(Recovered(self.log.start_offset, self.log.end_offset, election))

    def append(self, *epochs: int, size: int = 20) -> Sequence[Batch]:
        """Append one batch per epoch, in one call."""
        batches = some_batches(*epochs, base_offset=self.log.end_offset, size=size)
        self.trace.mark(Appending(batches))
        self.log.append(batches)
        return batches

    def flush(self) -> None:
        """Make it durable."""
        if not self.log.sync_note:
            self.trace.mark(Exact(is_exact=False))
        end_offset = self.log.flush()
        self.trace.mark(Exact(self.log.sync_note))
        self.trace.mark(Flushed(end_offset))

    def truncate(self, end_offset: int) -> None:
        """Cut the log."""
        self.flush()
        self.trace.mark(Truncating(end_offset))
        self.trace.mark(Truncated(self.log.truncate(end_offset)))

    def snapshot(self, end_offset: int, epoch: int, *, records: int = 3, size: int = 40) -> OffsetAndEpoch:
        """Write a snapshot and freeze it."""
        snapshot_id = OffsetAndEpoch(offset=end_offset, epoch=epoch)
        data = snapshot_bytes(snapshot_id, records=records, size=size)
        self.trace.mark(Writing(snapshot_id, data))
        sink = self.log.create_snapshot(snapshot_id)
        for position in range(0, len(data), 400):
            sink.write(data[position : position + 400])
        sink.freeze()
        self.trace.mark(Frozen(snapshot_id))
        return snapshot_id

    def install(self, snapshot_id: OffsetAndEpoch) -> None:
        """Begin the log anew."""
        self.trace.mark(Installing(snapshot_id))
        self.log.install_snapshot(snapshot_id)
        self.trace.mark(Installed(snapshot_id))

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget what a snapshot replaces."""
        self.trace.mark(Deleting(snapshot_id))
        self.log.delete_before(snapshot_id)

    def vote(self, epoch: int, *, voted: int | None = None, leader: int | None = None) -> None:
        """Write an election state."""
        election = ElectionState(epoch=epoch, leader_id=leader, voted_key=None if voted is None else ReplicaKey(voted))
        self.trace.mark(Voting(election))
        self.elections.write(election, kraft_version=0, voters=[1, 2, 3])
        self.trace.mark(Voted(election))

    def close(self) -> None:
        """Stop cleanly."""
        self.elections.close()
        self.log.close()


@attrs.frozen
class Story:
    """What a replica does, and how it keeps the note of what is durable."""

    tell: Callable[[Teller], None]
    sync_note: bool = False


def append(teller: Teller) -> None:
    """One batch, several in one write, a long one, a new epoch; each flush vouches for what was before it."""
    teller.append(1)
    teller.flush()
    teller.append(1, 1, size=300)
    teller.flush()
    teller.append(1, size=1_300)
    teller.append(2)
    teller.flush()
    teller.append(2)


def roll(teller: Teller) -> None:
    """The log goes on in a new segment, once and twice between two flushes."""
    teller.append(1, 1, size=600)
    teller.flush()
    teller.append(1, 1, size=600)
    teller.append(1, size=900)
    teller.flush()
    teller.append(2, size=2_000)
    teller.append(2, size=2_000)
    teller.append(3, size=500)
    teller.flush()
    teller.append(3)
    teller.flush()


def roll_into_zeros(teller: Teller) -> None:
    """The next segment was filled with zeros beforehand; one is full, one is cut, one comes too late to be filled."""
    teller.close()
    teller.open(reserve_bytes=1_500, zero_fill=True)
    teller.log.prepare_spare()
    teller.append(1, 1, size=900)
    teller.flush()
    teller.append(1, size=900)
    teller.flush()
    teller.log.prepare_spare()
    teller.append(2, size=300)
    teller.append(2, 2, size=900)
    teller.append(2, size=2_000)
    teller.flush()
    teller.log.prepare_spare()
    teller.truncate(4)
    teller.append(3, size=2_000)
    teller.append(3, size=700)
    teller.flush()
    teller.close()
    teller.open(reserve_bytes=1_500, zero_fill=True)
    teller.append(3)
    teller.flush()


def truncate(teller: Teller) -> None:
    """Inside the last segment; back into an earlier one; to its very end; and other records in place of the old."""
    for epoch in (1, 1, 2, 2, 3):
        teller.append(epoch, size=900)
    teller.flush()
    teller.truncate(4)
    teller.append(4, size=700)
    teller.flush()
    teller.truncate(2)
    teller.append(5, 5, size=700)
    teller.append(6, size=1_200)
    teller.truncate(1)
    teller.append(7, size=300)
    teller.flush()


def vote(teller: Teller) -> None:
    """A new epoch, a vote in it, its leader, and the same once more with records in between."""
    teller.vote(1)
    teller.vote(1, voted=2)
    teller.vote(1, leader=2)
    teller.append(1)
    teller.flush()
    teller.vote(2, voted=1)
    teller.vote(3, voted=3)
    teller.vote(4, leader=3)


def write_snapshot(teller: Teller) -> None:
    """Snapshots of the own state, and what they replace is deleted."""
    for _ in range(4):
        teller.append(1, 1, size=500)
        teller.flush()
    first = teller.snapshot(3, 1)
    teller.append(2, size=1_500)
    teller.delete_before(first)
    teller.flush()
    second = teller.snapshot(7, 1, records=6, size=150)
    teller.delete_before(second)
    teller.append(2)
    teller.flush()
    third = teller.log.create_snapshot(OffsetAndEpoch(offset=9, epoch=2))
    third.write(b"half of a snapshot")
    third.abort()


def install_snapshot(teller: Teller) -> None:
    """A snapshot from the leader takes the place of the log, be that behind it or on another branch."""
    for _ in range(4):
        teller.append(1, 1, size=700)
    teller.flush()
    teller.install(teller.snapshot(20, 2, size=300))
    teller.append(2, 3)
    teller.flush()
    teller.append(3, size=2_000)
    teller.flush()
    late = OffsetAndEpoch(offset=21, epoch=2)
    sink = teller.log.create_snapshot(late)
    sink.write(snapshot_bytes(late))
    teller.delete_before(teller.snapshot(22, 3))
    teller.install(teller.snapshot(30, 4))  # no flush has removed what is below 22
    sink.freeze()
    teller.append(4)
    teller.flush()


def stop_and_start(teller: Teller) -> None:
    """A clean stop leaves caches; a start believes none of them."""
    teller.append(1, 1, size=700)
    teller.flush()
    teller.append(2, size=1_500)
    teller.close()
    teller.open()
    teller.append(2, size=800)
    teller.flush()
    teller.close()


def switch_note(teller: Teller) -> None:
    """There is a majority without this replica, and then there is none, and then there is one again."""
    teller.append(1, 1, size=300)
    teller.flush()
    teller.log.sync_note = True
    teller.append(1, 1, 1, size=300)
    teller.flush()
    teller.append(1, 2, size=700)
    teller.flush()
    teller.log.sync_note = False
    teller.append(2, 2, size=300)
    teller.flush()
    teller.append(2, 2, size=900)
    teller.flush()
    teller.log.sync_note = True
    teller.truncate(6)
    teller.append(3, 3, size=300)
    teller.flush()


PROTOCOLS: dict[str, Story] = {
    tell.__name__: Story(tell)
    for tell in (
        append,
        roll,
        roll_into_zeros,
        truncate,
        vote,
        write_snapshot,
        install_snapshot,
        stop_and_start,
        switch_note,
    )
}
NOTED: dict[str, Story] = {
    f"{tell.__name__}, note synced": Story(tell, sync_note=True)
    for tell in (append, roll, roll_into_zeros, truncate, write_snapshot, install_snapshot, stop_and_start)
}
"""The same by a replica that nobody could repair: nothing may look like damage."""


def formatted(directory: Path) -> Path:
    """Make a directory as `kraftlib format` leaves it."""
    directory.mkdir(parents=True)
    line = encode_line(ElectionState(), kraft_version=0, voters=[1, 2, 3], generation=0)
    (directory / QUORUM_STATE).write_bytes(line)
    return directory


def traced(story: Story, directory: Path) -> FileTrace:
    """Tell a story in a new directory and return what it did."""
    trace = FileTrace(formatted(directory))
    with trace:
        story.tell(Teller(trace, story.sync_note))
    return trace


def interrupted(story: Story, directory: Path, fault: Fault, *, at: Callable[[int, Call], bool]) -> FileTrace:
    """Tell a story until `fault` befalls the call for which `at(number, call)` holds; a new process then goes on."""
    numbers = itertools.count()
    done = []

    def before(call: Call) -> Fault | None:
        if done or not at(next(numbers), call):
            return None
        done.append(call)
        return fault

    trace = FileTrace(formatted(directory), before=before)
    with trace:
        try:
            story.tell(Teller(trace, story.sync_note))
        except (StorageError, ProcessKilled):
            trace.restart()
            go_on(Teller(trace, story.sync_note))
    return trace


def recovered(story: Story, image: Image, directory: Path, marks: Sequence[Any]) -> FileTrace | None:
    """Open an image, of which `marks` tell what is known, and go on; None if it does not open."""
    image.lay_out(directory)
    trace = FileTrace(directory, image=image)
    with trace:
        for mark in marks:
            trace.mark(mark)
        try:
            teller = Teller(trace, story.sync_note)
        except StorageError:
            return None
        go_on(teller)
    return trace


def go_on(teller: Teller) -> None:
    """What a replica does after a start."""
    teller.vote(8, voted=2)
    teller.append(8, size=700)
    teller.flush()
    teller.append(9)
    teller.flush()
