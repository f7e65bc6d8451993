"""The neighbours of the executor, as protocols: the simulator and the tests put in their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kraftlib.codec.declared import Message
from kraftlib.consensus.actions import (
    Action,
    HashDownload,
    SendSnapshotChunk,
    SendSnapshotHash,
    SetSnapshotAside,
    WriteSnapshotChunk,
)
from kraftlib.consensus.events import (
    Event,
    SnapshotAdopted,
    SnapshotChunkWritten,
    SnapshotInstalled,
    SnapshotLost,
    SnapshotRefused,
)
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.batch import Batch
from kraftlib.runtime.waiters import Promise
from kraftlib.types import Endpoint, LeaderAndEpoch, Offset, OffsetAndEpoch
from kraftlib.wire.messages.fetch import FetchResponse


class Core(Protocol):
    """The decisions: `kraftlib.consensus.replica.Replica`."""

    def start(self, now_ms: int) -> Sequence[Action]:
        """Begin: called once, before any event."""
        ...

    def handle(self, event: Event, now_ms: int) -> Sequence[Action]:
        """Handle an event; return the actions, in order."""
        ...

    def deadline_ms(self) -> int | None:
        """Return when TimeoutReached is next due."""
        ...

    @property
    def wants_records(self) -> bool:
        """Whether this replica leads and can make use of drained batches now."""
        ...

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader as known here."""
        ...

    @property
    def voters(self) -> VoterSet:
        """The voters as known here."""
        ...

    @property
    def is_indispensable(self) -> bool:
        """Whether there is no majority without this replica: it is the only voter, or one of two."""
        ...

    @property
    def role(self) -> Role:
        """The role of this replica."""
        ...


class Answers(Protocol):
    """The way out: `kraftlib.runtime.net.network.Network`."""

    def send(self, correlation_id: int, destination: int, endpoint: Endpoint, request: Message) -> None:
        """Send a request; its result is submitted later."""
        ...

    def respond(self, request_id: int, response: Message | None) -> None:
        """Answer a request; None closes its connection."""
        ...

    def respond_records(self, request_ids: Sequence[int], response: FetchResponse, batches: Sequence[Batch]) -> None:
        """Answer Fetches alike, with the bytes of `batches` put into the one partition."""
        ...


class Listeners(Protocol):
    """The listeners for commits and leaders: `kraftlib.runtime.applier.Applier`. No call calls back."""

    def advance(self, high_watermark: Offset) -> None:
        """Everything below is committed."""
        ...

    def announce(self, leader: LeaderAndEpoch, *, epoch_start: Offset) -> None:
        """Note the leader; `epoch_start` is the start of its epoch, if it is this replica."""
        ...

    def leadership_over(self) -> None:
        """This replica no longer leads: listeners that do not know yet that it led are not told any more."""
        ...

    def wait_for(self, offset: Offset, promise: Promise) -> None:
        """Settle `promise` with the applied offset once the record at `offset` was applied."""
        ...


class SnapshotSending(Protocol):
    """Snapshots for other replicas: `kraftlib.runtime.snapshots.sending`."""

    def when_checked(self, action: SendSnapshotChunk, then: Callable[[], None]) -> None:
        """Call `then` once the snapshot was read to its end, whole or not."""
        ...

    def chunk(self, action: SendSnapshotChunk) -> Message:
        """Return the response with size and bytes filled in, or with the error that says why there are none."""
        ...

    def hash(self, action: SendSnapshotHash, done: Callable[[Message], None]) -> None:
        """Hash the first bytes of a stored snapshot beside the loop, and give `done` the response."""
        ...


class SnapshotTransfer(Protocol):
    """The download of a snapshot: `kraftlib.runtime.snapshots.transfer`.

    `write`, `drop`, `install`, `adopt` and `set_aside` run on the disk.
    """

    def write(self, action: WriteSnapshotChunk) -> SnapshotChunkWritten | SnapshotRefused:
        """Add bytes to the download, beginning it anew at position 0; refuse those that no snapshot has there."""
        ...

    def hash_download(self, action: HashDownload, done: Callable[[Event], None]) -> None:
        """Hash the first bytes of the download beside the loop, and tell `done` on it."""
        ...

    def drop(self) -> None:
        """Forget the download, if there is one."""
        ...

    def install(self, snapshot_id: OffsetAndEpoch) -> SnapshotInstalled | SnapshotRefused:
        """Verify the download, freeze it and let it replace the log; or refuse it, and change nothing."""
        ...

    def adopt(self, snapshot_id: OffsetAndEpoch) -> SnapshotAdopted | SnapshotRefused:
        """Verify the download, freeze it and let it replace the log up to its end; or refuse it."""
        ...

    def set_aside(self, action: SetSnapshotAside) -> SnapshotLost:
        """Forget a stored snapshot that is damaged."""
        ...
