"""The fold of Kafka's metadata gives what Kafka's own controllers wrote into their snapshots, record by record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pyarrow as pa
import pytest

from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from kraftlib.analysis.compacting import folded
from kraftlib.analysis.metadata_state import (
    FoldError,
    MetadataReducer,
    key_of_value,
    metadata_state,
    plan_of,
    state_key,
)
from kraftlib.analysis.reading import read_table
from kraftlib.analysis.reports import report
from kraftlib.errors import ConfigError
from kraftlib.metadata import RECORDS, decode_record, encode_record
from kraftlib.metadata import broker_records as brokers
from kraftlib.metadata import config_records as configs
from kraftlib.metadata import log_records as logs
from kraftlib.metadata import security_records as security
from kraftlib.metadata import topic_records as topics
from kraftlib.metadata.image import ClusterImage
from tests.analysis.kafka_histories import a_history
from tests.analysis.logs import values_batch, write_log
from tests.captured import DATA

CHECKPOINTS = sorted(
    path
    for version in ("kafka-4.3.1", "kafka-3.9.2")
    for path in (DATA / version / "n1" / "__cluster_metadata-0").glob("*.checkpoint")
    if not path.name.startswith("00000000000000000000")
)
ONE, TWO = UUID(int=1), UUID(int=2)


def plain(value: bytes) -> tuple[Any, ...]:
    """Return a record for comparing; Kafka writes the features of a broker in the order of a hash table."""
    record, version = decode_record(value)
    if isinstance(record, brokers.RegisterBrokerRecord | brokers.RegisterControllerRecord):
        record = attrs.evolve(record, features=tuple(sorted(record.features, key=lambda one: one.name)))  # type: ignore[type-var]
    return type(record).__name__, version, encode_record(record, version)


@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: f"{path.parts[-4]}-{int(path.name[:20])}")
def test_the_fold_of_a_log_is_what_kafka_wrote_into_its_checkpoint_there(path: Path) -> None:
    ours = metadata_state(path.parent, include="log", endOffset=int(path.name[:20]))
    rows = read_table(path, columns="control,value").to_pylist()
    theirs = [row["value"] for row in rows if not row["control"]]

    assert sorted(map(plain, ours["value"].to_pylist())) == sorted(map(plain, theirs))
    assert len(theirs) > 30


def test_a_snapshot_and_the_log_behind_it_lead_to_the_same_as_the_whole_log() -> None:
    node = DATA / "kafka-4.3.1" / "n1"
    for end in (81, 100, 150, 272):
        assert metadata_state(node, endOffset=end) == metadata_state(node, include="log", endOffset=end)


def values(*records: Any) -> list[bytes]:
    return [encode_record(record, max(type(record).valid_versions)) for record in records]


def fold(*records: Any) -> dict[bytes, bytes]:
    rows = list(enumerate(values(*records)))
    plan = plan_of(rows)
    kept = [(at, value) for at, value in rows if not any(first <= at <= last for first, last in plan.void)]
    table = pa.table(
        {
            "position": pa.array([at for at, _ in kept], pa.int64()),
            "value": pa.array([value for _, value in kept], pa.binary()),
        }
    )
    state = folded(table, plan.reducer)
    return dict(zip(state["key"].to_pylist(), state["value"].to_pylist(), strict=True))


def image_of(state: list[bytes]) -> dict[str, Any]:
    image = ClusterImage()
    for value in state:
        image.apply(decode_record(value)[0])
    assert image.faults == []
    return image.to_dict()


@pytest.mark.parametrize("seed", range(25))
def test_records_in_the_order_of_their_keys_replay_to_the_image_of_the_history(seed: int) -> None:
    history = a_history(random.Random(seed), 200)

    assert image_of(list(fold(*history).values())) == image_of(values(*history))


def test_a_removed_topic_takes_its_partitions_and_its_configuration_along_and_no_others() -> None:
    config = configs.ConfigRecord(resource_type=2, resource_name="a", name="x", value="1")
    state = fold(
        topics.TopicRecord(name="a", topic_id=ONE),
        topics.PartitionRecord(topic_id=ONE, partition_id=0),
        topics.TopicRecord(name="ab", topic_id=TWO),
        topics.PartitionRecord(topic_id=TWO, partition_id=0),
        config,
        attrs.evolve(config, resource_name="ab"),
        attrs.evolve(config, resource_type=4),
        topics.RemoveTopicRecord(topic_id=ONE),
        topics.TopicRecord(name="a", topic_id=UUID(int=3)),
    )
    records = [decode_record(value)[0] for value in state.values()]
    assert {getattr(record, "topic_id", None) for record in records} == {None, TWO, UUID(int=3)}
    assert {(r.resource_type, r.resource_name) for r in records if isinstance(r, configs.ConfigRecord)} == {
        (2, "ab"),
        (4, "a"),
    }


def test_a_change_of_a_partition_keeps_what_it_does_not_name_and_takes_the_version_it_needs() -> None:
    rows = [
        encode_record(topics.TopicRecord(name="a", topic_id=ONE), 0),
        encode_record(
            topics.PartitionRecord(
                topic_id=ONE, partition_id=7, replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9
            ),
            0,
        ),
        encode_record(topics.PartitionChangeRecord(topic_id=ONE, partition_id=7, isr=(2,), leader=2), 0),
    ]
    state: dict[bytes, bytes] = {}
    reducer = MetadataReducer(names={ONE: "a"})
    for value in rows:
        reducer.fold(state, value)
    partition, version = decode_record(state[key_of_value(rows[1])])
    expected = topics.PartitionRecord(
        topic_id=ONE, partition_id=7, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=5, partition_epoch=10
    )
    assert (partition, version) == (expected, 0)

    change = topics.PartitionChangeRecord(topic_id=ONE, partition_id=7, eligible_leader_replicas=(1,))
    reducer.fold(state, encode_record(change, 2))
    partition, version = decode_record(state[key_of_value(rows[1])])
    assert (partition.eligible_leader_replicas, partition.isr, version) == ((1,), (2,), 2)  # type: ignore[attr-defined]


def test_a_transaction_that_was_aborted_or_never_ended_leaves_nothing() -> None:
    def feature(name: str) -> configs.FeatureLevelRecord:
        return configs.FeatureLevelRecord(name=name, feature_level=1)

    begin, end, abort = logs.BeginTransactionRecord(), logs.EndTransactionRecord(), logs.AbortTransactionRecord()
    state = fold(
        begin, feature("ended"), end, begin, feature("aborted"), abort, feature("after"), begin, feature("open")
    )
    assert [key[1:] for key in state] == [b"after", b"ended"]


def test_an_elr_that_is_void_for_all_topics_is_cleared_in_all() -> None:
    def topic(number: int) -> list[Any]:
        one = UUID(int=number)
        return [
            topics.TopicRecord(name=f"t{number}", topic_id=one),
            topics.PartitionRecord(topic_id=one, partition_id=0, eligible_leader_replicas=(number,)),
        ]

    for name, left in (("", []), ("t1", [(2,)])):
        state = fold(*topic(1), *topic(2), topics.ClearElrRecord(topic_name=name))
        records = [decode_record(value)[0] for value in state.values()]
        found = [r.eligible_leader_replicas for r in records if isinstance(r, topics.PartitionRecord)]
        assert [elr for elr in found if elr] == left


@pytest.mark.parametrize(
    "record",
    [
        topics.PartitionRecord(topic_id=TWO, partition_id=0),
        topics.PartitionChangeRecord(topic_id=ONE, partition_id=5),
        topics.RemoveTopicRecord(topic_id=TWO),
        brokers.FenceBrokerRecord(id=9),
        brokers.UnregisterBrokerRecord(broker_id=9),
        brokers.UnregisterControllerRecord(controller_id=9),
        security.RemoveAccessControlEntryRecord(id=ONE),
        security.RemoveDelegationTokenRecord(token_id="t"),
    ],
)
def test_a_record_about_what_does_not_exist_is_an_error(record: Any) -> None:
    with pytest.raises(FoldError, match=r"does not exist|never made"):
        fold(topics.TopicRecord(name="a", topic_id=ONE), record)


def test_a_record_of_an_unknown_type_is_an_error(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([b"\x01\x63\x00"])])
    with pytest.raises(Exception, match="unknown type 99"):
        metadata_state(tmp_path)


def test_a_state_cannot_be_told_of_several_replicas_or_of_a_log_that_begins_too_late(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="replica"):
        metadata_state(DATA / "kafka-4.3.1")
    write_log(tmp_path, [values_batch([b"\x01\x14\x00\x00"], base_offset=7)])
    with pytest.raises(ConfigError, match="begins at 7"):
        metadata_state(tmp_path)


def test_every_kind_of_record_has_a_place_in_the_fold() -> None:
    """A record that a newer Kafka adds must be thought about, and not be left out."""
    for cls in RECORDS.values():
        record = cls()
        reducer = MetadataReducer(names={UUID(int=0): ""})
        assert isinstance(reducer.group_of(encode_record(record, max(cls.valid_versions))), bytes)
        try:
            reducer.fold({}, encode_record(record, max(cls.valid_versions)))
        except FoldError as error:
            assert "does not exist" in str(error)  # noqa: PT017 - those that change something


def test_the_state_makes_a_checkpoint_that_tells_the_same_reports(tmp_path: Path) -> None:
    node = DATA / "kafka-4.3.1" / "n1"
    options = parse_checkpoint_options({"path": str(tmp_path), "endOffset": "150", "epoch": "1"})
    write_table(metadata_state(node, include="log", endOffset=150), options)
    for what in ("topics", "partitions", "brokers", "controllers", "configs", "features"):
        assert report(tmp_path, what) == report(node, what, at_offset=150)


def test_keys_tell_things_apart() -> None:
    quota = configs.ClientQuotaRecord
    part = quota.EntityData
    keys = {
        state_key(quota(entity=(part(entity_type="user", entity_name=name),), key="rate")) for name in (None, "", "a")
    }
    assert len(keys) == 3
