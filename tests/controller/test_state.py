"""The fold: real logs of Kafka against the other fold of this library, and back from its own snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.controller.state import ClusterState
from kraftlib.controller.versions import encoded
from kraftlib.errors import InvariantError
from kraftlib.metadata import (
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
)
from kraftlib.metadata.image import ClusterImage
from kraftlib.types import new_uuid
from tests.captured import DATA, RELEASES, log_records
from tests.controller.world import picture

LOGS = [
    pytest.param(path, id=f"{release}-{path.parent.parent.name}-{path.name}")
    for release in RELEASES
    for path in sorted((DATA / release).glob("n*/__cluster_metadata-0/0*.checkpoint"))
    + sorted((DATA / release).glob("n1/__cluster_metadata-0/0*.log"))
]


@pytest.mark.parametrize("path", LOGS)
def test_what_a_controller_of_kafka_wrote_is_folded_and_survives_our_snapshot(path: Any) -> None:
    state, image = ClusterState(), ClusterImage()
    for offset, is_control, _, value in log_records(path):
        if not is_control:
            record, _ = decode_record(value)
            state.replay(record, at=offset)
            image.apply(record)
    state.committed(1 << 40)
    level = state.features.metadata_version
    again, image_again = ClusterState(), ClusterImage()
    for record in state.freeze():
        read, _ = decode_record(encoded(record, level))
        again.replay(read)
        image_again.apply(read)

    assert image.faults == []
    assert {topic.name for topic in state.topics.topics.values()} == {one.name for one in image.topics.values()}
    assert {key: value.fenced for key, value in state.cluster.brokers.items()} == {
        key: value.fenced for key, value in image.brokers.items()
    }
    assert image_again.to_dict() == image.to_dict()
    assert picture(again) == picture(state)


def test_records_of_a_transaction_take_effect_at_its_end_and_stay_in_a_snapshot_before_it() -> None:
    topic = TopicRecord(name="a", topic_id=new_uuid())
    state = ClusterState()
    for record in (BeginTransactionRecord(), topic):
        state.replay(record)
    assert state.in_transaction
    assert state.topics.named("a") is None

    again = ClusterState()
    for one in [*state.freeze(), EndTransactionRecord()]:
        again.replay(one)
    assert again.topics.named("a") is not None


def test_a_record_that_does_not_fit_is_a_fault() -> None:
    with pytest.raises(KeyError):
        ClusterState().replay(RemoveTopicRecord(topic_id=new_uuid()))
    state = ClusterState()
    state.replay(BeginTransactionRecord())
    with pytest.raises(InvariantError):
        state.replay(BeginTransactionRecord())


def test_the_eligible_replicas_of_one_topic_are_voided_without_a_look_at_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request may change min.insync.replicas of ten thousand topics, and each replica does the work."""
    state = ClusterState()
    for name, topic_id in (ids := {name: new_uuid() for name in "ab"}).items():
        state.replay(TopicRecord(name=name, topic_id=topic_id))
        state.replay(PartitionRecord(partition_id=0, topic_id=topic_id, replicas=(1, 2), eligible_leader_replicas=(2,)))
    with monkeypatch.context() as patch:
        patch.setattr(state.topics.partitions, "items", lambda: pytest.fail("it looks at all partitions"))
        state.replay(ClearElrRecord(topic_name="a"))
    eligible = {name: state.topics.partitions[ids[name], 0].eligible_leader_replicas for name in ids}
    assert eligible == {"a": None, "b": (2,)}
    state.replay(ClearElrRecord(topic_name=""))
    assert state.topics.partitions[ids["b"], 0].eligible_leader_replicas is None
