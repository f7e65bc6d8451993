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
        ElectionStateLostError,
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
    )
    from kraftlib.records.accumulator import BatchAccumulator
    from kraftlib.records.serde import BytesSerde, JsonSerde, RecordSerde, TextSerde
    from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
    from kraftlib.runtime.listener import Listener, StateMachine
    from kraftlib.runtime.transport import Transport
    from kraftlib.storage.election_file import FileQuorumStateStore
    from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
    from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
    from kraftlib.types import Endpoint, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey

__version__ = "0.1.0.dev0"

_HOMES = {
    "kraftlib.config": ["RaftConfig"],
    "kraftlib.errors": [
        "BacklogFullError",
        "ClosedError",
        "ConfigError",
        "CorruptBatchError",
        "DirectoryInUseError",
        "ElectionStateLostError",
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
    ],
    "kraftlib.records.accumulator": ["BatchAccumulator"],
    "kraftlib.records.serde": ["BytesSerde", "JsonSerde", "RecordSerde", "TextSerde"],
    "kraftlib.records.snapshot": ["SnapshotReader", "SnapshotWriter"],
    "kraftlib.runtime.listener": ["Listener", "StateMachine"],
    "kraftlib.runtime.transport": ["Transport"],
    "kraftlib.storage.election_file": ["FileQuorumStateStore"],
    "kraftlib.storage.interface": ["QuorumStateStore", "ReplicatedLog"],
    "kraftlib.storage.memory": ["MemoryQuorumStateStore", "MemoryReplicatedLog"],
    "kraftlib.types": ["Endpoint", "LeaderAndEpoch", "OffsetAndEpoch", "ReplicaKey"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BacklogFullError",
    "BatchAccumulator",
    "BytesSerde",
    "ClosedError",
    "ConfigError",
    "CorruptBatchError",
    "DirectoryInUseError",
    "ElectionStateLostError",
    "Endpoint",
    "FileQuorumStateStore",
    "InvariantError",
    "JsonSerde",
    "KraftError",
    "LeaderAndEpoch",
    "Listener",
    "LocalProtocolError",
    "MemoryQuorumStateStore",
    "MemoryReplicatedLog",
    "NotFormattedError",
    "NotLeaderError",
    "OffsetAndEpoch",
    "OutcomeUnknownError",
    "ProtocolError",
    "QuorumStateStore",
    "RaftConfig",
    "RecordSerde",
    "RecordTooLargeError",
    "RemoteProtocolError",
    "ReplicaFailedError",
    "ReplicaKey",
    "ReplicatedLog",
    "SnapshotReader",
    "SnapshotWriter",
    "StateMachine",
    "StorageError",
    "TextSerde",
    "Transport",
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
