"""Ids that Kafka's tools take."""

from __future__ import annotations

from kraftlib.types import parse_uuid, uuid_text
from tests.cli.conftest import Command


def test_what_is_printed_reads_back_and_is_never_taken_for_an_option(kraftlib: Command) -> None:
    for _ in range(50):
        result = kraftlib("random-uuid")
        text = result.out.removesuffix("\n")
        assert result.status == 0
        assert uuid_text(parse_uuid(text)) == text
        assert not text.startswith("-")
