"""Labels come from the path first, and what cannot be told apart is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.analysis.files import find_files
from kraftlib.analysis.log_files import Labels
from kraftlib.errors import ConfigError
from tests.analysis.logs import values_batch, write_log
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"
CLUSTER = "KamCna3aR0Ca0-LOI6hKfg"


def test_labels_come_from_the_layout_before_the_directory_says_them(tmp_path: Path) -> None:
    place = tmp_path / "cluster=c%201" / "replica=2" / "other-topic-7"
    write_log(place, [values_batch([b"v"])])
    (file,) = find_files(tmp_path)
    assert file.labels == Labels(cluster="c 1", replica="2", topic="other-topic", partition=7)


def test_a_directory_below_the_label_of_another_cluster_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "cluster=other"
    write_log(place / "__cluster_metadata-0", [values_batch([b"v"])])
    (place / "meta.properties").write_bytes((NODE / "meta.properties").read_bytes())
    with pytest.raises(ConfigError, match=f"labelled cluster=other.*says {CLUSTER}: clusters are mixed"):
        find_files(tmp_path)


def test_two_directories_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_log(tmp_path / name / "__cluster_metadata-0", [values_batch([b"v"])])
    with pytest.raises(ConfigError, match=r"a/__cluster_metadata-0 and .*b/__cluster_metadata-0 hold the same log"):
        find_files(tmp_path)


def test_partitions_that_a_broker_has_put_aside_are_topics_of_their_own(tmp_path: Path) -> None:
    suffixes = ["", f".{1:032x}-delete", f".{2:032x}-delete", f".{3:032x}-future", f".{3:032x}-stray"]
    for suffix in suffixes:
        write_log(tmp_path / f"t-0{suffix}", [values_batch([b"v"])])
    (tmp_path / "meta.properties").write_bytes((NODE / "meta.properties").read_bytes())
    files = find_files(tmp_path)
    assert {file.labels for file in files} == {
        Labels(cluster=CLUSTER, replica="1", topic=f"t{suffix}", partition=0) for suffix in suffixes
    }
