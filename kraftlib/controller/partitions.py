"""Partitions: the fold of their records, and the one function by which in-sync replicas and leaders change.

It follows Kafka's PartitionChangeBuilder. Without eligible leader replicas the last in-sync replica stays in the ISR
when its broker goes, and the partition is offline until that broker is back. With them (KIP-966) an ISR may be empty.
Replicas that leave an ISR below min.insync.replicas are eligible: they have every committed record, since none is
committed there any more, and one of them may lead once the ISR is empty. A broker that has not ended cleanly may have
lost records, and is not eligible. If none is, the last leader is remembered, and leads again when it is back; that
election is unclean.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from kraftlib.controller.cluster import MIGRATING
from kraftlib.controller.versions import has_directories, shrinking_begins_leader_epoch
from kraftlib.metadata.image import LEADER_UNCHANGED
from kraftlib.metadata.topic_records import PartitionChangeRecord, PartitionRecord

NO_LEADER: Final = -1
RECOVERED, RECOVERING = 0, 1

Key = tuple[UUID, int]
"""Topic id and partition index."""


class Election(enum.Enum):
    """Which replica a partition would have as leader."""

    ONLINE = "online"
    """The present one, if it may lead, or else any that may."""
    PREFERRED = "preferred"
    """The first of its replicas, if it may lead."""
    UNCLEAN = "unclean"
    """Where no replica in sync may lead, one that is not in sync: records are lost (KIP-106)."""


def replayed(partition: PartitionRecord, change: PartitionChangeRecord) -> PartitionRecord:
    """Return the partition after a change: a named leader begins a leader epoch, every change a partition epoch."""
    is_led_anew = change.leader != LEADER_UNCHANGED
    recovery = change.leader_recovery_state
    elr, last = change.eligible_leader_replicas, change.last_known_elr
    return PartitionRecord(  # by hand: `attrs.evolve` takes three times as long
        unknown_tagged_fields=partition.unknown_tagged_fields,
        partition_id=partition.partition_id,
        topic_id=partition.topic_id,
        replicas=partition.replicas if change.replicas is None else change.replicas,
        isr=partition.isr if change.isr is None else change.isr,
        removing_replicas=partition.removing_replicas if change.removing_replicas is None else change.removing_replicas,
        adding_replicas=partition.adding_replicas if change.adding_replicas is None else change.adding_replicas,
        leader=change.leader if is_led_anew else partition.leader,
        leader_recovery_state=partition.leader_recovery_state if recovery == -1 else recovery,
        leader_epoch=partition.leader_epoch + is_led_anew,
        partition_epoch=partition.partition_epoch + 1,
        directories=partition.directories if change.directories is None else change.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas if elr is None else elr or None,
        last_known_elr=partition.last_known_elr if last is None else last or None,
    )


@attrs.frozen(kw_only=True)
class Rules:
    """The base of a change: the brokers that may lead, their directories, and the levels of features."""

    is_acceptable: Callable[[int], bool]
    metadata_version: int
    directory_of: Callable[[int], UUID]
    is_online: Callable[[int, UUID], bool]
    """Whether a broker has a directory."""
    min_in_sync: Callable[[PartitionRecord], int] | None = None
    """The size below which an ISR has eligible leader replicas beside it; None: there are none at all."""

    def may_lead(self, partition: PartitionRecord, broker_id: int) -> bool:
        """Whether a replica on this broker can be the leader: the broker is there, and so is the directory."""
        if not self.is_acceptable(broker_id):
            return False
        places = dict(zip(partition.replicas, partition.directories, strict=False))
        return broker_id not in places or self.is_online(broker_id, places[broker_id])


@attrs.frozen(kw_only=True)
class Target:
    """Replicas and in-sync replicas that a partition is to have, and the move between brokers that is under way."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    def completed(self) -> Target:
        """Return what becomes of a move: it ends once all new replicas are in sync (KIP-455)."""
        if not self.adding and not self.removing:
            return self
        replicas = tuple(id_ for id_ in self.replicas if id_ not in self.removing)
        isr = tuple(id_ for id_ in self.isr if id_ not in self.removing)
        # Where the replicas become fewer, the ones that stay must all be in sync: no new one vouches for the records.
        awaited = replicas if len(self.adding) < len(self.removing) else self.adding
        if not isr or not replicas or not set(isr) >= {*self.adding, *awaited}:
            return self
        return Target(replicas=replicas, isr=isr, adding=(), removing=())


def change(
    partition: PartitionRecord,
    rules: Rules,
    *,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    election: Election = Election.ONLINE,
    recovery_state: int | None = None,
    unclean: int | None = None,
    place: tuple[int, UUID] | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that gives a partition these in-sync replicas and replicas, and the leader that follows.

    `unclean` is a broker that has ended without a clean shutdown, and `place` the directory of one replica. None, if
    nothing would change.
    """
    target = Target(
        replicas=tuple(partition.replicas if replicas is None else replicas),
        isr=tuple(partition.isr if isr is None else isr),
        adding=tuple(partition.adding_replicas if adding is None else adding),
        removing=tuple(partition.removing_replicas if removing is None else removing),
    ).completed()
    eligible = _eligible(partition, target, rules, unclean)
    leader, is_unclean = _elect(partition, target, eligible, rules, election)
    changed: dict[str, Any] = {}
    if leader != partition.leader and leader in eligible:
        target = attrs.evolve(target, isr=(leader,))
        eligible = tuple(id_ for id_ in eligible if id_ != leader)
    if is_unclean:
        target, eligible = attrs.evolve(target, isr=(leader,)), ()
        if partition.leader_recovery_state != RECOVERING:
            changed["leader_recovery_state"] = RECOVERING
    elif recovery_state is not None and recovery_state != partition.leader_recovery_state:
        changed["leader_recovery_state"] = recovery_state
    shrinks = not set(target.isr) >= set(partition.isr)
    if leader != partition.leader or (shrinks and shrinking_begins_leader_epoch(rules.metadata_version)):
        changed["leader"] = leader
    if eligible != (partition.eligible_leader_replicas or ()):
        changed["eligible_leader_replicas"] = eligible
    if target.isr != partition.isr and (target.isr or rules.min_in_sync is not None):
        changed["isr"] = target.isr
    changed |= _assignment(partition, target, rules, place)
    if set(partition.replicas) - set(target.replicas):
        changed.setdefault("leader", leader)  # a replica that is gone must not fetch in this epoch any more
    if rules.min_in_sync is not None:
        changed |= _last_leader(partition, changed)
    if not changed:
        return None
    return PartitionChangeRecord(partition_id=partition.partition_id, topic_id=partition.topic_id, **changed)


def _assignment(
    partition: PartitionRecord, target: Target, rules: Rules, place: tuple[int, UUID] | None
) -> dict[str, Any]:
    """Return the fields that say on which brokers and in which directories the replicas are, as far as they change."""
    changed: dict[str, Any] = {}
    if target.replicas != partition.replicas:
        changed["replicas"] = target.replicas
    if (target.replicas != partition.replicas or place is not None) and has_directories(rules.metadata_version):
        present = partition.directories or (MIGRATING if place is not None else None,) * len(partition.replicas)
        old: dict[int, UUID | None] = dict(zip(partition.replicas, present, strict=False))
        old |= dict([place] if place is not None else [])
        places = tuple(old.get(id_) or rules.directory_of(id_) for id_ in target.replicas)
        changed |= {"directories": places} if places != partition.directories else {}
    if target.removing != partition.removing_replicas:
        changed["removing_replicas"] = target.removing
    if target.adding != partition.adding_replicas:
        changed["adding_replicas"] = target.adding
    return changed


def _eligible(partition: PartitionRecord, target: Target, rules: Rules, unclean: int | None) -> tuple[int, ...]:
    """Return who has every committed record beside the ISR: those that have left it since it fell below
    min.insync.replicas."""
    if rules.min_in_sync is None or len(target.isr) >= rules.min_in_sync(partition):
        return ()
    candidates = {*(partition.eligible_leader_replicas or ()), *partition.isr}
    return tuple(sorted(candidates - {*target.isr, unclean}))


def _last_leader(partition: PartitionRecord, changed: dict[str, Any]) -> dict[str, Any]:
    """Return the field that remembers the leader which a partition had last, as far as it changes."""
    known, leader = partition.last_known_elr or (), changed.get("leader", LEADER_UNCHANGED)
    if leader == NO_LEADER and not known:
        return {"last_known_elr": (partition.leader,)}
    return {"last_known_elr": ()} if leader >= 0 and known else {}


def _elect(
    partition: PartitionRecord, target: Target, eligible: Sequence[int], rules: Rules, election: Election
) -> tuple[int, bool]:
    """Return the leader, and whether its election is unclean."""

    def is_valid(broker_id: int) -> bool:
        return broker_id in (target.isr or eligible) and rules.may_lead(partition, broker_id)

    if election is Election.PREFERRED and target.replicas and is_valid(target.replicas[0]):
        return target.replicas[0], False
    if is_valid(partition.leader):
        return partition.leader, False
    for broker_id in target.replicas:
        if is_valid(broker_id):
            return broker_id, False
    last = partition.last_known_elr or ()
    is_last_hope = rules.min_in_sync is not None and not target.isr and not eligible and len(last) == 1
    if is_last_hope and rules.may_lead(partition, last[0]):
        return last[0], True
    if election is Election.UNCLEAN:
        for broker_id in target.replicas:
            if rules.may_lead(partition, broker_id):
                return broker_id, True
    return NO_LEADER, False
