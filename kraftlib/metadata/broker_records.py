"""Brokers and controllers: registrations and fences (KIP-631, KIP-858, KIP-919)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    uint16,
    uuid,
)


@message(kind="metadata", api_key=0, versions="0-4", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RegisterBrokerRecord(Message):
    """A broker has registered; its epoch is this record's offset."""

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: UUID = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: tuple[BrokerEndpoint, ...] = array("BrokerEndpoint", "0+")
    features: tuple[BrokerFeature, ...] = array("BrokerFeature", "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: tuple[UUID, ...] = array("uuid", "3+", tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = array("uuid", "4+", nullable="4+", tag=1, default=None)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class BrokerEndpoint(Struct):
        """One listener of the broker."""

        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class BrokerFeature(Struct):
        """A feature that the broker supports."""

        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")


@message(kind="metadata", api_key=1, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnregisterBrokerRecord(Message):
    """A broker is gone for good."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


@message(kind="metadata", api_key=7, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class FenceBrokerRecord(Message):
    """A broker is fenced: the old form of BrokerRegistrationChangeRecord."""

    id: int = int32("0+")
    epoch: int = int64("0+")


@message(kind="metadata", api_key=8, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnfenceBrokerRecord(Message):
    """A broker is active: the old form of BrokerRegistrationChangeRecord."""

    id: int = int32("0+")
    epoch: int = int64("0+")


@message(kind="metadata", api_key=17, versions="0-3", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BrokerRegistrationChangeRecord(Message):
    """Something about a registered broker has changed; an absent field has not."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: tuple[UUID, ...] = array("uuid", "2+", tag=2)
    cordoned_log_dirs: tuple[UUID, ...] | None = array("uuid", "3+", nullable="3+", tag=3, default=None)


@message(kind="metadata", api_key=27, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RegisterControllerRecord(Message):
    """A controller has told its endpoints and features."""

    controller_id: int = int32("0+")
    incarnation_id: UUID = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: tuple[ControllerEndpoint, ...] = array("ControllerEndpoint", "0+")
    features: tuple[ControllerFeature, ...] = array("ControllerFeature", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ControllerEndpoint(Struct):
        """One listener of the controller."""

        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ControllerFeature(Struct):
        """A feature that the controller supports."""

        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")


@message(kind="metadata", api_key=29, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnregisterControllerRecord(Message):
    """A controller is gone for good."""

    controller_id: int = int32("0+")
