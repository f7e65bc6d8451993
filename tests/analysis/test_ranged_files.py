"""Ranges of files are read alike, whatever reaches the file."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from kraftlib.analysis.files import find_files
from kraftlib.analysis.ranged_files import RangedFile
from kraftlib.errors import ConfigError
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"


def test_ranges_are_read_where_they_are_and_short_only_at_the_end() -> None:
    (file,) = find_files(NODE / "__cluster_metadata-0" / "00000000000000000000.log")
    data = Path(file.path).read_bytes()
    with RangedFile(file) as stream:
        assert stream.read_at(100, 50) == data[100:150]
        assert stream.read_at(len(data) - 3, 50) == data[-3:]
        assert stream.read_at(len(data), 50) == b""


def test_a_file_of_another_filesystem_is_read_the_same_way() -> None:
    (file,) = find_files(NODE / "__cluster_metadata-0" / "00000000000000000000.log")
    with RangedFile(attrs.evolve(file, root=f"file://{file.path}")) as stream:
        assert stream.read_at(100, 50) == Path(file.path).read_bytes()[100:150]


def test_a_place_that_pyarrow_cannot_read_is_named() -> None:
    with pytest.raises(ConfigError, match="'gopher://x/y' is no place that pyarrow can read"):
        find_files("gopher://x/y")
