"""`observe`, of a quorum of ours whose log holds metadata records; real clusters are in tests/interop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlib.blocking import RaftClient
from kraftlib.cli import BROKEN_PIPE
from kraftlib.cli.observe import fitted, table
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataSerde,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint, new_uuid, uuid_text
from tests.cli.conftest import Command
from tests.ports import free_port

TOPIC_ID = new_uuid()
RECORDS: list[Any] = [
    FeatureLevelRecord(name="metadata.version", feature_level=21),
    RegisterBrokerRecord(
        broker_id=10,
        incarnation_id=new_uuid(),
        end_points=(RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="b10", port=9092),),
        rack="r1",
        fenced=False,
    ),
    TopicRecord(name="events", topic_id=TOPIC_ID),
    PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=(10,), isr=(10,), leader=10),
    ConfigRecord(resource_type=2, resource_name="events", name="retention.ms", value="5"),
]


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[RaftClient[Any]]:
    """A voter whose log is a small cluster's metadata."""
    place = Endpoint("127.0.0.1", free_port())
    format_directory(tmp_path / "voter", node_id=1, cluster_id="observed", static_voters=[1])
    config = RaftConfig(node_id=1, voters=(StaticVoter(1, place),), listen=place, directory=tmp_path / "voter")
    client: RaftClient[Any] = RaftClient(config, serde=MetadataSerde())
    with client:
        client.wait_for_leader(timeout_ms=10_000)
        client.append(RECORDS)
        yield client


def observe(quorum: RaftClient[Any], kraftlib: Command, *words: object) -> Any:
    """Run the command once and return what it says."""
    result = kraftlib("observe", "--bootstrap", quorum.endpoint, "--once", *words)
    assert result.status == 0, result.err
    return json.loads(result.out) if "json" in words else result.out


def test_once_as_json_is_the_cluster_as_it_is(quorum: RaftClient[Any], kraftlib: Command) -> None:
    picture = observe(quorum, kraftlib, "--output", "json")

    assert (picture["cluster_id"], picture["leader_id"], picture["offset"]) == ("observed", 1, 5)
    assert picture["brokers"]["10"]["endpoints"] == {"PLAINTEXT": "b10:9092"}
    assert picture["topics"]["events"]["id"] == uuid_text(TOPIC_ID)
    assert picture["topics"]["events"]["partitions"]["0"]["leader"] == 10
    assert picture["configs"] == {"TOPIC:events": {"retention.ms": "5"}}
    assert picture["faults"] == []


def test_once_as_a_table_is_for_people(quorum: RaftClient[Any], kraftlib: Command) -> None:
    lines = observe(quorum, kraftlib).splitlines()

    assert lines[0] == "cluster observed, controller 1 leads epoch 1, offset 5"
    assert lines[1] == "features  metadata.version=21"
    assert "10      active  PLAINTEXT://b10:9092  r1" in lines
    assert "events  1           1         1        0" in lines
    assert "TOPIC:events  retention.ms  5" in lines


def test_a_directory_is_made_on_first_use_and_goes_on_from_there(
    quorum: RaftClient[Any], kraftlib: Command, tmp_path: Path
) -> None:
    words = ["--output", "json", "--directory", tmp_path / "observer"]
    first = observe(quorum, kraftlib, *words)
    quorum.append([TopicRecord(name="more", topic_id=new_uuid())])
    second = observe(quorum, kraftlib, *words)

    assert list(first["topics"]) == ["events"]
    assert list(second["topics"]) == ["events", "more"]
    assert "cluster.id=observed" in (tmp_path / "observer" / "meta.properties").read_text()


def test_the_feed_has_a_line_for_each_record_and_follows_what_comes(quorum: RaftClient[Any]) -> None:
    command = [sys.executable, "-m", "kraftlib.cli", "observe", "--output", "json", "--bootstrap", str(quorum.endpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[dict[str, Any]] = []
        while not any(line.get("type") == "CONFIG_RECORD" for line in lines):
            lines.append(json.loads(process.stdout.readline()))
        quorum.append([TopicRecord(name="late", topic_id=TOPIC_ID)])
        while lines[-1].get("data", {}).get("name") != "late":
            lines.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0

    records = [line for line in lines if line["event"] == "record"]
    assert [line["offset"] for line in records] == [1, 2, 3, 4, 5, 6]
    assert [line["type"] for line in records[:2]] == ["FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD"]
    assert {line["event"] for line in lines} == {"leader", "control", "record"}
    assert next(line for line in lines if line["event"] == "leader")["leader_id"] in (None, 1)


@pytest.mark.parametrize("form", ["json", "table"])
def test_it_ends_when_nobody_reads_it_any_more(quorum: RaftClient[Any], form: str) -> None:
    """As with `| head`: the next thing that it has to tell finds nobody."""
    command = [sys.executable, "-m", "kraftlib.cli", "observe", "--output", form, "--bootstrap", str(quorum.endpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            quorum.append([TopicRecord(name="late", topic_id=TOPIC_ID)])
        assert process.wait(timeout=30) == BROKEN_PIPE
        assert process.stderr.read() == ""


def test_a_live_table_fits_into_the_window() -> None:
    text = "\n".join(f"line {number}" for number in range(30))

    assert fitted(text, 40) == text
    assert fitted(text, 10).splitlines() == [
        *(f"line {number}" for number in range(8)),
        "... and 22 lines more: a larger window or --once shows them",
    ]


def test_nobody_there_is_said(kraftlib: Command) -> None:
    result = kraftlib("observe", "--bootstrap", f"127.0.0.1:{free_port()}", "--timeout-ms", 300)

    assert result.status == 1
    assert "no leader found" in result.err


@pytest.mark.parametrize("words", [["--bootstrap", "nonsense"], ["--bootstrap", ","], []])
def test_bad_words_are_refused(words: list[str], kraftlib: Command) -> None:
    assert kraftlib("observe", *words).status in (1, 2)


def test_an_empty_cluster_is_a_short_table() -> None:
    picture = {"cluster_id": "c", "leader_id": None, "epoch": 0, "offset": -1, "features": {}, "voters": {}}
    empty: dict[str, Any] = {"brokers": {}, "topics": {}, "configs": {}, "faults": ["one", "two"]}

    assert table({**picture, **empty}).splitlines() == [
        "cluster c, nobody leads epoch 0, offset -1",
        "features  ",
        "not understood: one",
        "not understood: two",
    ]


def test_no_text_of_the_cluster_forges_a_line_or_steers_the_terminal() -> None:
    picture = {"cluster_id": "c", "leader_id": None, "epoch": 0, "offset": -1, "features": {}, "voters": {}}
    broker = {"fenced": False, "endpoints": {"L\nforged": "h:1"}, "rack": "r\x1b[2J\u202eé"}
    settings = {"broker 1": {"a\rb": "line\n10  active  forged"}}
    lines = table({**picture, "brokers": {"1": broker}, "topics": {}, "configs": settings, "faults": []}).split("\n")
    assert all(map(str.isprintable, lines))
    assert lines[4].split() == ["1", "active", "L\\nforged://h:1", "r\\x1b[2J\\u202eé"]
    assert lines[-1].split() == ["broker", "1", "a\\rb", "line\\n10", "active", "forged"]
