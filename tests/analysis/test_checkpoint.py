"""Checkpoints from tables: the bytes of the slow writer, bootable, whole, and never half."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.checkpoint import (
    VOTERS_RECORD,
    CheckpointOptions,
    parse_checkpoint_options,
    voters_text,
    write_table,
)
from kraftlib.analysis.checkpoint_rows import RowError
from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, KraftError, RecordTooLargeError, StorageError
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.runtime.listener import StateMachine
from kraftlib.storage.bootstrap import first_voters
from kraftlib.storage.directory import format_directory
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import OffsetAndEpoch, new_uuid, uuid_text
from tests.ports import free_port
from tests.storage.replicas import controllers


def options(path: Path, **given_: str) -> CheckpointOptions:
    return parse_checkpoint_options({"path": str(path), "endOffset": "42", "epoch": "7"} | given_)


def a_table(state: dict[bytes, bytes]) -> pa.Table:
    return pa.table({"key": pa.array(list(state), pa.binary()), "value": pa.array(list(state.values()), pa.binary())})


@settings(max_examples=30)
@given(state=st.dictionaries(st.binary(max_size=9), st.binary(min_size=1, max_size=400), max_size=40))
def test_what_is_written_is_what_the_slow_writer_makes_of_the_sorted_values(
    state: dict[bytes, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("checkpoint")
    written = write_table(a_table(state), options(directory, batchMaxBytes="1024", lastContainedLogTimestamp="5"))

    parts: list[bytes | memoryview] = []
    slow = SnapshotWriter(parts.append, epoch=7, last_contained_log_timestamp=5, batch_max_bytes=1_024)
    slow.append([state[key] for key in sorted(state)])
    slow.freeze()
    data = written.path.read_bytes()
    assert data == b"".join(parts)
    assert (written.records, written.size) == (len(state), len(data))
    assert written.sha256 == hashlib.sha256(data).hexdigest()
    assert [path.name for path in directory.iterdir()] == [f"{42:020d}-{7:010d}.checkpoint"]


def test_a_checkpoint_of_this_id_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    first = write_table(a_table({b"k": b"old"}), options(tmp_path))
    before = first.path.read_bytes()
    with pytest.raises(StorageError, match="a checkpoint never changes"):
        write_table(a_table({b"k": b"new"}), options(tmp_path))
    assert first.path.read_bytes() == before

    write_table(a_table({b"k": b"new"}), options(tmp_path), overwrite=True)

    with SnapshotReader(FileSnapshotSource(first.path)) as reader:
        assert [batch.values() for batch in reader.batches()] == [[b"new"]]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("state", [{b"k": b""}, {b"k": b"x" * 2_000}])
def test_a_failure_leaves_nothing_behind(state: dict[bytes, bytes], tmp_path: Path) -> None:
    with pytest.raises((RowError, RecordTooLargeError)):
        write_table(a_table({b"a": b"1", **state}), options(tmp_path, batchMaxBytes="1024"))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        ({"endOfset": "1"}, "unknown option 'endOfset', did you mean 'endOffset'"),
        ({"quux": "1"}, "unknown option 'quux'; known are path"),
        ({"endOffset": "-1"}, "endOffset='-1' must be a number"),
        ({"epoch": "x"}, "epoch='x' must be a number"),
        ({"batchMaxBytes": "9000000"}, "batchMaxBytes='9000000' must be a number from 1024 to 8388608"),
        ({"kraftVersion": "1"}, "without voters: a node that loads such a checkpoint"),
        ({"voters": f"1@127.0.0.1:9093:{uuid_text(new_uuid())}"}, "of kraftVersion=1 only"),
        ({"kraftVersion": "1", "voters": "1@127.0.0.1:9093"}, "is no initial controller"),
        ({"path": "s3://bucket/x"}, "where files can be renamed"),
        ({"path": ""}, "there is no path"),
    ],
)
def test_options_that_make_no_sense_are_named_with_the_remedy(
    given_: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_checkpoint_options({"path": str(tmp_path), "endOffset": "1", "epoch": "1"} | given_)


def test_the_directory_is_made(tmp_path: Path) -> None:
    assert write_table(a_table({b"k": b"v"}), options(tmp_path / "not" / "yet")).path.exists()


def test_voters_of_a_log_stay_as_they_are(tmp_path: Path) -> None:
    """A list of id, endpoint and directory would lose all listeners but one."""
    voters = first_voters(controllers(1, 2), listener_name="PLAINTEXT")
    parsed = options(tmp_path, kraftVersion="1", voters=voters_text(voters))
    assert parsed.voters == voters
    with pytest.raises(ConfigError, match="is no VotersRecord"):
        options(tmp_path, kraftVersion="1", voters=f"{VOTERS_RECORD}AAAA!")


def test_end_offset_and_epoch_have_no_default(tmp_path: Path) -> None:
    with pytest.raises(KraftError, match="a checkpoint needs the option endOffset: it stands for"):
        parse_checkpoint_options({"path": str(tmp_path), "epoch": "1"})


def test_names_of_options_have_no_case_since_spark_drops_it(tmp_path: Path) -> None:
    assert parse_checkpoint_options({"path": str(tmp_path), "endoffset": "42", "EPOCH": "7"}) == options(tmp_path)


class Remembering(StateMachine):
    """The values that it was restored from."""

    restored: tuple[Any, ...] = ()

    def restore(self, values: Any) -> None:
        self.restored = tuple(values)

    def apply(self, record: Any) -> None:
        """Nothing."""

    def snapshot(self) -> list[bytes]:
        return []


def test_a_node_boots_from_it(tmp_path: Path) -> None:
    """The voters and kraft.version come from the checkpoint alone: the node has nothing else."""
    directory_id = new_uuid()
    made = format_directory(
        tmp_path / "node", node_id=1, cluster_id="migrated", directory_id=directory_id, no_initial_controllers=True
    )
    voters = f"1@127.0.0.1:{free_port()}:{uuid_text(directory_id)}"
    written = write_table(
        a_table({b"%04d" % n: b"value %d" % n for n in range(500)}),
        options(made.partition, epoch="0", kraftVersion="1", voters=voters),
    )
    machine = Remembering()

    with RaftClient(RaftConfig(node_id=1, directory=tmp_path / "node"), state_machine=machine) as client:
        client.wait_for_leader(timeout_ms=10_000)
        client.append([b"goes on"], wait="applied")

        assert client.kraft_version() == 1
        assert client.latest_snapshot_id() == OffsetAndEpoch(offset=42, epoch=0)
        assert client.log_end_offset() > 42
    assert machine.restored == tuple(b"value %d" % n for n in range(500))
    assert written.records == 500
