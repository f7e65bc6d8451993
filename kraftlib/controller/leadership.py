"""In-sync replicas and leaders when brokers come and go (KIP-631)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.partitions import Election, change
from kraftlib.metadata.topic_records import PartitionChangeRecord, PartitionRecord

UNCLEAN_ELECTION = "unclean.leader.election.enable"


def election_of(context: Context, partition: PartitionRecord) -> Election:
    """Return which elections the configuration of the topic allows by itself."""
    topic = context.state.topics.topics[partition.topic_id]
    allowed = context.topic_value(topic.name, UNCLEAN_ELECTION)
    return Election.UNCLEAN if allowed == "true" else Election.ONLINE


def leave(context: Context, broker_id: int) -> Iterator[Message]:
    """Yield the changes that take a broker out of every ISR and every leadership."""
    yield from without(context, broker_id, context.state.topics.in_sync_on(broker_id))


def lose_records(context: Context, broker_id: int) -> Iterator[Message]:
    """Yield the changes for a broker that has ended without a clean shutdown: it is not eligible any more (KIP-966)."""
    topics = context.state.topics
    yield from without(context, broker_id, topics.in_sync_on(broker_id), unclean=True)
    yield from without(context, broker_id, topics.eligible_on(broker_id), unclean=True)


def elect_unclean(context: Context) -> Iterator[Message]:
    """Yield the elections of partitions without a leader whose topics allow that records are lost."""
    rules = context.rules()
    for partition in context.state.topics.leaderless():
        if election_of(context, partition) is Election.UNCLEAN:
            record = change(partition, rules, election=Election.UNCLEAN)
            if record is not None:
                yield record


def without(
    context: Context, broker_id: int, partitions: Iterable[PartitionRecord], *, unclean: bool = False
) -> Iterator[PartitionChangeRecord]:
    """Yield the changes that take a broker out of the ISRs of these partitions."""
    rules = context.rules(leaving=broker_id)
    for partition in partitions:
        isr = [number for number in partition.isr if number != broker_id]
        allowed = election_of(context, partition)
        record = change(partition, rules, isr=isr, election=allowed, unclean=broker_id if unclean else None)
        if record is not None:
            yield record


def come_back(context: Context, broker_id: int) -> Iterator[Message]:
    """Yield the elections that a broker makes possible by being active again."""
    rules = context.rules(returning=broker_id)
    for partition in context.state.topics.leaderless():
        election = election_of(context, partition)
        able = (*partition.isr, *(partition.eligible_leader_replicas or ()), *(partition.last_known_elr or ()))
        # Others may be able to lead by now, too: those whose directory has come back.
        if election is Election.UNCLEAN or broker_id in partition.replicas or any(map(rules.is_acceptable, able)):
            record = change(partition, rules, election=election)
            if record is not None:
                yield record


def lose_directories(context: Context, broker_id: int, offline: Iterable[UUID]) -> Iterator[Message]:
    """Yield the changes after some log directories of a broker have failed (KIP-858)."""
    gone = set(offline)
    hit = [
        partition
        for partition in context.state.topics.in_sync_on(broker_id)
        if gone
        & {place for id_, place in zip(partition.replicas, partition.directories, strict=False) if id_ == broker_id}
    ]
    yield from without(context, broker_id, hit)


def prefer(context: Context) -> Iterator[Message]:
    """Yield the elections of preferred replicas that are in sync, active, and do not lead."""
    rules = context.rules()
    for partition in context.state.topics.unbalanced():
        record = change(partition, rules, election=Election.PREFERRED)
        if record is not None:
            yield record
