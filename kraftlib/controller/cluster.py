"""Brokers and controllers: those that are registered, fenced, or shutting down (KIP-631, KIP-919)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.controller.journal import Journal, Table
from kraftlib.controller.results import RefusedError
from kraftlib.metadata.broker_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from kraftlib.wire.apis import ErrorCode

MIGRATING, UNASSIGNED, LOST = (UUID(int=number) for number in range(3))
"""The directory of a replica whose broker names none, has not chosen one yet, or has lost it (KIP-858)."""


class Cluster:
    """The registrations. A broker's is kept as the record that would register it as it is now."""

    def __init__(self, journal: Journal) -> None:
        self.brokers: Final[Table[int, RegisterBrokerRecord]] = Table(journal)
        self.controllers: Final[Table[int, RegisterControllerRecord]] = Table(journal)

    # --- the fold ----------------------------------------------------------------------------------------------------

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        """A broker is registered, for the first time or anew."""
        self.brokers.put(record.broker_id, record)

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        """A broker is gone for good."""
        self.brokers.remove(record.broker_id)

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Something about a broker has changed."""
        broker = self.brokers[record.broker_id]
        if record.fenced:
            broker = attrs.evolve(broker, fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = attrs.evolve(broker, in_controlled_shutdown=record.in_controlled_shutdown > 0)
        if record.log_dirs:
            broker = attrs.evolve(broker, log_dirs=record.log_dirs)
        if record.cordoned_log_dirs is not None:
            broker = attrs.evolve(broker, cordoned_log_dirs=record.cordoned_log_dirs)
        self.brokers.put(record.broker_id, broker)

    def replay_fence(self, record: FenceBrokerRecord) -> None:
        """A broker is fenced, in the old form."""
        self.brokers.put(record.id, attrs.evolve(self.brokers[record.id], fenced=True))

    def replay_unfence(self, record: UnfenceBrokerRecord) -> None:
        """A broker is active, in the old form."""
        self.brokers.put(record.id, attrs.evolve(self.brokers[record.id], fenced=False))

    def replay_controller(self, record: RegisterControllerRecord) -> None:
        """A controller has said who it is."""
        self.controllers.put(record.controller_id, record)

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        """A controller is gone for good."""
        self.controllers.remove(record.controller_id)

    def snapshot(
        self, brokers: Mapping[int, RegisterBrokerRecord], controllers: Mapping[int, RegisterControllerRecord]
    ) -> Iterator[Message]:
        """Yield the registrations."""
        yield from (brokers[number] for number in sorted(brokers))
        yield from (controllers[number] for number in sorted(controllers))

    # --- what is asked -----------------------------------------------------------------------------------------------

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead and be in sync: registered, not fenced, not about to shut down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def takers(self) -> dict[int, RegisterBrokerRecord]:
        """Return the brokers among which new replicas are placed: they do not shut down, and they have a log directory
        that is not cordoned (KIP-1066)."""
        return {
            number: broker
            for number, broker in self.brokers.items()
            if not broker.in_controlled_shutdown
            and not (broker.cordoned_log_dirs and set(broker.log_dirs) <= set(broker.cordoned_log_dirs))
        }

    def current(self, broker_id: int, broker_epoch: int) -> RegisterBrokerRecord:
        """Return the registration of a broker that names this epoch. Raises: RefusedError, if there is none."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise RefusedError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker {broker_id}")
        if broker.broker_epoch != broker_epoch:
            raise RefusedError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}",
            )
        return broker

    def default_directory(self, broker_id: int) -> UUID:
        """Return the log directory of a new replica: the only one of its broker, or none yet."""
        broker = self.brokers.get(broker_id)
        if broker is None or len(broker.log_dirs) > 1:
            return UNASSIGNED
        return broker.log_dirs[0] if broker.log_dirs else MIGRATING

    def is_online(self, broker_id: int, directory: UUID) -> bool:
        """Whether a broker has this directory, as far as is known."""
        broker = self.brokers.get(broker_id)
        if broker is None or directory == LOST:
            return False
        # A broker that registered before there were directories names none.
        return directory in (MIGRATING, UNASSIGNED) or not broker.log_dirs or directory in broker.log_dirs

    def owner_of(self, directories: Iterable[UUID], *, but: int) -> int | None:
        """Return a broker, other than `but`, that has registered one of these directories."""
        wanted = set(directories)
        return next(
            (number for number, broker in self.brokers.items() if number != but and wanted & set(broker.log_dirs)), None
        )
