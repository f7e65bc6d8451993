"""The events that the core is told of: a closed union of small values.

Each says what *has happened*. Time comes beside them (`handle(event, now_ms)`), never inside.
"""

from __future__ import annotations

import enum
from typing import Any, Generic, TypeVar

from kraftlib.codec.declared import Message
from kraftlib.frozen import frozen
from kraftlib.records.batch import Batch
from kraftlib.types import Endpoint, Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange, ReplicaId

RequestT = TypeVar("RequestT", bound=Message, covariant=True)
"""A request of `kraftlib.wire.messages`; its handler is chosen by its class."""

ResponseT = TypeVar("ResponseT", bound=Message, covariant=True)


class Failure(enum.Enum):
    """Why a request has no answer."""

    DISCONNECTED = "disconnected"
    """The request may have arrived."""
    UNSENT = "no connection"
    """The request has not left."""
    UNSUPPORTED_VERSION = "unsupported version"
    AUTHENTICATION = "authentication failed"
    MALFORMED = "malformed answer"
    TIMED_OUT = "no answer in time"
    """Found by the core itself: the answer is ignored when it comes after all."""


@frozen
class RequestReceived(Generic[RequestT]):
    """A peer or client asks. The answer goes out as SendResponse, SendRecords or SendSnapshotChunk with this id."""

    request_id: int
    request: RequestT
    version: int
    of_observer: bool = False
    """Whether its sender may not speak as a voter: nothing proves that it is the replica whose id it gives."""


@frozen
class ResponseReceived(Generic[ResponseT]):
    """The answer to SendRequest of this correlation id."""

    correlation_id: int
    response: ResponseT


@frozen
class RequestFailed:
    """SendRequest of this correlation id will have no answer."""

    correlation_id: int
    failure: Failure


@frozen
class ConnectionLost:
    """The connection to this destination is gone (or, `refused`, could not be made)."""

    destination: int
    refused: bool


@frozen
class PeerIdentified:
    """The node at this endpoint has said what it is; a controller of Kafka has more to do than lead a log."""

    endpoint: Endpoint
    is_controller: bool


@frozen
class RecordsSubmitted:
    """The accumulator drained these batches for the epoch in which this replica leads.

    Their base offsets are those that the accumulator promised.
    """

    batches: tuple[Batch, ...]
    epoch: Epoch


@frozen
class Flushed:
    """A flush came back: everything below `end_offset` is durable, if the log is still of this version."""

    end_offset: Offset
    log_version: int


@frozen
class LogTruncated:
    """TruncateLog was performed; `end_offset` is where the log really ends, since only whole batches go."""

    end_offset: Offset


@frozen
class StorageFailed:
    """The disk has lost these ranges of the log, ascending; the log is as long as before."""

    holes: tuple[OffsetRange, ...]
    begins_at: OffsetAndEpoch | None = None
    """The stored snapshot at whose end the log begins now, if that snapshot has some of the lost records."""


@frozen(kw_only=True)
class RepairWritten:
    """WriteRepair was performed, and the hole is not full: the next missing record is at `end_offset`, after
    `epoch`."""

    end_offset: Offset
    epoch: Epoch


@frozen
class RepairRefused:
    """WriteRepair found no space on the disk: the records fetched for the hole are gone, and the log is as it was."""

    reason: str


@frozen(kw_only=True)
class Repaired:
    """WriteRepair has filled a hole, and the fetched records were swapped in; `holes` are left. The rest is of the
    log."""

    holes: tuple[OffsetRange, ...]
    end_offset: Offset
    epoch_starts: tuple[EpochStart, ...]
    control_batches: tuple[Batch, ...]


@frozen
class DiskSpaceChanged:
    """The disk has become full, or has space again."""

    is_full: bool


@frozen
class StateMachineFailed:
    """The state machine of this replica has stopped for good: it has not applied what is committed, and never will."""


@frozen
class TimeoutReached:
    """`deadline_ms()` has passed."""


@frozen
class SnapshotCreated:
    """The application has frozen a snapshot of this id."""

    snapshot_id: OffsetAndEpoch


@frozen
class SnapshotDamaged:
    """This stored snapshot is not whole."""

    snapshot_id: OffsetAndEpoch
    reason: str


@frozen(kw_only=True)
class SnapshotLost:
    """SetSnapshotAside was performed; the rest is of the log, which begins earlier if nothing stands in for it."""

    snapshot_id: OffsetAndEpoch
    start_offset: Offset
    epoch_starts: tuple[EpochStart, ...]
    holes: tuple[OffsetRange, ...]


@frozen(kw_only=True)
class SnapshotAdopted:
    """AdoptSnapshot was performed: the log begins at its end; `controls` are the control records of its header."""

    snapshot_id: OffsetAndEpoch
    controls: tuple[object, ...]
    holes: tuple[OffsetRange, ...]
    control_batches: tuple[Batch, ...]


@frozen
class RetentionDue:
    """Everything that this stored and verified snapshot replaces may go."""

    snapshot_id: OffsetAndEpoch


@frozen
class SnapshotChunkWritten:
    """WriteSnapshotChunk was performed; `size` bytes of the download are there."""

    snapshot_id: OffsetAndEpoch
    size: int


@frozen
class DownloadHashed:
    """HashDownload was performed; an empty `digest` says that it could not be."""

    snapshot_id: OffsetAndEpoch
    position: int
    digest: bytes


@frozen
class SnapshotInstalled:
    """A downloaded snapshot was verified and replaced the log; `controls` are the control records of its header."""

    snapshot_id: OffsetAndEpoch
    controls: tuple[object, ...]


@frozen
class SnapshotRefused:
    """A downloaded snapshot did not verify, or found no space; nothing was replaced and the download is gone."""

    snapshot_id: OffsetAndEpoch
    reason: str
    lacks_space: bool = False
    """Whether the disk is full while the leader's data is sound."""


@frozen(kw_only=True)
class StateHashed:
    """The state machine has applied everything below `offset`, and this is the hash of its state."""

    offset: Offset
    snapshot_version: int
    sha256: bytes


@frozen
class StateHealed:
    """The state machine has loaded the snapshot of ReloadState."""

    snapshot_id: OffsetAndEpoch


@frozen
class ResignRequested:
    """The application wants this replica to give up the leadership of `epoch`."""

    epoch: Epoch


@frozen
class TransferRequested:
    """The application wants a voter to lead instead of this replica, within `timeout_ms` or not at all."""

    epoch: Epoch
    target_id: ReplicaId
    timeout_ms: int


@frozen
class ReadBarrierRequested:
    """The application wants a read index; PassReadBarrier or RefuseReadBarrier has this number."""

    request: int
    timeout_ms: int


@frozen
class CommitLearned:
    """The answer to a forwarded append says that everything below `end` is committed; its last record is of the epoch
    that is named."""

    end: OffsetAndEpoch


@frozen
class ShutdownRequested:
    """The host wants a graceful end: hand over, if leading."""

    timeout_ms: int


Event = (
    RequestReceived[Any]
    | ResponseReceived[Any]
    | RequestFailed
    | ConnectionLost
    | PeerIdentified
    | RecordsSubmitted
    | Flushed
    | LogTruncated
    | StorageFailed
    | DiskSpaceChanged
    | StateMachineFailed
    | RepairWritten
    | RepairRefused
    | Repaired
    | TimeoutReached
    | SnapshotCreated
    | SnapshotDamaged
    | SnapshotLost
    | SnapshotAdopted
    | RetentionDue
    | SnapshotChunkWritten
    | DownloadHashed
    | SnapshotInstalled
    | SnapshotRefused
    | StateHashed
    | StateHealed
    | ResignRequested
    | TransferRequested
    | ReadBarrierRequested
    | CommitLearned
    | ShutdownRequested
)
