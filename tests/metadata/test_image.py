"""What metadata records add up to: the logs of real clusters, and each rule by itself."""

from __future__ import annotations

import pytest

from kraftlib.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    decode_record,
)
from kraftlib.metadata.image import ClusterImage
from kraftlib.types import new_uuid
from tests.captured import DATA, log_records

TOPIC_ID = new_uuid()
TOPIC = TopicRecord(name="events", topic_id=TOPIC_ID)
PARTITION = PartitionRecord(
    partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=0, partition_epoch=0
)
BROKER = RegisterBrokerRecord(broker_id=1, incarnation_id=new_uuid(), broker_epoch=7)


def image(*records: object) -> ClusterImage:
    """Return what these records add up to."""
    state = ClusterImage()
    for record in records:
        state.apply(record)
    return state


@pytest.mark.parametrize("release", ["kafka-4.3.1", "kafka-3.9.2"])
def test_the_log_of_a_real_cluster_is_understood(release: str) -> None:
    for node in sorted((DATA / release).glob("n*/__cluster_metadata-0")):
        state = ClusterImage()
        checkpoint = sorted(node.glob("0*.checkpoint"))[-1]
        end_offset = int(checkpoint.name[:20])
        for path in [checkpoint, *sorted(node.glob("*.log"))]:
            for offset, is_control, _, value in log_records(path):
                if not is_control and (path == checkpoint or offset >= end_offset):
                    state.apply(decode_record(value)[0])

        assert state.faults == []
        picture = state.to_dict()
        assert picture["features"]["metadata.version"] >= 7
        assert set(picture["brokers"]) == {"10"}
        for topic in picture["topics"].values():
            assert all(partition["replicas"] == (10,) for partition in topic["partitions"].values())


def test_a_change_of_leader_begins_an_epoch_and_every_change_another() -> None:
    """Nothing in the record says so."""
    state = image(
        TOPIC,
        PARTITION,
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(2,)),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1),
    )
    partition = state.topics[TOPIC_ID].partitions[0]

    assert (partition.isr, partition.leader) == ((2,), -1)
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 2)
    assert partition.replicas == (1, 2)


def test_eligible_leader_replicas_come_with_changes_and_are_cleared_of_one_topic_or_of_all() -> None:
    """As a change: each partition that had some begins a partition epoch (KIP-966)."""
    eligible = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=(2,), eligible_leader_replicas=(1,), last_known_elr=(3,)
    )

    def shown(*records: object) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        one = image(TOPIC, PARTITION, *records).topics[TOPIC_ID].partitions[0]
        return one.eligible_leader_replicas, one.last_known_elr, one.partition_epoch

    assert shown(eligible) == ((1,), (3,), 1)
    for name in ("events", ""):
        clear = ClearElrRecord(topic_name=name)
        assert shown(clear) == ((), (), 0)
        assert shown(eligible, clear, clear) == ((), (), 2)
    assert "ClearElrRecord" in image(TOPIC, ClearElrRecord(topic_name="others")).faults[0]


def test_a_removed_topic_takes_its_configs_along() -> None:
    config = ConfigRecord(resource_type=2, resource_name="events", name="retention.ms", value="5")
    state = image(TOPIC, config, RemoveTopicRecord(topic_id=TOPIC_ID))

    assert (state.topics, state.configs) == ({}, {})


def test_a_config_without_a_value_is_gone() -> None:
    def config(value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=4, resource_name="", name="a", value=value)

    assert image(config("1")).configs == {"BROKER": {"a": "1"}}
    assert image(config("1"), config(None)).configs == {}


def test_a_feature_of_level_0_is_gone() -> None:
    feature = FeatureLevelRecord
    assert image(feature(name="a", feature_level=1), feature(name="a", feature_level=0)).features == {}


@pytest.mark.parametrize(
    ("change", "fenced"),
    [
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1), False),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1), True),
        (UnfenceBrokerRecord(id=1, epoch=7), False),
        (FenceBrokerRecord(id=1, epoch=7), True),
    ],
)
def test_brokers_begin_fenced_and_change(change: object, fenced: bool) -> None:
    broker = image(BROKER, change).brokers[1]

    assert (broker.fenced, broker.epoch) == (fenced, 7)
    assert image(BROKER, UnregisterBrokerRecord(broker_id=1, broker_epoch=7)).brokers == {}


def test_a_controller_comes_and_goes() -> None:
    come = RegisterControllerRecord(controller_id=3)
    assert list(image(come).controllers) == [3]
    assert image(come, UnregisterControllerRecord(controller_id=3)).controllers == {}


def test_a_transaction_takes_effect_as_a_whole_or_not_at_all() -> None:
    begin = BeginTransactionRecord(name="t")

    assert image(begin, TOPIC).topics == {}
    assert list(image(begin, TOPIC, EndTransactionRecord()).topics) == [TOPIC_ID]
    assert image(begin, TOPIC, AbortTransactionRecord(reason="r"), BROKER).to_dict()["topics"] == {}


def test_secrets_are_counted_and_not_shown() -> None:
    rule = AccessControlEntryRecord(
        id=TOPIC_ID, resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=2,
        permission_type=3,
    )  # fmt: skip
    assert image(rule).to_dict()["acls"] == 1
    assert image(rule, RemoveAccessControlEntryRecord(id=TOPIC_ID)).to_dict()["acls"] == 0


def test_what_does_not_fit_is_said_and_the_rest_goes_on() -> None:
    state = image(RemoveTopicRecord(topic_id=TOPIC_ID), BROKER)

    assert "RemoveTopicRecord of something that does not exist" in state.faults[0]
    assert list(state.brokers) == [1]


def test_of_many_faults_the_last_ones_are_kept() -> None:
    """A log whose records are those of another application has one for each."""
    found = ClusterImage()
    for number in range(1_000):
        found.add_fault(str(number))
    assert found.faults == [str(number) for number in range(900, 1_000)]
