"""ControllerRegistration (70): a controller tells its endpoints and features (KIP-919)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int16, int32, message, string, uint16, uuid


@message(kind="request", api_key=70, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ControllerRegistrationRequest(Message):
    """A controller that starts says who it is."""

    controller_id: int = int32("0+")
    incarnation_id: UUID = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    listeners: tuple[Listener, ...] = array("Listener", "0+")
    features: tuple[Feature, ...] = array("Feature", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Listener(Struct):
        """One listener of the controller."""

        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Feature(Struct):
        """A feature that the controller supports."""

        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")


@message(kind="response", api_key=70, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ControllerRegistrationResponse(Message):
    """Accepted or not."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
