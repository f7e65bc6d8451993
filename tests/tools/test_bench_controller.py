"""The bench of the metadata controller, with ours alone and in a small size: that it measures, not what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.controller.state import ClusterState
from kraftlib.metadata import decode_record
from kraftlib.records.snapshot import SnapshotReader, StreamSource
from tools.bench_controller.__main__ import main
from tools.bench_controller.metadata import FIRST_BROKER, REPLICAS, write_checkpoint


def test_a_cluster_of_any_size_is_a_checkpoint_that_a_controller_can_load(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, partitions=250, brokers=4)
    state = ClusterState()
    with path.open("rb") as file, SnapshotReader(StreamSource(file)) as reader:
        for batch in reader.batches():
            for value in batch.values():
                state.replay(decode_record(value)[0])

    partitions = list(state.topics.partitions.values())
    assert (len(state.topics.topics), len(partitions)) == (3, 250)
    assert all(one.isr == one.replicas and len(set(one.replicas)) == REPLICAS for one in partitions)
    assert all(state.cluster.is_active(FIRST_BROKER + number) for number in range(4))
    assert state.features.unsupported() is None


def test_every_scene_measures_ours(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--brokers 4 --partitions 60 --fenced 20 --beating 4 --loaded 0,40 --failovers 1 --seconds 0.2 --rounds 1"
    assert main(["--without-kafka", *sizes.split(), "--output", "json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]

    assert {tuple(rows) for rows in figures.values()} == {("kraftlib",)}
    assert list(figures) == [
        "topics created, 1 callers",
        "topics created, 64 callers",
        "60 partitions created over 4 brokers",
        "a broker that leads 20 partitions is fenced",
        "heartbeats of 4 brokers",
        "a snapshot of 0 partitions is loaded",
        "a snapshot of 40 partitions is loaded",
        "failover with 40 partitions",
    ]


def test_a_scene_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--scenes", "create,nothing"])
    assert "no such scene: nothing" in capsys.readouterr().err
