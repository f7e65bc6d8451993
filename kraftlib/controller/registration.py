"""Brokers and controllers register, and are unregistered (KIP-631, KIP-858, KIP-919)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.leadership import leave, lose_records, without
from kraftlib.controller.results import Decision, RefusedError
from kraftlib.controller.versions import METADATA_VERSION, has_controller_registrations, has_directories
from kraftlib.metadata.broker_records import RegisterBrokerRecord, RegisterControllerRecord, UnregisterBrokerRecord
from kraftlib.types import is_host
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftlib.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

T = TypeVar("T")

RESERVED_DIRECTORY_IDS = 100
SECURITY_PROTOCOLS: Final = range(4)
PLACE: Final = ("name", "host", "port", "security_protocol")
RANGE: Final = ("name", "min_supported_version", "max_supported_version")
PREVIOUS_EPOCH_SINCE = 3
"""The version from which on a broker says whether it has ended cleanly."""


def copies(struct: Callable[..., T], rows: Iterable[object], names: Iterable[str]) -> tuple[T, ...]:
    """Return rows of one message as rows of another one, with the fields of these names."""
    return tuple(struct(**{name: getattr(row, name) for name in names}) for row in rows)


def _is_place(place: BrokerRegistrationRequest.Listener | ControllerRegistrationRequest.Listener) -> bool:
    """Whether this is an address: a broker stops that reads another protocol in the log."""
    return is_host(place.host) and place.security_protocol in SECURITY_PROTOCOLS


def register_broker(context: Context, request: BrokerRegistrationRequest, version: int) -> Decision:
    """Register a broker, fenced; its epoch is the offset of its record."""
    try:
        _check(context, request)
    except RefusedError as refused:
        return Decision(answer=BrokerRegistrationResponse(error_code=refused.code))
    known = context.state.cluster.brokers.get(request.broker_id)
    is_same = known is not None and known.incarnation_id == request.incarnation_id
    records: list[Message] = []
    if not is_same:
        has_lost = context.features.has_eligible_leader_replicas and not _ended_cleanly(known, request, version)
        records += (lose_records if has_lost else leave)(context, request.broker_id)
    metadata_version = context.features.metadata_version
    epoch = known.broker_epoch if known is not None and is_same else context.next_offset + len(records)
    records.append(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=copies(RegisterBrokerRecord.BrokerEndpoint, request.listeners, PLACE),
            features=copies(RegisterBrokerRecord.BrokerFeature, request.features, RANGE),
            rack=request.rack,
            fenced=known.fenced if known is not None and is_same else True,
            in_controlled_shutdown=known is not None and is_same and known.in_controlled_shutdown,
            log_dirs=request.log_dirs if has_directories(metadata_version) else (),
        )
    )
    return Decision(records, BrokerRegistrationResponse(broker_epoch=epoch), is_atomic=False)


def _ended_cleanly(known: RegisterBrokerRecord | None, request: BrokerRegistrationRequest, version: int) -> bool:
    """Whether a broker names the epoch that it had: it notes that when it ends. Older ones cannot (KIP-966)."""
    if version < PREVIOUS_EPOCH_SINCE:
        return True
    return known is not None and known.broker_epoch == request.previous_broker_epoch


def _check(context: Context, request: BrokerRegistrationRequest) -> None:
    """Refuse what Kafka's ClusterControlManager refuses, in its order."""
    if request.cluster_id != context.cluster_id:
        raise RefusedError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    cluster = context.state.cluster
    known = cluster.brokers.get(request.broker_id)
    if (
        known is not None
        and known.incarnation_id != request.incarnation_id
        and context.sessions.is_live(request.broker_id, known.broker_epoch, context.now_ms)
    ):
        raise RefusedError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    if request.is_migrating_zk_broker:
        raise RefusedError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    directories = request.log_dirs
    if has_directories(context.features.metadata_version) and (
        not directories
        or len(set(directories)) != len(directories)
        or any(directory.int < RESERVED_DIRECTORY_IDS for directory in directories)
        or cluster.owner_of(directories, but=request.broker_id) is not None
    ):
        raise RefusedError(ErrorCode.INVALID_REGISTRATION)
    # Of ids and hosts Kafka takes any. Here no host reaches a log or a client that is none, and -1 is no leader.
    if request.broker_id < 0 or not all(map(_is_place, request.listeners)):
        raise RefusedError(ErrorCode.INVALID_REGISTRATION)
    if not any(row.name == METADATA_VERSION for row in request.features):
        raise RefusedError(ErrorCode.INVALID_REGISTRATION)
    if context.features.why_not(request.features) is not None:
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)


def unregister_broker(context: Context, request: UnregisterBrokerRequest, version: int) -> Decision:
    """Forget a broker for good."""
    known = context.state.cluster.brokers.get(request.broker_id)
    if known is None:
        text = f"Broker ID {request.broker_id} is not currently registered"
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        return Decision(answer=UnregisterBrokerResponse(error_code=code, error_message=text))
    records: list[Message] = [
        *leave(context, request.broker_id),
        *without(context, request.broker_id, context.state.topics.eligible_on(request.broker_id)),
        UnregisterBrokerRecord(broker_id=request.broker_id, broker_epoch=known.broker_epoch),
    ]
    context.sessions.end(request.broker_id, context.now_ms)
    return Decision(records, UnregisterBrokerResponse(error_message=None), is_atomic=False)


def register_controller(context: Context, request: ControllerRegistrationRequest, version: int) -> Decision:
    """Take note of a controller: admin clients that ask controllers find it so. Its features are not judged."""
    if not all(map(_is_place, request.listeners)):
        text = f"controller {request.controller_id} names what is no host, or no security protocol"
        return Decision(
            answer=ControllerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION, error_message=text)
        )
    if not has_controller_registrations(context.features.metadata_version):
        text = "The current metadata.version is too old for registrations of controllers."
        return Decision(
            answer=ControllerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=text)
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=copies(RegisterControllerRecord.ControllerEndpoint, request.listeners, PLACE),
        features=copies(RegisterControllerRecord.ControllerFeature, request.features, RANGE),
    )
    return Decision([record], ControllerRegistrationResponse(error_message=""))
