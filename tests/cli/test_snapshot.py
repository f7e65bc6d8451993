"""`kraftlib snapshot`: files are listed, verified and converted; there and back again is the same bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kraftlib.records.increment import IncrementWriter
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage import names
from kraftlib.types import OffsetAndEpoch
from tests.cli.conftest import Command
from tests.storage.replicas import controllers, make_replica, partition_of

BASE = OffsetAndEpoch(offset=10, epoch=1)
END = OffsetAndEpoch(offset=20, epoch=2)


def checkpoint(directory: Path, snapshot_id: OffsetAndEpoch, *values: bytes) -> Path:
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=snapshot_id.epoch, last_contained_log_timestamp=7, batch_bytes=32 * 1024)
    writer.append(values)
    writer.freeze()
    path = directory / names.checkpoint_name(snapshot_id)
    path.write_bytes(out)
    return path


def item(key: str, value: int) -> bytes:
    return json.dumps({"key": key, "value": value}).encode()


def test_snapshots_are_listed_with_what_they_say(kraftlib: Command, tmp_path: Path) -> None:
    partition = partition_of(make_replica(tmp_path, voters=controllers(1, 2)))
    (name,) = [path.name for path in partition.glob("*.checkpoint")]
    described = json.loads(kraftlib("snapshot", "list", tmp_path, "--output", "json").out)
    assert (Path(described["path"]).name, described["kind"]) == (name, "checkpoint")
    assert (described["kraft_version"], described["voters"]) == (1, [1, 2])
    assert kraftlib("snapshot", "list", partition).out.startswith(f"{name}: checkpoint, ")
    (partition / name).chmod(0o600)
    (partition / name).write_bytes(b"x")
    assert kraftlib("snapshot", "list", tmp_path).out.startswith(f"{name}: ")


def test_verify_reads_to_the_end(kraftlib: Command, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, BASE, b"a", b"b")
    result = kraftlib("snapshot", "verify", path)
    assert (result.status, result.out) == (0, f"{path}: whole, 2 records\n")
    path.write_bytes(path.read_bytes()[:-3])
    result = kraftlib("snapshot", "verify", path, "--output", "json")
    assert result.status == 1
    told = json.loads(result.out)
    assert (told["whole"], told["position"]) == (False, len(path.read_bytes()) - 72)


def test_to_lines_and_back_is_the_same_file(kraftlib: Command, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, BASE, "grün".encode(), b"\xff\x00", b"plain")
    lines = tmp_path / "state.jsonl"
    assert kraftlib("snapshot", "convert", path, lines).status == 0
    head, *records = map(json.loads, lines.read_text().splitlines())
    assert (head["end_offset"], head["epoch"], head["last_timestamp_ms"]) == (10, 1, 7)
    assert records == [{"value": "grün"}, {"base64": "/wA="}, {"value": "plain"}]
    again = tmp_path / "again"
    again.mkdir()
    assert kraftlib("snapshot", "convert", lines, again / path.name).status == 0
    assert (again / path.name).read_bytes() == path.read_bytes()


def test_a_chain_becomes_the_checkpoint_of_its_end(kraftlib: Command, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, BASE, item("a", 1), item("b", 2), item("c", 3))
    out = bytearray()
    writer = IncrementWriter(out.extend, base=BASE, epoch=END.epoch, last_contained_log_timestamp=7)
    writer.append([(b"a", None), (b"b", item("b", 20)), (b"d", item("d", 4))])
    writer.freeze()
    increment = tmp_path / names.increment_name(END)
    increment.write_bytes(out)
    assert "increment on 10@1" in kraftlib("snapshot", "list", tmp_path).out
    target = tmp_path / names.checkpoint_name(END)
    result = kraftlib("snapshot", "convert", path, increment, target, "--key", "key")
    assert (result.status, result.out) == (0, f"{target}: 3 records\n")
    merged = target.read_bytes()
    full = tmp_path / "full"
    full.mkdir()
    assert merged == checkpoint(full, END, item("b", 20), item("c", 3), item("d", 4)).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{base}"], "needs the files to convert"),
        (["{base}", "{base}"], "exists"),
        (["{base}", "{increment}", "{dir}/x.checkpoint", "--key", "key"], "is named"),
        (["{base}", "{increment}", "{dir}/state.jsonl"], "with --key"),
        (["{increment}", "{dir}/state.jsonl"], "name a checkpoint"),
        (["{lines}", "{dir}/x.checkpoint"], "becomes one checkpoint"),
        (["{lines}", "{dir}/00000000000000000011-0000000001.checkpoint"], "does not begin with the line"),
    ],
)
def test_what_cannot_be_converted_is_said(
    kraftlib: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = bytearray()
    writer = IncrementWriter(out.extend, base=BASE, epoch=END.epoch, last_contained_log_timestamp=7)
    writer.freeze()
    places = {
        "base": checkpoint(tmp_path, BASE, item("a", 1)),
        "increment": tmp_path / names.increment_name(END),
        "lines": tmp_path / "lines.jsonl",
        "dir": tmp_path,
    }
    places["increment"].write_bytes(out)
    places["lines"].write_text("{}\n")
    before = sorted(tmp_path.iterdir())
    result = kraftlib("snapshot", "convert", *(argument.format(**places) for argument in arguments))
    assert result.status in (1, 2)
    assert message in result.err
    left = sorted(path for path in tmp_path.iterdir() if path.suffix != ".jsonl")
    assert left == [path for path in before if path.suffix != ".jsonl"]


def test_lines_are_there_under_their_name_when_they_are_whole(kraftlib: Command, tmp_path: Path) -> None:
    """They have no footer: half of them would become a checkpoint that lacks the rest."""
    path = checkpoint(tmp_path, BASE, *(b"x" * 1_000 for _ in range(100)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert "within the batch" in kraftlib("snapshot", "convert", path, tmp_path / "state.jsonl").err
    assert list(tmp_path.iterdir()) == [path]

    path.write_bytes(data)
    assert kraftlib("snapshot", "convert", path, tmp_path / "state.jsonl").status == 0


def test_lines_replace_no_file_that_has_appeared_meanwhile(
    kraftlib: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target, sync = checkpoint(tmp_path, BASE, b"x"), tmp_path / "state.jsonl", os.fsync

    def appears(descriptor: int) -> None:
        target.write_text("another's")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", appears)
    result = kraftlib("snapshot", "convert", path, target)
    assert (result.status, "File exists" in result.err) == (1, True), result.err
    assert target.read_text() == "another's"
    assert sorted(tmp_path.iterdir()) == [path, target]


def test_lines_that_are_no_text_are_told(kraftlib: Command, tmp_path: Path) -> None:
    lines = tmp_path / "state.jsonl"
    head = {"end_offset": 10, "epoch": 1, "last_timestamp_ms": 7, "kraft_version": 0, "voters": None}
    good = json.dumps({"value": "x" * 10_000})
    lines.write_bytes(f"{json.dumps(head)}\n{good}\n".encode() + b'{"value": "\xff"}\n')
    result = kraftlib("snapshot", "convert", lines, tmp_path / names.checkpoint_name(BASE))
    assert result.status == 1
    assert result.err.startswith('kraftlib: the line b\'{"value": "\\xff"}\\n\' is no record: ')
