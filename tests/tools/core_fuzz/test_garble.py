"""A garbled message is one of its kind, with one or two other values in it."""

from __future__ import annotations

from random import Random
from typing import Any

from kraftlib.types import METADATA_TOPIC
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.fetch import FetchRequest
from tools.core_fuzz.garble import garbled
from tools.core_fuzz.made_up import question_about_the_quorum

TOPIC = FetchRequest.FetchTopic(topic=METADATA_TOPIC, partitions=(FetchRequest.FetchPartition(fetch_offset=7),))
FETCH = FetchRequest(cluster_id="fuzz", max_wait_ms=500, topics=(TOPIC,))


def many(message: Any) -> list[Any]:
    random = Random(1)
    return [garbled(random, message) for _ in range(500)]


def test_lists_become_empty_and_longer_at_every_depth() -> None:
    made: list[DescribeQuorumRequest] = many(question_about_the_quorum())

    assert {type(one) for one in made} == {DescribeQuorumRequest}
    assert {len(one.topics) for one in made} >= {0, 1, 2}
    assert {len(topic.partitions) for one in made for topic in one.topics} >= {0, 1, 2}


def test_numbers_texts_ids_and_tags_become_others() -> None:
    made: list[FetchRequest] = many(FETCH)
    partitions = [partition for one in made for topic in one.topics for partition in topic.partitions]

    assert {partition.fetch_offset for partition in partitions} >= {6, 7, 8}
    assert {one.cluster_id for one in made} >= {"", "another", "FUZZ", "fuzz"}
    assert len({partition.replica_directory_id for partition in partitions}) > 1
    assert {tag for one in made for tag, _ in one.unknown_tagged_fields} >= {10_001, 10_002}
    assert FETCH.topics == (TOPIC,)
