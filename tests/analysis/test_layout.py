"""Directories are named after what a layout says, and stores are reached as options say; both are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.analysis.layout import checked_layout, labels_in, with_storage_options
from kraftlib.analysis.reading import options_of, read_table
from kraftlib.errors import ConfigError
from tests.analysis.logs import values_batch, write_log


def test_replicas_in_directories_of_any_name_are_told_apart(tmp_path: Path) -> None:
    for host in ("east-1", "west-2"):
        write_log(tmp_path / "backup" / "shop" / f"host_{host}" / "log" / "events-7", [values_batch([b"v"])])
    with pytest.raises(ConfigError, match="nothing tells their rows apart"):
        read_table(tmp_path)

    table = read_table(tmp_path, layout="{cluster}/host_{replica}/*/{topic}-{partition}")

    found = table.select(["cluster", "replica", "topic", "partition"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        ("shop", "east-1", "events", 7),
        ("shop", "west-2", "events", 7),
    ]


def test_what_a_layout_does_not_name_is_found_as_without_it(tmp_path: Path) -> None:
    write_log(tmp_path / "cluster=c" / "n5" / "events-7", [values_batch([b"v"])])
    (row,) = (
        read_table(tmp_path, layout="n{replica}/*").select(["cluster", "replica", "topic", "partition"]).to_pylist()
    )
    assert row == {"cluster": "c", "replica": "5", "topic": "events", "partition": 7}


def test_a_directory_that_is_laid_out_otherwise_is_an_error(tmp_path: Path) -> None:
    write_log(tmp_path / "n5" / "events-7", [values_batch([b"v"])])
    write_log(tmp_path / "elsewhere" / "events-7", [values_batch([b"v"])])
    with pytest.raises(ConfigError, match=r"elsewhere/events-7 is not laid out as 'n\{replica\}/"):
        read_table(tmp_path, layout="n{replica}/{topic}-{partition}")


@pytest.mark.parametrize(
    ("layout", "complaint"),
    [
        ("{clustr}/{replica}", "{clustr} is none of {cluster}, {replica}, {topic}, {partition}"),
        ("{replica}/{replica}", "each name at most once"),
        ("data", "one at least"),
        ("{replica}/{", "every { to have its }"),
    ],
)
def test_a_layout_that_makes_no_sense_is_named(layout: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("{", r"\{")):
        options_of(tmp_path, layout=layout)


def test_parts_of_a_layout_are_no_patterns() -> None:
    assert labels_in("/a.b/x", checked_layout("a.b/{replica}/")) == {"replica": "x"}
    with pytest.raises(ConfigError):
        labels_in("/aXb/x", checked_layout("a.b/{replica}"))


def test_options_of_a_store_become_part_of_its_uri() -> None:
    asked = options_of(
        "s3://bucket/logs?region=nowhere", storageOptions={"endpoint_override": "a:9000", "anonymous": True}
    )
    assert asked.path == "s3://bucket/logs?region=nowhere&endpoint_override=a%3A9000&anonymous=true"


@pytest.mark.parametrize(
    ("path", "options", "complaint"),
    [
        ("/data", '{"region": "x"}', "are for a URI"),
        ("file:/data", '{"region": "x"}', "are for a URI"),
        ("s3://b", '{"access_key": "x"}', "credentials come from the environment"),
        ("s3://b", '{"session_token": "x"}', "credentials come from the environment"),
        ("s3://b?region=y", '{"region": "x"}', "say it once"),
        ("s3://b", '["region"]', "expected JSON of names and values"),
        ("s3://b", "{", "expected JSON of names and values"),
    ],
)
def test_options_of_a_store_that_make_no_sense_are_refused(path: str, options: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        options_of(path, storageOptions=options)


def test_a_secret_is_not_repeated_by_the_error() -> None:
    with pytest.raises(ConfigError) as raised:
        with_storage_options("s3://b", {"secret_key": "hunter2"})
    assert "hunter2" not in str(raised.value)
