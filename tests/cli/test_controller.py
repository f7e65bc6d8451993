"""`kraftlib controller`: formatted, run in a process, asked for its cluster, stopped, and started on another log."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.cli.conftest import Command
from tests.cli.processes import running
from tests.migration.tree import source, write_files
from tests.ports import free_port


def configuration(directory: Path) -> tuple[Path, str]:
    place = f"127.0.0.1:{free_port()}"
    path = directory / "controller.toml"
    path.write_text(f'node_id = 1\ndirectory = "data"\nlisten = "{place}"\nbootstrap_servers = ["{place}"]\n')
    return path, place


def test_a_controller_begins_a_cluster_shows_it_and_ends_when_told(kraftlib: Command, tmp_path: Path) -> None:
    path, place = configuration(tmp_path)
    made = kraftlib("controller", "format", "-c", path, "--standalone", "--cluster-id", "blue", "-r", "3.9")
    assert (made.status, made.err) == (0, "")
    with running("controller", "run", "-c", path) as process:
        assert place in process.line_with("brokers connect to")
        shown = kraftlib("controller", "status", "--bootstrap", place, "--output", "json")
        assert shown.status == 0
        picture = json.loads(shown.out)
        assert (picture["cluster_id"], picture["leader_id"], picture["brokers"]) == ("blue", 1, {})
        assert picture["features"] in ({}, {"metadata.version": 21})  # asked before or after its first records
        status, errors = process.end(signal.SIGTERM)
        assert (status, errors) == (0, "")


def test_the_directory_of_another_replica_is_not_taken(kraftlib: Command, tmp_path: Path) -> None:
    path, _ = configuration(tmp_path)
    made = kraftlib("format", "-c", path, "--standalone", "--cluster-id", "blue", "-r", "4.4")  # newer than we are
    assert made.status == 0
    refused = kraftlib("controller", "run", "-c", path)
    assert refused.status == 1
    assert "kraftlib controller format" in refused.err
    assert kraftlib("controller", "run", "-c", path, "--num-partitions", 0).err.count("num_partitions=0") == 1


def test_what_kafka_had_in_zookeeper_becomes_a_checkpoint(kraftlib: Command, tmp_path: Path) -> None:
    nodes = source(top="/kafka")
    write_files(nodes, tmp_path / "data")
    words = ("controller", "import-zookeeper", tmp_path / "data")
    found = kraftlib(*words, tmp_path / "new", "--path", "/kafka", "--output", "json")
    assert (found.status, found.err) == (0, "")
    told = json.loads(found.out)
    assert (told["cluster_id"], told["metadata_version"]) == ("dAeUCHuXTu2U-Y8PVOAJ2g", 21)
    assert told["records"]["TopicRecord"] == 2
    text = kraftlib(*words, tmp_path / "text", "--path", "/kafka")
    assert "2 TopicRecord" in text.out
    assert "brokers 1, 2, 3: no controller may have one of these ids" in text.out
    assert "name Kafka's chroot" in kraftlib(*words, tmp_path / "none").err
    assert kraftlib(*words, tmp_path / "none", "--path", "kafka").status == 2

    nodes.ephemeral_paths.add("/kafka/brokers/ids/1")
    write_files(nodes, tmp_path / "running")
    refused = kraftlib(*words[:2], tmp_path / "running", tmp_path / "none", "--path", "/kafka")
    assert refused.status == 1
    assert refused.err.startswith("kraftlib: brokers 1 still have sessions with ZooKeeper")
