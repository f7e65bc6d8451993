"""Where archives lie, whose they are, and that nobody else's is written into."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.archive.directory import MARKER, find_archives, open_archive
from kraftlib.errors import ConfigError, DirectoryInUseError, NotFormattedError, StorageError
from tests.archive.archives import an_archive


def test_an_archive_that_was_made_is_found_again(tmp_path: Path) -> None:
    made = an_archive(tmp_path / "root")

    assert an_archive(tmp_path / "root") == made
    assert find_archives(tmp_path / "root") == find_archives(made.path) == find_archives(made.path.parent) == [made]
    assert made.path == tmp_path / f"root/cluster=blue/replica={made.node_id}"


def test_a_cluster_id_of_any_characters_makes_one_directory(tmp_path: Path) -> None:
    made = an_archive(tmp_path, "../a/b =%")

    assert made.path.parent.parent == tmp_path
    assert an_archive(tmp_path, "../a/b =%") == made


def test_the_archive_of_another_cluster_is_refused_unless_it_is_a_fleet(tmp_path: Path) -> None:
    an_archive(tmp_path, "blue")
    with pytest.raises(ConfigError, match=r"cluster 'blue', and cluster 'red' is followed now.*--fleet"):
        open_archive(tmp_path, cluster_id="red")

    open_archive(tmp_path, cluster_id="red", fleet=True)

    assert [archive.cluster_id for archive in find_archives(tmp_path)] == ["blue", "red"]


def test_a_making_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    (an_archive(tmp_path).path / MARKER).unlink()

    assert find_archives(tmp_path) == []
    assert an_archive(tmp_path).partition.is_dir()


def test_an_archive_has_one_writer(tmp_path: Path) -> None:
    made = an_archive(tmp_path)
    lock = made.lock()
    with pytest.raises(DirectoryInUseError, match=r"is in use by"):
        made.lock()

    lock.release()
    made.lock().release()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "does not say whose"),
        ("[1]", "does not say whose"),
        ('{"version": 1}', "does not say whose"),
        ('{"version": 2, "cluster_id": "a", "node_id": 1}', "version 2, this release knows 1"),
        ('{"version": 1, "cluster_id": 5, "node_id": 1}', "names cluster 5"),
        ('{"version": 1, "cluster_id": "a", "node_id": true}', "replica True"),
    ],
)
def test_a_marker_that_makes_no_sense_is_an_error_that_names_it(text: str, complaint: str, tmp_path: Path) -> None:
    marker = an_archive(tmp_path).path / MARKER
    marker.write_text(text)

    with pytest.raises(StorageError, match=complaint) as caught:
        find_archives(tmp_path)
    assert caught.value.path == marker


def test_what_is_not_there_and_what_has_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFormattedError, match="archive follow"):
        find_archives(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="empty"):
        open_archive(tmp_path, cluster_id="")
