"""Every change of a thing, in order, with the leader of its epoch."""

from __future__ import annotations

import json

import pytest

from kraftlib.analysis.history import HISTORY, history, leader_in
from kraftlib.errors import ConfigError
from kraftlib.metadata import decode_record
from kraftlib.types import uuid_text
from tests.captured import DATA, log_records

NODE = DATA / "kafka-4.3.1" / "n1"
LOG = NODE / "__cluster_metadata-0" / "00000000000000000000.log"


def test_a_topic_has_the_records_that_name_its_id() -> None:
    table = history(NODE, "topic:events-0")
    assert table.schema == HISTORY
    records = [(offset, decode_record(value)[0]) for offset, control, _, value in log_records(LOG) if not control]
    (topic_id,) = {r.topic_id for _, r in records if type(r).__name__ == "TopicRecord" and r.name == "events-0"}
    expected = [offset for offset, record in records if getattr(record, "topic_id", None) == topic_id]
    assert table["offset"].to_pylist() == expected
    assert table["previous_offset"].to_pylist() == [None, *expected[:-1]]
    types = [json.loads(row)["type"] for row in table["record"].to_pylist()]
    assert (types[0], types[-1]) == ("TopicRecord", "RemoveTopicRecord")
    assert history(NODE, f"topic:{uuid_text(topic_id)}")["offset"].to_pylist() == expected


def test_the_leader_is_the_one_that_opened_the_epoch() -> None:
    rows = history(NODE, "broker:10").to_pylist()
    leaders = {
        offset: int.from_bytes(value[2:6])
        for offset, control, key, value in log_records(LOG)
        if control and key[3] == 2
    }
    for row in rows:
        opened = max(offset for offset in leaders if offset < row["offset"])
        assert row["leader"] == leaders[opened]


def test_leaders_are_read_from_their_record() -> None:
    assert leader_in(bytes.fromhex("0000ffffffff0101")) == -1


def test_several_replicas_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="holds 2 logs; name the directory of the one that is meant: cluster="):
        history(DATA / "kafka-4.3.1", "broker:10")


@pytest.mark.parametrize(
    ("what", "message"),
    [("topic:event-0", "is about topic:event-0; did you mean topic:events-0"), ("broker:99", "is about broker:99$")],
)
def test_what_the_log_does_not_know_is_an_error_and_no_empty_life(what: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        history(DATA / "kafka-4.3.1" / "n1", what)
