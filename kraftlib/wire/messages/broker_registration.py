"""BrokerRegistration (62): a broker joins the cluster (KIP-631, KIP-858)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int16, int32, int64, message, string, uint16, uuid


@message(kind="request", api_key=62, versions="0-4", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BrokerRegistrationRequest(Message):
    """A starting broker tells its id, endpoints and features."""

    broker_id: int = int32("0+")
    cluster_id: str = string("0+")
    incarnation_id: UUID = uuid("0+")
    listeners: tuple[Listener, ...] = array("Listener", "0+")
    features: tuple[Feature, ...] = array("Feature", "0+")
    rack: str | None = string("0+", nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: tuple[UUID, ...] = array("uuid", "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Listener(Struct):
        """One listener of the broker."""

        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Feature(Struct):
        """A feature that the broker supports."""

        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")


@message(kind="response", api_key=62, versions="0-4", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BrokerRegistrationResponse(Message):
    """The broker epoch: the offset of its registration record."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    broker_epoch: int = int64("0+", default=-1)
