"""Kafka's KRaft as an embeddable library: consensus inside your own process.

    from kraftlib import RaftClient, RaftConfig, StateMachine

This module has the names that a service needs to embed a replica, and the errors that it catches. They load on first
use, so `import kraftlib` costs next to nothing. All other public names are imported from the module that defines them.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraftlib.config import RaftConfig, StaticVoter
    from kraftlib.errors import (
        BacklogFullError,
        ClosedError,
        ConfigError,
        DiskFullError,
        KraftError,
        NotLeaderError,
        OutcomeUnknownError,
        ProtocolError,
        RecordTooLargeError,
        ReplicaFailedError,
        StorageError,
        UnsupportedError,
    )
    from kraftlib.recipes.kraft import connect, open
    from kraftlib.records.serde import BytesSerde, JsonSerde, RecordSerde, TextSerde
    from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
    from kraftlib.runtime.client.raft_client import RaftClient
    from kraftlib.runtime.committed import BatchReader, CommittedRecord
    from kraftlib.runtime.listener import Listener, StateMachine
    from kraftlib.runtime.net.transport import Transport
    from kraftlib.storage.directory import format_directory
    from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
    from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
    from kraftlib.types import Endpoint

__version__ = "0.1.0.dev0"

_HOMES: Final = {
    "kraftlib.config": ["RaftConfig", "StaticVoter"],
    "kraftlib.errors": [
        "BacklogFullError",
        "ClosedError",
        "ConfigError",
        "DiskFullError",
        "KraftError",
        "NotLeaderError",
        "OutcomeUnknownError",
        "ProtocolError",
        "RecordTooLargeError",
        "ReplicaFailedError",
        "StorageError",
        "UnsupportedError",
    ],
    "kraftlib.recipes.kraft": ["connect", "open"],
    "kraftlib.records.serde": ["BytesSerde", "JsonSerde", "RecordSerde", "TextSerde"],
    "kraftlib.records.snapshot": ["SnapshotReader", "SnapshotWriter"],
    "kraftlib.runtime.client.raft_client": ["RaftClient"],
    "kraftlib.runtime.committed": ["BatchReader", "CommittedRecord"],
    "kraftlib.runtime.listener": ["Listener", "StateMachine"],
    "kraftlib.runtime.net.transport": ["Transport"],
    "kraftlib.storage.directory": ["format_directory"],
    "kraftlib.storage.interface": ["QuorumStateStore", "ReplicatedLog"],
    "kraftlib.storage.memory": ["MemoryQuorumStateStore", "MemoryReplicatedLog"],
    "kraftlib.types": ["Endpoint"],
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "RaftClient",
    "open",
    "connect",
    "RaftConfig",
    "StaticVoter",
    "Endpoint",
    "format_directory",
    "StateMachine",
    "Listener",
    "BatchReader",
    "CommittedRecord",
    "ReplicatedLog",
    "QuorumStateStore",
    "Transport",
    "MemoryReplicatedLog",
    "MemoryQuorumStateStore",
    "RecordSerde",
    "BytesSerde",
    "JsonSerde",
    "TextSerde",
    "SnapshotReader",
    "SnapshotWriter",
    "KraftError",
    "ConfigError",
    "NotLeaderError",
    "BacklogFullError",
    "DiskFullError",
    "RecordTooLargeError",
    "ClosedError",
    "OutcomeUnknownError",
    "UnsupportedError",
    "ProtocolError",
    "StorageError",
    "ReplicaFailedError",
    "__version__",
]


if "KRAFTLIB_PURE" in os.environ:
    importlib.import_module("kraftlib.form").obey_environment()


def __getattr__(name: str) -> object:
    """Load the public `name` from its home; later uses find it here."""
    try:
        home = _HOME_OF[name]
    except KeyError:
        raise AttributeError(f"module 'kraftlib' has no attribute {name!r}", name=name) from None
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
