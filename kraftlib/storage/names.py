"""Names of the files in a metadata directory. Made from integers, read by strict patterns, never taken from a wire.

meta.properties                              the directory: node, cluster and directory id
bootstrap.checkpoint                         records that the first leader of a Kafka cluster writes
.lock                                        held while a process owns the directory
__cluster_metadata-0/
  00000000000000000000.log                   segment: base offset, 20 digits
  00000000000000000000.index .timeindex      caches of where an offset and a time stand in it
  00000000000000000275.snapshot              Kafka's producer state at that offset: always empty here
  00000000000000012345-0000000007.checkpoint snapshot: end offset, 20 digits, and epoch, 10 digits
  00000000000000012399-0000000007.increment  ours: the changes since another snapshot; leads to this id
  leader-epoch-checkpoint quorum-state partition.metadata
  quorum-state.bak kraftlib*.json            ours; Kafka leaves such names alone
  kraftlib-holds.json                        ours: the readers of the log, and their offsets
  kraftlib-skips.json                        ours: records that an operator has the state machine skip
  kraftlib-download.json and                 ours: a snapshot that is being downloaded
  00000000000000012345-0000000007.checkpoint.part
"""

from __future__ import annotations

import re
from typing import Final

from kraftlib.types import Offset, OffsetAndEpoch

PARTITION_DIRECTORY: Final = "__cluster_metadata-0"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
LOCK: Final = ".lock"
QUORUM_STATE: Final = "quorum-state"
QUORUM_STATE_MIRROR: Final = "quorum-state.bak"
PARTITION_METADATA: Final = "partition.metadata"
EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
HAS_RUN: Final = "kraftlib.json"
UNSYNCED: Final = "kraftlib-unsynced.json"
HOLDS: Final = "kraftlib-holds.json"
SKIPS: Final = "kraftlib-skips.json"
DOWNLOAD: Final = "kraftlib-download.json"
SYNC_POINT: Final = "kraftlib-sync.json"
PREFIX: Final = "kraftlib-prefix.json"
RESERVE: Final = "kraftlib-reserve.bin"
SPARE: Final = "kraftlib-spare.bin"
REPAIR_DIRECTORY: Final = "kraftlib-repair"
DAMAGED_DIRECTORY: Final = "kraftlib-damaged"

_MAX_OFFSET: Final = 2**63 - 1
_MAX_EPOCH: Final = 2**31 - 1
_SEGMENT: Final = re.compile(r"([0-9]{20})\.log", re.ASCII)
_OF_SEGMENT: Final = re.compile(r"([0-9]{20})\.(?:log|index|timeindex)", re.ASCII)
_PRODUCER_STATE: Final = re.compile(r"([0-9]{20})\.snapshot", re.ASCII)
_INCREMENT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.increment", re.ASCII)
_DOWNLOAD: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint\.part", re.ASCII)
_CHECKPOINT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint", re.ASCII)

# Unfinished or condemned: the remains of a process that stopped in the middle of its work.
_LEFT_OVER: Final = re.compile(
    r"kraftlib-spare\.bin(?:\.tmp)?|[0-9]{20}-[0-9]{10}-[0-9]{1,20}\.checkpoint\.part|[0-9]{20}-[0-9]{10}\.increment\.tmp"
    r"|[0-9]{20}(?:-[0-9]{10}\.checkpoint|\.log|\.index|\.timeindex|\.snapshot)\.(?:deleted|tmp)"
    r"|(?:leader-epoch-checkpoint|quorum-state|quorum-state\.bak|partition\.metadata|kraftlib(?:-unsynced|-holds|-skips|-download|-prefix)?\.json)\.tmp",
    re.ASCII,
)


def segment_name(base_offset: Offset) -> str:
    """Return the name of the segment that begins at this offset."""
    return f"{base_offset:020d}.log"


def index_name(base_offset: Offset) -> str:
    """Return the name of the offset index of a segment."""
    return f"{base_offset:020d}.index"


def time_index_name(base_offset: Offset) -> str:
    """Return the name of the time index of a segment."""
    return f"{base_offset:020d}.timeindex"


def producer_state_name(offset: Offset) -> str:
    """Return the name of Kafka's producer state at this offset."""
    return f"{offset:020d}.snapshot"


def checkpoint_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the name of a snapshot."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def partial_checkpoint_name(snapshot_id: OffsetAndEpoch, number: int) -> str:
    """Return the name of a snapshot that is being written; `number` tells two attempts apart."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}-{number}.checkpoint.part"


def parse_segment_name(name: str) -> Offset | None:
    """Return the base offset that `name` says, None if it is not the name of a segment."""
    return _offset(_SEGMENT.fullmatch(name))


def parse_producer_state_name(name: str) -> Offset | None:
    """Return the offset that `name` says, None if it is not the name of a producer state."""
    return _offset(_PRODUCER_STATE.fullmatch(name))


def parse_name_of_segment_file(name: str) -> Offset | None:
    """Return the base offset of the segment that this file belongs to, None if it is no segment and no index."""
    return _offset(_OF_SEGMENT.fullmatch(name))


def parse_checkpoint_name(name: str) -> OffsetAndEpoch | None:
    """Return the id that `name` says, None if it is not the name of a snapshot."""
    return _snapshot_id(_CHECKPOINT.fullmatch(name))


def increment_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the name of the increment that leads to this id."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.increment"


def parse_increment_name(name: str) -> OffsetAndEpoch | None:
    """Return the id that `name` says, None if it is not the name of an increment."""
    return _snapshot_id(_INCREMENT.fullmatch(name))


def download_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the name of a snapshot that is being downloaded: without a number, since there is one at a time."""
    return f"{checkpoint_name(snapshot_id)}.part"


def is_download(name: str) -> bool:
    """Whether a file of this name is a part of a download."""
    return _DOWNLOAD.fullmatch(name) is not None


def is_left_over(name: str) -> bool:
    """Whether a file of this name is unfinished or condemned, and of no use."""
    return _LEFT_OVER.fullmatch(name) is not None


def _snapshot_id(match: re.Match[str] | None) -> OffsetAndEpoch | None:
    if match is None or int(match[1]) > _MAX_OFFSET or int(match[2]) > _MAX_EPOCH:
        return None
    return OffsetAndEpoch(offset=int(match[1]), epoch=int(match[2]))


def _offset(match: re.Match[str] | None) -> Offset | None:
    return int(match[1]) if match is not None and int(match[1]) <= _MAX_OFFSET else None
