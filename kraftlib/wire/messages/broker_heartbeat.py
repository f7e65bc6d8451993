"""BrokerHeartbeat (63): a broker stays in the cluster, becomes active, or asks to leave (KIP-631, KIP-858)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, array, boolean, int16, int32, int64, message


@message(kind="request", api_key=63, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BrokerHeartbeatRequest(Message):
    """The broker's offset in the metadata log, and the state that it asks for."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: tuple[UUID, ...] = array("uuid", "1+", tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = array("uuid", "2+", nullable="2+", tag=1, default=None)


@message(kind="response", api_key=63, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BrokerHeartbeatResponse(Message):
    """The result of a heartbeat."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
