"""Columns can be chosen; unknown ones are refused."""

from __future__ import annotations

import pytest

from kraftlib.analysis.schemas import ASKED_FOR, RECORDS, VIEWS, default_columns, schema_of
from kraftlib.errors import ConfigError


def test_what_costs_is_there_only_when_it_is_named() -> None:
    assert set(schema_of("records").names) == set(RECORDS.names) - ASKED_FOR
    assert schema_of("records", ["headers", "offset"]).names == ["headers", "offset"]
    assert default_columns("batches") == VIEWS["batches"].names


def test_every_column_may_be_null_since_spark_fails_on_a_null_where_none_is_foreseen() -> None:
    assert all(field.nullable for view in VIEWS.values() for field in view)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["ofset"], "the view 'records' has no column 'ofset'; did you mean 'offset'"),
        (["foo"], "the view 'records' has no column 'foo'. It has: cluster, "),
        ([], "names none"),
        (["offset", "offset"], "names one twice"),
        (["record"], "needs the option decode"),
    ],
)
def test_wrong_columns_are_refused(columns: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        schema_of("records", columns)


def test_decoding_adds_a_column_of_its_own_type() -> None:
    assert str(schema_of("records", decode="json").field("record").type) == "string"
    assert str(schema_of("records", ["record"], decode="RemoveTopicRecord").field("record").type) == (
        "struct<topicId: string>"
    )
