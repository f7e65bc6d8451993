"""Indexes: what real Kafka wrote, and what happens to entries that lie."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from tests.cli.conftest import Command

DATA = Path(__file__).parents[1] / "data"
KAFKA = DATA / "kafka-4.3.1/n1/__cluster_metadata-0"
INDEXES = sorted(path for path in DATA.glob("kafka-*/**/*index") if path.suffix in (".index", ".timeindex"))
NAME = f"{0:020}"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A copy of a segment of Kafka with its indexes."""
    for suffix in ("log", "index", "timeindex"):
        shutil.copy(KAFKA / f"{NAME}.{suffix}", tmp_path)
    return tmp_path / f"{NAME}.log"


@pytest.mark.parametrize("path", INDEXES, ids=lambda path: str(path.relative_to(DATA)))
def test_the_indexes_of_kafka_fit_their_segments(path: Path, kraftlib: Command) -> None:
    result = kraftlib("dump-log", path)

    assert (result.status, result.err) == (0, "")
    entry_size = 8 if path.suffix == ".index" else 12
    assert len(result.out.splitlines()) == 1 + path.stat().st_size // entry_size


def test_entries_are_shown_as_kafka_shows_them(kraftlib: Command) -> None:
    assert "offset: 48 position: 4156\n" in kraftlib("dump-log", KAFKA / f"{NAME}.index").out
    assert "timestamp: 1795255761672 offset: 48\n" in kraftlib("dump-log", KAFKA / f"{NAME}.timeindex").out


def test_entries_in_json(kraftlib: Command) -> None:
    lines = kraftlib("dump-log", "--output", "json", KAFKA / f"{NAME}.index").out.splitlines()

    assert json.loads(lines[0]) == {"offset": 48, "position": 4156}


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_the_padding_of_an_index_in_use_is_not_shown(suffix: str, segment: Path, kraftlib: Command) -> None:
    path = segment.with_suffix(f".{suffix}")
    expected = kraftlib("dump-log", path).out
    with path.open("ab") as file:
        file.write(bytes(120))

    result = kraftlib("dump-log", path)
    assert (result.status, result.out) == (0, expected)


@pytest.mark.parametrize(
    ("suffix", "entry"), [("index", struct.pack(">ii", 57, 4156)), ("timeindex", struct.pack(">qi", 1795255761673, 48))]
)
def test_an_entry_that_the_segment_contradicts_is_named(
    suffix: str, entry: bytes, segment: Path, kraftlib: Command
) -> None:
    path = segment.with_suffix(f".{suffix}")
    path.write_bytes(entry)
    result = kraftlib("dump-log", path)

    assert result.status == 1
    assert f"{path}: " in result.err
    assert "the segment has " in result.err


def test_times_that_do_not_ascend_are_named(tmp_path: Path, kraftlib: Command) -> None:
    path = tmp_path / f"{NAME}.timeindex"
    path.write_bytes(struct.pack(">qiqi", 50, 1, 50, 2))
    result = kraftlib("dump-log", path)

    assert result.status == 1
    assert "is not above 50" in result.err


def test_an_index_without_entries_says_so(tmp_path: Path, kraftlib: Command) -> None:
    path = tmp_path / f"{NAME}.index"
    for data in (b"", bytes(800)):
        path.write_bytes(data)
        result = kraftlib("dump-log", path)
        assert (result.status, result.out) == (0, f"Dumping {path}\n{path} is empty.\n")


def test_a_cut_entry_is_named(tmp_path: Path, kraftlib: Command) -> None:
    path = tmp_path / f"{NAME}.index"
    path.write_bytes(bytes(13))
    result = kraftlib("dump-log", path)

    assert result.status == 1
    assert "13 bytes, which is no multiple of 8" in result.err
