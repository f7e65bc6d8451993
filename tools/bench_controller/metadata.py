"""A cluster of many partitions, written as a checkpoint of its metadata log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.controller.bootstrap import controller_levels
from kraftlib.controller.configs import BROKER
from kraftlib.controller.features import SUPPORTED
from kraftlib.controller.topic_configs import MIN_IN_SYNC
from kraftlib.controller.versions import METADATA_VERSION, encoded
from kraftlib.metadata.broker_records import RegisterBrokerRecord
from kraftlib.metadata.config_records import ConfigRecord, FeatureLevelRecord
from kraftlib.metadata.topic_records import PartitionRecord, TopicRecord
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage.names import checkpoint_name
from kraftlib.types import OffsetAndEpoch

RELEASE: Final = "4.3"
EPOCH: Final = 1
"""Of the checkpoint."""
REPLICAS: Final = 3
PER_TOPIC: Final = 100
BATCH_BYTES: Final = 1 << 20
FIRST_BROKER: Final = 100
"""The id of the first simulated broker; controllers have smaller ones."""

_LISTENER: Final = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9)


def directory_of(broker_id: int) -> UUID:
    """Return the log directory of a simulated broker."""
    return UUID(int=(broker_id << 64) + 0xFFFF_0000)


def epoch_of(broker_id: int) -> int:
    """Return the epoch of a broker in the checkpoint."""
    return broker_id


def cluster(partitions: int, brokers: int) -> Iterator[Message]:
    """Yield the records of a cluster in which every broker serves, and every replica is in sync."""
    levels = controller_levels(RELEASE)
    for name in sorted(levels, key=lambda name: name != METADATA_VERSION):
        if levels[name]:
            yield FeatureLevelRecord(name=name, feature_level=levels[name])
    yield ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_IN_SYNC, value="1")
    ids = range(FIRST_BROKER, FIRST_BROKER + brokers)
    yield from (_broker(broker_id) for broker_id in ids)
    chance = random.Random(partitions)
    for first in range(0, partitions, PER_TOPIC):
        topic_id = UUID(int=chance.getrandbits(128))
        yield TopicRecord(name=f"loaded-{first // PER_TOPIC}", topic_id=topic_id)
        for number in range(min(PER_TOPIC, partitions - first)):
            replicas = tuple(chance.sample(ids, REPLICAS))
            yield PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(map(directory_of, replicas)),
            )


def _broker(broker_id: int) -> RegisterBrokerRecord:
    feature = RegisterBrokerRecord.BrokerFeature
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=(broker_id << 64) + 0xAAAA_0000),
        broker_epoch=epoch_of(broker_id),
        end_points=(_LISTENER,),
        features=tuple(
            feature(name=name, min_supported_version=range_.first, max_supported_version=range_.last)
            for name, range_ in SUPPORTED.items()
        ),
        fenced=False,
        log_dirs=(directory_of(broker_id),),
    )


def write_checkpoint(home: Path, *, partitions: int, brokers: int) -> Path:
    """Write the checkpoint of such a cluster into a directory; return its path."""
    home.mkdir(exist_ok=True)
    offset = 1_000 + 2 * partitions + brokers
    path = home / checkpoint_name(OffsetAndEpoch(epoch=EPOCH, offset=offset))
    level = controller_levels(RELEASE)[METADATA_VERSION]
    with path.open("wb") as file:
        writer = SnapshotWriter(file.write, epoch=EPOCH, last_contained_log_timestamp=1, batch_bytes=BATCH_BYTES)
        writer.append(encoded(record, level) for record in cluster(partitions, brokers))
        writer.freeze()
    return path
