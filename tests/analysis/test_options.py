"""Options are read, and whatever is misspelt is refused with the remedy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kraftlib.analysis.options import OPTION_NAMES, Bounds, Range, ReadOptions, parse_options, pin_text, to_millis
from kraftlib.errors import ConfigError


def test_nothing_said_is_the_defaults() -> None:
    assert parse_options({}) == ReadOptions()


def test_every_option_is_read_whatever_its_case() -> None:
    given = {
        "PATH": "/logs", "View": "batches", "columns": "a, b", "include": "ALL", "startOffset": "1", "endoffset": "9",
        "starttimestamp": "1970-01-01T00:00:01Z", "endTimestamp": "5000", "minEpoch": "2", "maxEpoch": "3",
        "mode": "permissive", "tail": "fail", "verifyCrc": "False", "contiguous": "false", "decode": "none",
        "maxInflatedBytes": "2m", "chunkBytes": "1 kb", "maxPartitionBytes": "1g", "parallelism": "4",
        "pin": '[["/logs/x",7]]', "pushdown": "Once", "LAYOUT": "{replica}/*",
    }  # fmt: skip
    # Not for the view batches, or not for a path that is no URI.
    others = {"paths", "about", "atoffset", "attimestamp", "valuedecoder", "storageoptions"}
    assert {name.lower() for name in given} | others == {name.lower() for name in OPTION_NAMES}
    assert parse_options(given) == ReadOptions(
        path="/logs",
        view="batches",
        columns=("a", "b"),
        include="all",
        bounds=Bounds(offset=Range(start=1, end=9), timestamp=Range(start=1000, end=5000), epoch=Range(start=2, end=4)),
        mode="PERMISSIVE",
        tail="fail",
        verify_crc=False,
        contiguous=False,
        max_inflated_bytes=2 << 20,
        chunk_bytes=1024,
        max_partition_bytes=1 << 30,
        parallelism=4,
        pin=(("/logs/x", 7),),
        pushdown=True,
        layout="{replica}/*",
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("endOfset", "1", "there is no option 'endOfset'; did you mean 'endOffset'?"),
        ("qqq", "1", "there is no option 'qqq'; known are: .*verifyCrc"),
        ("startOffset", "-1", "option startOffset='-1': expected a whole number"),
        ("startoffset", "9" * 19, "expected a whole number"),
        ("startTimestamp", "yesterday", "expected ms since 1970, or a time as"),
        ("chunkBytes", "8x", "expected a number of bytes"),
        ("chunkBytes", "0", "at least one byte"),
        ("maxInflatedBytes", "2g", "at most 1g"),
        ("verifyCrc", "yes", "one of true, false"),
        ("pushdown", "true", "later queries of the same DataFrame would lack rows"),
        ("pushdown", "on", "one of never, once"),
        ("decode", "TopicRecrod", "did you mean TopicRecord"),
        ("pin", "x", "what kraftlib.spark.pin gave"),
        ("pin", "[1]", "what kraftlib.spark.pin gave"),
        ("about", "broker", "expected KIND:NAME"),
        ("include", "logs", "one of log, snapshot, latest, all"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options({name: value})


def test_decoding_is_for_records() -> None:
    assert parse_options({"decode": "JSON"}).decode == "json"
    assert parse_options({"decode": "TopicRecord"}).decode == "TopicRecord"
    with pytest.raises(ConfigError, match="decode is for records, not for the view 'files'"):
        parse_options({"decode": "json", "view": "files"})
    with pytest.raises(ConfigError, match=r"atOffset is for topics or .* not for the view 'records'"):
        parse_options({"atOffset": "3"})


def test_pins_come_back() -> None:
    assert parse_options({"pin": pin_text([("/a b", 3), ("/ä", 0)])}).pin == (("/a b", 3), ("/ä", 0))


def test_moments_are_rounded_down_to_ms_in_utc() -> None:
    assert to_millis(datetime(1970, 1, 1, 0, 0, 1, 1999, tzinfo=UTC)) == 1001
    assert to_millis(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == -1
    assert to_millis(datetime(1970, 1, 1, 0, 0, 1)) == 1000  # as Spark hands over TIMESTAMP_NTZ
    assert to_millis(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0


def test_ranges_meet() -> None:
    assert Range(start=3) & Range(end=9) & Range(start=5, end=12) == Range(start=5, end=9)
    assert (Range(start=3) & Range(end=3)).is_empty
    assert not Range(start=3).is_empty
    assert not Range()
    assert Bounds(epoch=Range(start=2, end=1)).are_empty


def test_paths_are_a_list_as_load_gives_it() -> None:
    assert parse_options({"paths": '["/a"]'}).path == "/a"
    assert parse_options({"paths": '["/a", "/b"]'}).path == '["/a", "/b"]'
    with pytest.raises(ConfigError, match="give one of them"):
        parse_options({"path": "/a", "paths": '["/b"]'})
    with pytest.raises(ConfigError, match="expected a JSON list"):
        parse_options({"paths": "/a,/b"})


@pytest.mark.parametrize(
    ("dumped", "ours"),
    [("TOPIC_RECORD", "TopicRecord"), ("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", "RemoveUserScramCredentialRecord")],
)
def test_a_type_may_be_named_as_in_a_dump_of_kafkas(dumped: str, ours: str) -> None:
    assert parse_options({"decode": dumped}).decode == parse_options({"decode": ours}).decode == ours
