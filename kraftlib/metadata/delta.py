"""The difference between one picture of the cluster and the next: this is what listeners are told.

A delta says what is different, and not which steps led there: a leader that moved and came back within it has moved in
its epoch only, and a topic that was created and deleted within it is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar
from uuid import UUID

import attrs

from kraftlib.metadata.published import NO_LEADER, MetadataImage, Partition, Topic

K = TypeVar("K")


@attrs.define
class Touched:
    """The things that records have changed, each in the order of its first change. The values mean nothing."""

    topics: dict[UUID, None] = attrs.field(factory=dict)
    brokers: dict[int, None] = attrs.field(factory=dict)
    configs: dict[str, None] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class LeaderChange:
    """A partition has another leader, or the same one in a new epoch."""

    topic: Topic
    partition: int
    previous_leader: int
    """-1: there was no leader, or the partition is new in its topic."""
    leader: int
    """-1: there is no leader."""
    leader_epoch: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MetadataDelta:
    """The difference between two pictures. An empty field has not changed.

    Partitions of created and deleted topics are not named again among `leaders_changed`.
    """

    before: MetadataImage
    after: MetadataImage
    topics_created: tuple[Topic, ...] = ()
    topics_deleted: tuple[Topic, ...] = ()
    leaders_changed: tuple[LeaderChange, ...] = ()
    brokers_registered: tuple[int, ...] = ()
    """Those that are new, and those that have registered anew, perhaps with other endpoints."""
    brokers_fenced: tuple[int, ...] = ()
    brokers_unfenced: tuple[int, ...] = ()
    """Those that serve now, and did not before."""
    brokers_gone: tuple[int, ...] = ()
    configs_changed: tuple[str, ...] = ()
    """The resources, as in `MetadataImage.configs`."""
    features_changed: tuple[str, ...] = ()


def difference(before: MetadataImage, after: MetadataImage, touched: Touched | None = None) -> MetadataDelta:
    """Compare two pictures, where `touched` says that they may differ; None: everywhere."""
    if touched is None:
        touched = Touched(
            topics=_keys(before.topics, after.topics),
            brokers=_keys(before.brokers, after.brokers),
            configs=_keys(before.configs, after.configs),
        )
    old_topics, new_topics, old, new = before.topics, after.topics, before.brokers, after.brokers
    kept = [one for one in touched.topics if one in old_topics and one in new_topics]
    serving_before = {one for one in touched.brokers if one in old and not old[one].fenced}
    serving = {one for one in touched.brokers if one in new and not new[one].fenced}
    return MetadataDelta(
        before=before,
        after=after,
        topics_created=tuple(new_topics[one] for one in touched.topics if one in new_topics and one not in old_topics),
        topics_deleted=tuple(old_topics[one] for one in touched.topics if one in old_topics and one not in new_topics),
        leaders_changed=tuple(change for one in kept for change in _led_anew(old_topics[one], new_topics[one])),
        brokers_registered=tuple(
            one for one in touched.brokers if one in new and (one not in old or new[one].epoch != old[one].epoch)
        ),
        brokers_fenced=tuple(one for one in touched.brokers if one in new and one in serving_before - serving),
        brokers_unfenced=tuple(one for one in touched.brokers if one in serving - serving_before),
        brokers_gone=tuple(one for one in touched.brokers if one in old and one not in new),
        configs_changed=tuple(one for one in touched.configs if before.configs.get(one) != after.configs.get(one)),
        features_changed=tuple(
            one for one in _keys(before.features, after.features) if before.features.get(one) != after.features.get(one)
        ),
    )


def _keys(*maps: Mapping[K, object]) -> dict[K, None]:
    return {key: None for each in maps for key in each}


def _led_anew(old: Topic, new: Topic) -> Iterator[LeaderChange]:
    for number, partition in _changed(old.partitions, new.partitions):
        was = old.partitions.get(number)
        if was is None or (was.leader, was.leader_epoch) != (partition.leader, partition.leader_epoch):
            yield LeaderChange(
                topic=new,
                partition=number,
                previous_leader=NO_LEADER if was is None else was.leader,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
            )


def _changed(old: Mapping[int, Partition], new: Mapping[int, Partition]) -> Iterable[tuple[int, Partition]]:
    """Return the partitions that are other objects now: unchanged ones are shared."""
    return [(number, partition) for number, partition in new.items() if old.get(number) is not partition]
