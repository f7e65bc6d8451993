"""The parts that the verbs of `kraftlib spark` share: options of the reader, the session, rows as text or JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterable
from typing import Any

from kraftlib.cli.usage import UsageError
from kraftlib.errors import ConfigError


def reader_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options given as NAME=VALUE."""
    given = {}
    for word in options.option:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--option {word}: expected NAME=VALUE, as tail=fail")
        given[name] = value
    return given


def session(options: argparse.Namespace) -> Any:
    """Return a session, or say what is missing."""
    try:
        from kraftlib.spark import session as open_session
    except ImportError as error:
        raise ConfigError(str(error)) from error
    return open_session(options.master, app_name=f"kraftlib {options.verb}")


def rows(frame: Any) -> Iterable[dict[str, Any]]:
    """Yield the rows of a DataFrame as plain values, as they come."""
    return (row.asDict(recursive=True) for row in frame.toLocalIterator())


def show(found: Iterable[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print rows: lines of JSON, or a table."""
    if options.output == "json":
        for row in found:
            print(json.dumps(row, default=text_of))
        return
    table = [{name: "" if value is None else text_of(value) for name, value in row.items()} for row in found]
    if not table:
        return
    widths = {name: max(len(name), *(len(row[name]) for row in table)) for name in table[0]}
    for line in (dict(zip(widths, widths, strict=True)), *table):
        sys.stdout.write("  ".join(line[name].ljust(width) for name, width in widths.items()).rstrip() + "\n")


def text_of(value: object) -> str:
    """Return a value for people, or for JSON where that has no form for it."""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value)
