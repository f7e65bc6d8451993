"""Kafka's KRaft as an embeddable library: consensus inside your own process.

The public names stand in this module and load on first use, so that `import kraftlib` costs next to nothing:

    from kraftlib import RaftClient, RaftConfig, StateMachine
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlib.config import RaftConfig
    from kraftlib.errors import (
        BacklogFullError,
        ClosedError,
        ConfigError,
        CorruptBatchError,
        DirectoryInUseError,
        DiskFullError,
        ElectionStateLostError,
        HoldExpiredError,
        InvariantError,
        KraftError,
        LocalProtocolError,
        NotFormattedError,
        NotLeaderError,
        OutcomeUnknownError,
        ProtocolError,
        RecordTooLargeError,
        RemoteProtocolError,
        ReplicaFailedError,
        StorageError,
        UnsupportedError,
    )
    from kraftlib.records.accumulator import BatchAccumulator
    from kraftlib.records.batch import Batch, read_batch
    from kraftlib.records.increment import IncrementReader, IncrementWriter
    from kraftlib.records.serde import BytesSerde, JsonSerde, RecordSerde, TextSerde
    from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
    from kraftlib.runtime.client.raft_client import RaftClient
    from kraftlib.runtime.client.status import ReplicaStatus, Status
    from kraftlib.runtime.listener import (
        BatchReader,
        CommittedBatch,
        CommittedRecord,
        Listener,
        LoadedSnapshot,
        StateMachine,
    )
    from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
    from kraftlib.runtime.net.tcp import TcpTransport
    from kraftlib.runtime.net.transport import Destination, Frame, FrameReceiver, Peer, Reply, Transport
    from kraftlib.runtime.snapshots.increments import IncrementalStateMachine
    from kraftlib.runtime.snapshots.retention import RetentionHold
    from kraftlib.runtime.snapshots.writing import OpenSnapshot
    from kraftlib.runtime.waiters import Appended
    from kraftlib.storage.bootstrap import InitialController
    from kraftlib.storage.compaction import compact
    from kraftlib.storage.directory import format_directory
    from kraftlib.storage.election_file import FileQuorumStateStore
    from kraftlib.storage.epoch_file import EpochTable
    from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog, SnapshotSink, SnapshotSource
    from kraftlib.storage.log import FileReplicatedLog
    from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
    from kraftlib.types import ElectionState, Endpoint, EpochStart, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey

__version__ = "0.1.0.dev0"

_HOMES = {
    "kraftlib.config": ["RaftConfig"],
    "kraftlib.errors": [
        "BacklogFullError",
        "DiskFullError",
        "ClosedError",
        "ConfigError",
        "CorruptBatchError",
        "DirectoryInUseError",
        "ElectionStateLostError",
        "HoldExpiredError",
        "InvariantError",
        "KraftError",
        "LocalProtocolError",
        "NotFormattedError",
        "NotLeaderError",
        "OutcomeUnknownError",
        "ProtocolError",
        "RecordTooLargeError",
        "RemoteProtocolError",
        "ReplicaFailedError",
        "StorageError",
        "UnsupportedError",
    ],
    "kraftlib.records.accumulator": ["BatchAccumulator"],
    "kraftlib.records.batch": ["Batch", "read_batch"],
    "kraftlib.records.increment": ["IncrementReader", "IncrementWriter"],
    "kraftlib.records.serde": ["BytesSerde", "JsonSerde", "RecordSerde", "TextSerde"],
    "kraftlib.records.snapshot": ["SnapshotReader", "SnapshotWriter"],
    "kraftlib.runtime.client.raft_client": ["RaftClient"],
    "kraftlib.runtime.snapshots.increments": ["IncrementalStateMachine"],
    "kraftlib.runtime.listener": [
        "BatchReader",
        "CommittedBatch",
        "CommittedRecord",
        "Listener",
        "LoadedSnapshot",
        "StateMachine",
    ],
    "kraftlib.runtime.net.memory_transport": ["MemoryHub", "MemoryTransport"],
    "kraftlib.runtime.snapshots.retention": ["RetentionHold"],
    "kraftlib.runtime.snapshots.writing": ["OpenSnapshot"],
    "kraftlib.runtime.client.status": ["ReplicaStatus", "Status"],
    "kraftlib.runtime.net.tcp": ["TcpTransport"],
    "kraftlib.runtime.net.transport": ["Destination", "Frame", "FrameReceiver", "Peer", "Reply", "Transport"],
    "kraftlib.runtime.waiters": ["Appended"],
    "kraftlib.storage.bootstrap": ["InitialController"],
    "kraftlib.storage.compaction": ["compact"],
    "kraftlib.storage.directory": ["format_directory"],
    "kraftlib.storage.election_file": ["FileQuorumStateStore"],
    "kraftlib.storage.epoch_file": ["EpochTable"],
    "kraftlib.storage.interface": ["QuorumStateStore", "ReplicatedLog", "SnapshotSink", "SnapshotSource"],
    "kraftlib.storage.log": ["FileReplicatedLog"],
    "kraftlib.storage.memory": ["MemoryQuorumStateStore", "MemoryReplicatedLog"],
    "kraftlib.types": ["ElectionState", "Endpoint", "EpochStart", "LeaderAndEpoch", "OffsetAndEpoch", "ReplicaKey"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Appended",
    "BacklogFullError",
    "DiskFullError",
    "Batch",
    "BatchAccumulator",
    "BatchReader",
    "BytesSerde",
    "ClosedError",
    "CommittedBatch",
    "CommittedRecord",
    "ConfigError",
    "CorruptBatchError",
    "Destination",
    "DirectoryInUseError",
    "ElectionState",
    "ElectionStateLostError",
    "Endpoint",
    "EpochStart",
    "EpochTable",
    "FileQuorumStateStore",
    "FileReplicatedLog",
    "Frame",
    "FrameReceiver",
    "HoldExpiredError",
    "IncrementReader",
    "IncrementWriter",
    "IncrementalStateMachine",
    "InitialController",
    "InvariantError",
    "JsonSerde",
    "KraftError",
    "LeaderAndEpoch",
    "Listener",
    "LoadedSnapshot",
    "LocalProtocolError",
    "MemoryHub",
    "MemoryQuorumStateStore",
    "MemoryReplicatedLog",
    "MemoryTransport",
    "NotFormattedError",
    "NotLeaderError",
    "OffsetAndEpoch",
    "OpenSnapshot",
    "OutcomeUnknownError",
    "Peer",
    "ProtocolError",
    "QuorumStateStore",
    "RaftClient",
    "RaftConfig",
    "RecordSerde",
    "RecordTooLargeError",
    "RemoteProtocolError",
    "ReplicaFailedError",
    "ReplicaKey",
    "ReplicaStatus",
    "ReplicatedLog",
    "Reply",
    "RetentionHold",
    "SnapshotReader",
    "SnapshotSink",
    "SnapshotSource",
    "SnapshotWriter",
    "StateMachine",
    "Status",
    "StorageError",
    "TcpTransport",
    "TextSerde",
    "Transport",
    "compact",
    "UnsupportedError",
    "format_directory",
    "read_batch",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Load the public `name` from its home; later uses find it here."""
    try:
        home = _HOME_OF[name]
    except KeyError:
        raise AttributeError(f"module 'kraftlib' has no attribute {name!r}") from None
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
