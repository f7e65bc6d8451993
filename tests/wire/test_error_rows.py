from __future__ import annotations

from typing import Any

import pytest

from kraftlib.wire.apis import APIS, ApiKey, error_answer
from kraftlib.wire.error_rows import error_rows, has_error_row
from kraftlib.wire.frames import decode_response, encode_response
from kraftlib.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.declared_messages import any_message


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_request_has_an_answer_that_is_an_error_in_every_version(key: int) -> None:
    for version in APIS[key].versions:
        request: Any = any_message(APIS[key].request, version, 5)
        answer = error_answer(request, 41, version=version)
        frame = encode_response(answer, version=version, correlation_id=1)
        _, read = decode_response(frame, api_key=key, version=version)
        if error_rows(request, 41) is None:
            # Version 0 of ElectLeaders has no place for it at the top.
            assert getattr(answer, "error_code") == 41 * (key != ApiKey.ELECT_LEADERS or version > 0)  # noqa: B009
            assert not has_error_row(read, 41)
        else:
            lists = "topics topic_names resources creations filters entries deletions upsertions".split()
            asked = sum(len(getattr(request, name, ())) for name in lists)
            assert has_error_row(read, 41) is (asked > 0)
            assert not has_error_row(read, 42)


def test_three_answers_have_a_row_for_each_partition_beside_the_error_at_the_top() -> None:
    """Kafka's getErrorResponse of these; its clients look for their partitions first."""
    elections = ElectLeadersRequest.TopicPartitions(topic="a", partitions=(0, 2))
    elected: Any = error_answer(ElectLeadersRequest(topic_partitions=(elections,)), 31)
    ((topic, rows),) = [(one.topic, one.partition_result) for one in elected.replica_election_results]
    assert (elected.error_code, topic, [(one.partition_id, one.error_code) for one in rows]) == (
        31,
        "a",
        [(0, 31), (2, 31)],
    )
    move = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=7)
    moves = AlterPartitionReassignmentsRequest.ReassignableTopic(name="a", partitions=(move,))
    moved: Any = error_answer(AlterPartitionReassignmentsRequest(topics=(moves,)), 31)
    ((topic, (row,)),) = [(one.name, one.partitions) for one in moved.responses]
    assert (moved.error_code, topic, row.partition_index, row.error_code) == (31, "a", 7, 31)
    asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="a", partition_indexes=(7,))
    listed: Any = error_answer(ListPartitionReassignmentsRequest(topics=(asked,)), 31)
    ((topic, (line,)),) = [(one.name, one.partitions) for one in listed.topics]
    assert (listed.error_code, topic, line.partition_index, line.replicas) == (31, "a", 7, ())
    for everything in (ElectLeadersRequest(topic_partitions=None), ListPartitionReassignmentsRequest(topics=None)):
        assert getattr(error_answer(everything, 31), "error_code") == 31  # noqa: B009
