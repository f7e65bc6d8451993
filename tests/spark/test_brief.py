"""What a user did wrong is told without the inner frames of kraftlib."""

from __future__ import annotations

import traceback

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kraftlib.errors import ConfigError
from kraftlib.spark.brief import brief
from kraftlib.spark.readers import reader_of
from kraftlib.spark.source import KraftDataSource


def test_a_wrong_option_and_a_missing_directory_are_told_in_one_frame() -> None:
    """Spark copies the traceback into the message that the user sees."""
    schema = StructType([StructField("offset", LongType())])
    missing = reader_of({"path": "/no/where"}, schema)
    for call in (KraftDataSource({"path": "/x", "colums": "offset"}).schema, missing.partitions):
        with pytest.raises(ConfigError) as caught:
            call()
        told = "".join(traceback.format_exception(caught.value))
        assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == ["called"]
        assert "direct cause" not in told
        assert "During handling" not in told


def test_any_other_error_keeps_its_traceback() -> None:
    @brief
    def fails() -> None:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours") as caught:
        fails()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fails"
