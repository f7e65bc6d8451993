"""Rows as text and as JSON, and the options of the reader."""

from __future__ import annotations

import argparse
import datetime
import json

import pytest

from kraftlib.cli.spark_rows import reader_options, show
from kraftlib.cli.usage import UsageError

ROWS = [
    {"offset": 7, "key": b"\x01\xff", "at": datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)},
    {"offset": 1_000, "key": None, "at": None},
]


@pytest.mark.parametrize(
    ("rows", "text"), [(ROWS, ("offset  key   at\n7       01ff  2026-11-21T00:00:00+00:00\n1000\n")), ([], "")]
)
def test_rows_are_a_table(rows: list[dict[str, object]], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(rows, argparse.Namespace(output="text"))
    assert capsys.readouterr().out == text


def test_rows_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, argparse.Namespace(output="json"))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"offset": 7, "key": "01ff", "at": "2026-11-21T00:00:00+00:00"},
        {"offset": 1_000, "key": None, "at": None},
    ]


def test_an_option_of_the_reader_is_a_name_and_a_value() -> None:
    assert reader_options(argparse.Namespace(option=["tail=fail", "include=a=b"])) == {"tail": "fail", "include": "a=b"}
    with pytest.raises(UsageError, match="expected NAME=VALUE"):
        reader_options(argparse.Namespace(option=["tail"]))
