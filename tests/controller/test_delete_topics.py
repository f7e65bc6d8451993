from __future__ import annotations

import pytest

from kraftlib.types import ZERO_UUID, new_uuid
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from tests.controller.world import World, picture

STATE = DeleteTopicsRequest.DeleteTopicState


def test_a_topic_goes_with_its_partitions_and_configuration_by_name_or_id() -> None:
    world = World().with_brokers(1)
    before = picture(world.state)
    world.create("a", partitions=3, configs={"retention.ms": "5"})
    world.create("b.c")
    topic = world.state.topics.named("b.c")
    assert topic is not None
    answer = world.ask(DeleteTopicsRequest(topics=(STATE(name="a"), STATE(topic_id=topic.topic_id))))

    assert [(row.error_code, row.name) for row in answer.responses] == [(0, "a"), (0, "b.c")]
    assert picture(world.state) == before
    assert world.state.topics.in_sync_on(1) == []
    assert world.create("b_c").error_code == 0, "nothing is left to collide with"
    assert world.ask(DeleteTopicsRequest(topic_names=("b_c",)), version=5).responses[0].error_code == 0


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        ([STATE(name="nope")], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([STATE(topic_id=new_uuid())], [ErrorCode.UNKNOWN_TOPIC_ID]),
        ([STATE()], [ErrorCode.INVALID_REQUEST]),
        ([STATE(), STATE(name="a"), STATE()], [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]),
        ([STATE(name="a", topic_id=new_uuid())], [ErrorCode.INVALID_REQUEST]),
        ([STATE(name="a"), STATE(name="a")], [ErrorCode.INVALID_REQUEST]),
        ([STATE(name="nope"), STATE(name="a")], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]),
        ([STATE(name="a"), "its id"], [ErrorCode.INVALID_REQUEST]),
        ([STATE(name="a", topic_id=new_uuid()), "its id"], [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]),
        (["its id", "its id", STATE(name="a")], [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]),
    ],
)
def test_what_is_not_there_or_not_clear_is_not_deleted(asked: list[object], codes: list[ErrorCode]) -> None:
    world = World().with_brokers(1)
    topic_id = world.create("a").topic_id
    assert topic_id != ZERO_UUID
    states = tuple(one if isinstance(one, STATE) else STATE(topic_id=topic_id) for one in asked)
    answer = world.ask(DeleteTopicsRequest(topics=states))
    assert [row.error_code for row in answer.responses] == codes
    assert (world.state.topics.named("a") is None) is (ErrorCode.NONE in codes)
