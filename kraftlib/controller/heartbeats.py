"""Heartbeats: brokers are unfenced, fenced, and led through their shutdown (KIP-631).

| a broker that is | and asks for | becomes |
|---|---|---|
| fenced | shutdown | free to go |
| fenced | service, has read its registration, and names no directory that has just failed | active |
| fenced | anything else | fenced |
| active | a fence | fenced, or free to go, if it asks for shutdown too |
| active | shutdown | in controlled shutdown, if it leads; else free to go |
| in controlled shutdown | | free to go, once it leads nothing and the active brokers know |
| free to go | | free to go, until it registers anew |
"""

from __future__ import annotations

import enum

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.leadership import come_back, leave, lose_directories
from kraftlib.controller.results import Decision, RefusedError
from kraftlib.controller.sessions import Session
from kraftlib.controller.versions import has_cordoned_directories
from kraftlib.metadata.broker_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

FENCE, UNFENCE, BEGIN_SHUTDOWN = 1, -1, 1


class BrokerState(enum.Enum):
    """The states of a broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "free to go"


def state_of(broker: RegisterBrokerRecord) -> BrokerState:
    """Return what a registration says."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def heartbeat(context: Context, request: BrokerHeartbeatRequest, version: int) -> Decision:
    """Take a sign of life, and move the broker to the state that it asks for."""
    try:
        broker = context.state.cluster.current(request.broker_id, request.broker_epoch)
    except RefusedError as refused:
        return Decision(answer=BrokerHeartbeatResponse(error_code=refused.code))
    session = context.sessions.heard(request.broker_id, request.broker_epoch, context.now_ms)
    session.metadata_offset = request.current_metadata_offset
    now, wanted = state_of(broker), _next_state(context, request, broker, session)
    records = [] if now is wanted else _step(context, broker, wanted)
    if wanted is BrokerState.CONTROLLED_SHUTDOWN and now is not wanted:
        session.shutdown_offset = context.next_offset + len(records) - 1
    if wanted is BrokerState.SHUTDOWN_NOW and (now is not BrokerState.FENCED or broker.in_controlled_shutdown):
        # Its next process need not wait. That of a fenced broker waits for the end of the session, as Kafka has it.
        context.sessions.end(request.broker_id, context.now_ms)
    records += _directories(context, request, broker)
    answer = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.broker_epoch,
        is_fenced=wanted in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=wanted is BrokerState.SHUTDOWN_NOW,
    )
    return Decision(records, answer, is_atomic=False)


def _next_state(
    context: Context, request: BrokerHeartbeatRequest, broker: RegisterBrokerRecord, session: Session
) -> BrokerState:
    state = state_of(broker)
    if broker.fenced and broker.in_controlled_shutdown:
        return BrokerState.SHUTDOWN_NOW  # it was let go, and only a registration brings it back
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        cluster = context.state.cluster
        active = [number for number in cluster.brokers if cluster.is_active(number)]
        known = context.sessions.lowest_offset(active) >= (session.shutdown_offset or 0)
        return BrokerState.SHUTDOWN_NOW if known and not context.state.topics.leads(broker.broker_id) else state
    if request.want_shut_down:
        if state is BrokerState.UNFENCED and not request.want_fence and context.state.topics.leads(broker.broker_id):
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.SHUTDOWN_NOW
    if request.want_fence:
        return BrokerState.FENCED
    has_failed = not set(request.offline_log_dirs).isdisjoint(broker.log_dirs)  # it leads nothing there: noted first
    if state is BrokerState.FENCED and (has_failed or request.current_metadata_offset < broker.broker_epoch):
        return BrokerState.FENCED
    return BrokerState.UNFENCED


def _step(context: Context, broker: RegisterBrokerRecord, wanted: BrokerState) -> list[Message]:
    """Return the records of a change of state. Leaderships move in the same decision."""
    broker_id, epoch = broker.broker_id, broker.broker_epoch
    if wanted is BrokerState.UNFENCED:
        change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=UNFENCE)
        return [change, *come_back(context, broker_id)]
    if wanted is BrokerState.CONTROLLED_SHUTDOWN:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=BEGIN_SHUTDOWN
        )
        return [change, *leave(context, broker_id)]
    return fence(context, broker)


def fence(context: Context, broker: RegisterBrokerRecord) -> list[Message]:
    """Return the records that fence a broker: as in Kafka, also one that is fenced and leaves.

    The fence comes last: if only the first batches of so many records are written, the next controller does the rest.
    """
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=FENCE)
    return [*leave(context, broker.broker_id), change]


def _directories(context: Context, request: BrokerHeartbeatRequest, broker: RegisterBrokerRecord) -> list[Message]:
    """Return the records about log directories that have failed, or that want no new replicas."""
    records: list[Message] = []
    offline = set(request.offline_log_dirs) & set(broker.log_dirs)
    if offline:
        left = tuple(directory for directory in broker.log_dirs if directory not in offline)
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, log_dirs=left)
        )
        records += lose_directories(context, broker.broker_id, offline)
    cordoned = request.cordoned_log_dirs
    if (
        cordoned is not None
        and has_cordoned_directories(context.features.metadata_version)
        and (broker.cordoned_log_dirs is None or set(cordoned) != set(broker.cordoned_log_dirs))
    ):
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, cordoned_log_dirs=cordoned
            )
        )
    return records


def fence_the_silent(context: Context) -> Decision:
    """Fence the broker that has been silent longest, if that was too long; one at a time, as Kafka does."""
    sessions = context.sessions
    while (broker_id := sessions.ended(context.now_ms)) is not None:
        broker = context.state.cluster.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            return Decision(fence(context, broker), is_atomic=False)  # the next look sees it fenced
        sessions.forget(broker_id)
    return Decision()
