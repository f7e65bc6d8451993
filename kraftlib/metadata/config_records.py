"""Configuration, quotas, feature levels and producer ids."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, float64, int8, int16, int32, int64, message, string


@message(kind="metadata", api_key=4, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConfigRecord(Message):
    """A configuration key has a value; null removes it."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@message(kind="metadata", api_key=14, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ClientQuotaRecord(Message):
    """A client has a quota (KIP-546)."""

    entity: tuple[EntityData, ...] = array("EntityData", "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class EntityData(Struct):
        """The subject of the quota: a user, a client id or an address; a null name is the default."""

        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")


@message(kind="metadata", api_key=12, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class FeatureLevelRecord(Message):
    """A feature has a level; 0 removes it (KIP-584)."""

    name: str = string("0+")
    feature_level: int = int16("0+")


@message(kind="metadata", api_key=15, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ProducerIdsRecord(Message):
    """Producer ids up to `next_producer_id` are given out (KIP-730)."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


@message(kind="metadata", api_key=21, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ZkMigrationStateRecord(Message):
    """The state of a migration from ZooKeeper; Kafka 4.0 has no ZooKeeper (KIP-866)."""

    zk_migration_state: int = int8("0+")
