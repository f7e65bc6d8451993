"""The actions that the core asks for: a closed union of small values, in an ordered list.

The order is the durability argument: each action may rely on the ones before it. PersistElection, TruncateLog,
WriteSnapshotChunk and InstallSnapshot touch the disk: the actions that follow them, and the next event, wait. Only
FlushLog overlaps with everything else; its end comes back as `Flushed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from kraftlib.codec.declared import Message
from kraftlib.frozen import frozen
from kraftlib.records.batch import Batch
from kraftlib.records.control import ControlRecord
from kraftlib.types import ElectionState, Endpoint, Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse

RequestT = TypeVar("RequestT", bound=Message, covariant=True)


@frozen
class PersistElection:
    """Make the election state durable: no message that depends on it may leave before."""

    election: ElectionState
    kraft_version: int


@frozen
class BeginEpoch:
    """Tell the log that `epoch` starts here, before it has a record."""

    epoch: Epoch
    start_offset: Offset


@frozen
class AppendToLog:
    """Append stamped batches. Readable at once, durable with the next flush."""

    batches: Sequence[Batch]


@frozen
class TruncateLog:
    """Drop what reaches beyond `end_offset`; LogTruncated tells the core where the log really ends."""

    end_offset: Offset


@frozen
class WriteRepair:
    """Put fetched batches into the first hole of the log: RepairWritten, Repaired or RepairRefused comes back."""

    batches: Sequence[Batch]


@frozen
class FlushLog:
    """Make durable what was appended so far; comes back as Flushed with this log version."""

    log_version: int


@frozen
class SendRequest(Generic[RequestT]):
    """Send to a replica (number >= 0) or to a bootstrap server (-2, -3, ...)."""

    correlation_id: int
    destination: int
    endpoint: Endpoint
    request: RequestT


@frozen
class SendResponse:
    """Answer a request. None: close the connection instead, since some error codes stop a Kafka peer."""

    request_id: int
    response: Message | None


@frozen
class SendRecords:
    """Answer a Fetch: `response` with the log's bytes from `start_offset` on put into its one partition."""

    request_id: int
    response: FetchResponse
    start_offset: Offset
    max_bytes: int


@frozen
class AnswerObservers:
    """Answer the Fetches of many observers alike, as SendRecords does; without records if `start_offset` is None.

    Where there is an `end_offset`, no batch goes that reaches beyond it.
    """

    request_ids: tuple[int, ...]
    response: FetchResponse
    start_offset: Offset | None
    max_bytes: int
    end_offset: Offset | None = None


@frozen
class SendSnapshotChunk:
    """Answer a FetchSnapshot: `response` with size and bytes of the stored snapshot put into its one partition.

    The executor answers POSITION_OUT_OF_RANGE itself where `position` lies outside the file.
    """

    request_id: int
    response: FetchSnapshotResponse
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int
    replica_id: ReplicaId = -1
    """The request sender, as it calls itself."""


@frozen
class WriteSnapshotChunk:
    """Add bytes to the download of `snapshot_id` at `position` (0 begins it anew).

    SnapshotChunkWritten comes back, or SnapshotRefused. The `size` of the whole is noted beside it.
    """

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes | memoryview
    size: int


@frozen
class HashDownload:
    """Hash the first `position` bytes of the download, beside the loop; DownloadHashed comes back."""

    snapshot_id: OffsetAndEpoch
    position: int


@frozen
class SendSnapshotHash:
    """Answer a SnapshotHash with size and hash of the stored snapshot, made beside the loop."""

    request_id: int
    snapshot_id: OffsetAndEpoch
    position: int


@frozen
class DropSnapshotDownload:
    """Forget the partial download."""


@frozen
class InstallSnapshot:
    """Verify the download, freeze it and let it replace the log; SnapshotInstalled or SnapshotRefused comes back."""

    snapshot_id: OffsetAndEpoch


@frozen
class AdoptSnapshot:
    """Let the downloaded snapshot stand in for all before its end, if it verifies, and keep the log behind it.

    SnapshotAdopted comes back, or SnapshotRefused.
    """

    snapshot_id: OffsetAndEpoch


@frozen
class SetSnapshotAside:
    """Forget a stored snapshot that is damaged. SnapshotLost comes back."""

    snapshot_id: OffsetAndEpoch
    reason: str


@frozen
class DeleteBefore:
    """Forget the batches and snapshots that this stored snapshot replaces."""

    snapshot_id: OffsetAndEpoch


@frozen
class AdvanceHighWatermark:
    """Everything below is committed: wake waiters, feed the applier."""

    high_watermark: Offset


@frozen
class AcceptAppends:
    """This replica leads `epoch`: records may be appended, the first gets `base_offset`."""

    epoch: Epoch
    base_offset: Offset


@frozen
class RefuseAppends:
    """The leadership of `epoch` is over: records that are not written yet were not appended, and the outcome of written
    ones is unknown."""

    epoch: Epoch


@frozen
class SubmitControl:
    """Put control records into the accumulator as a batch of their own; they come back with RecordsSubmitted."""

    records: Sequence[ControlRecord]


@frozen
class AnnounceLeader:
    """Tell the listener: first without a leader, then with one.

    A leader hears of itself only once its listener has read everything below `epoch_start_offset`: it never starts on
    an incomplete state.
    """

    leader: LeaderAndEpoch
    epoch_start_offset: Offset = 0


@frozen
class PassReadBarrier:
    """A reader that has applied everything below `offset` misses nothing that was committed when this read began."""

    request: int
    offset: Offset


@frozen
class RefuseReadBarrier:
    """The read has no answer: no leader confirmed itself in time, or the leader knows no such question."""

    request: int
    error: ErrorCode


@frozen
class TakeSnapshot:
    """Take a snapshot of the state machine: another replica wants it."""


@frozen
class QuarantineState:
    """The state of the state machine was found to be wrong at `offset`: it must not be read, nor written anywhere."""

    offset: Offset


@frozen
class ReloadState:
    """Load the state machine from this snapshot, which is stored; StateHealed follows."""

    snapshot_id: OffsetAndEpoch


@frozen
class ShutdownComplete:
    """Nothing more is to be handed over; the executor may stop."""


Action = (
    PersistElection
    | BeginEpoch
    | AppendToLog
    | TruncateLog
    | WriteRepair
    | FlushLog
    | SendRequest[Any]
    | SendResponse
    | SendRecords
    | AnswerObservers
    | SendSnapshotChunk
    | WriteSnapshotChunk
    | HashDownload
    | SendSnapshotHash
    | DropSnapshotDownload
    | InstallSnapshot
    | AdoptSnapshot
    | SetSnapshotAside
    | DeleteBefore
    | AdvanceHighWatermark
    | AcceptAppends
    | RefuseAppends
    | SubmitControl
    | AnnounceLeader
    | PassReadBarrier
    | RefuseReadBarrier
    | TakeSnapshot
    | QuarantineState
    | ReloadState
    | ShutdownComplete
)
