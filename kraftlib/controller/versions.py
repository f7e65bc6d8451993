"""The version in which a record is written, by the finalized metadata.version (KIP-778; in Kafka, MetadataVersion)."""

from __future__ import annotations

from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.metadata.broker_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from kraftlib.metadata.frame import encode_record
from kraftlib.metadata.topic_records import PartitionChangeRecord, PartitionRecord

METADATA_VERSION: Final = "metadata.version"
SUPPORTED_METADATA_VERSIONS: Final = Versions(7, 30)
"""3.3-IV3, the minimum of Kafka 4, to 4.3-IV0."""

CHANGED_RECORDS: Final = frozenset((7, 8, 11, 13, 14, 15, 17, 23, 30))
"""The versions that have brought new records, or new fields of them (Kafka's `didMetadataChange`)."""
ELR_SINCE: Final = 23
"""Eligible leader replicas stand in records from 4.0-IV1 on."""

_3_4_IV0: Final = 8
_3_5_IV2: Final = 11
_3_6_IV0: Final = 12
_3_6_IV2: Final = 14
_3_7_IV0: Final = 15
_3_7_IV2: Final = 17
_4_0_IV1: Final = 23
_4_3_IV0: Final = 30


def record_version(record: Message, metadata_version: int) -> int:
    """Return the version in which `record` is written at this metadata.version."""
    if isinstance(record, RegisterBrokerRecord):
        steps = (_3_4_IV0, _3_7_IV2, _4_3_IV0)
        return 1 + sum(metadata_version >= level for level in steps)
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        return sum(metadata_version >= level for level in (_3_7_IV2, _4_0_IV1))
    if isinstance(record, BrokerRegistrationChangeRecord):
        return _lowest_for(record)
    return 0


def _lowest_for(change: BrokerRegistrationChangeRecord) -> int:
    """Return the version by content, as Kafka does."""
    if change.cordoned_log_dirs is not None:
        return 3
    if change.log_dirs:
        return 2
    return 1 if change.in_controlled_shutdown else 0


def encoded(record: Message, metadata_version: int) -> bytes:
    """Return the record in its frame. Raises: LocalProtocolError, if this metadata.version cannot hold it."""
    return encode_record(record, record_version(record, metadata_version))


def has_controller_registrations(metadata_version: int) -> bool:
    """Whether controllers stand in the log (KIP-919)."""
    return metadata_version >= _3_7_IV0


def has_directories(metadata_version: int) -> bool:
    """Whether replicas are assigned to log directories (KIP-858)."""
    return metadata_version >= _3_7_IV2


def has_cordoned_directories(metadata_version: int) -> bool:
    """Whether a broker may say that it wants no new replicas in some directories (KIP-1066)."""
    return metadata_version >= _4_3_IV0


def shrinking_begins_leader_epoch(metadata_version: int) -> bool:
    """Whether a smaller ISR begins a leader epoch, as it did before 3.6 (KAFKA-15021)."""
    return metadata_version < _3_6_IV0


def has_scram(metadata_version: int) -> bool:
    """Whether credentials for SASL/SCRAM stand in the log (KIP-900)."""
    return metadata_version >= _3_5_IV2


def has_delegation_tokens(metadata_version: int) -> bool:
    """Whether delegation tokens stand in the log (KIP-900)."""
    return metadata_version >= _3_6_IV2
