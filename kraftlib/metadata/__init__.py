"""Kafka's metadata records, declared: names, ids, versions, and no behaviour.

They are what the values of a Kafka cluster's metadata log hold, each in a frame that says its type and version. Classes
are imported when they are first met.

    from kraftlib.metadata import MetadataSerde, TopicRecord
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlib.metadata.frame import UnknownRecordError, decode_record, encode_record
from kraftlib.metadata.serde import MetadataSerde, UnknownRecord
from kraftlib.metadata.table import RECORDS, RecordType, record_class, record_type_name

if TYPE_CHECKING:
    from kraftlib.metadata.broker_records import (
        BrokerRegistrationChangeRecord,
        FenceBrokerRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
        UnregisterControllerRecord,
    )
    from kraftlib.metadata.config_records import (
        ClientQuotaRecord,
        ConfigRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
        ZkMigrationStateRecord,
    )
    from kraftlib.metadata.log_records import (
        AbortTransactionRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        NoOpRecord,
    )
    from kraftlib.metadata.security_records import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        RemoveAccessControlEntryRecord,
        RemoveDelegationTokenRecord,
        RemoveUserScramCredentialRecord,
        UserScramCredentialRecord,
    )
    from kraftlib.metadata.topic_records import (
        ClearElrRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )

__all__ = [
    "decode_record",
    "encode_record",
    "MetadataSerde",
    "RECORDS",
    "record_class",
    "RecordType",
    "record_type_name",
    "UnknownRecord",
    "UnknownRecordError",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UnregisterControllerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
]


def __getattr__(name: str) -> object:
    """Load the class of a record."""
    if name in __all__:
        return next(cls for cls in RECORDS.values() if cls.__name__ == name)
    raise AttributeError(f"module 'kraftlib.metadata' has no attribute {name!r}")
