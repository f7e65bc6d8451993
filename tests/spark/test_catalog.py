"""Tables in Spark's catalog, and several paths in one table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from kraftlib import spark as kraft
from kraftlib.analysis.schemas import VIEWS
from kraftlib.spark.catalog import metadata_of, options_in, without_properties
from kraftlib.spark.types import ddl_of, struct_of
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"


@pytest.fixture
def catalog(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A database of this test's own, whose tables go with it."""
    kraft.register(spark)
    spark.sql(f"CREATE DATABASE kraft_tests LOCATION '{tmp_path}'")
    yield spark
    spark.sql("DROP DATABASE kraft_tests CASCADE")


def test_of_the_properties_of_a_table_only_its_options_are_options() -> None:
    given = {
        "owner": "me",
        "provider": "kraft",
        "a": "b",
        "location": "file:/a",
        "option.view": "files",
        "view": "files",
    }
    assert without_properties(given) == ({"view": "files", "path": "file:/a"}, True)
    assert without_properties({"path": "/a", "owner": "typo"}) == ({"path": "/a", "owner": "typo"}, False)
    assert without_properties({"provider": "kraft"}) == ({}, True)


@pytest.mark.parametrize("view", VIEWS)
def test_the_columns_of_a_table_bear_its_options_and_are_those_of_the_view(view: str) -> None:
    struct = struct_of(VIEWS[view], metadata_of({"path": "/a", "view": view}))
    assert options_in(struct) == {"path": "/a", "view": view}
    wanted = [part.split("` ", 1)[1] for part in ddl_of(VIEWS[view]).split(", `")]
    assert [field.dataType.simpleString() for field in struct.fields] == wanted
    assert options_in(type(struct).fromJson(json.loads(struct.json()))) == {"path": "/a", "view": view}


def test_a_table_of_the_catalog_is_read_again_and_again_with_its_options(catalog: Any) -> None:
    """Spark gives the reader of such a table no option at all."""
    catalog.sql(f"CREATE TABLE kraft_tests.log USING kraft OPTIONS (path '{NODE}', view 'batches') COMMENT 'c'")
    catalog.sql("CREATE VIEW kraft_tests.first AS SELECT * FROM kraft_tests.log WHERE epoch = 1")
    twin = kraft.read(catalog, NODE, view="batches")
    assert catalog.table("kraft_tests.log").count() == twin.count()
    assert catalog.sql("SELECT * FROM kraft_tests.first").count() == twin.where("epoch = 1").count()
    assert catalog.newSession().read.option("minEpoch", "2").table("kraft_tests.log").count() == (
        twin.where("epoch > 1").count()
    )


def test_a_table_that_cannot_keep_its_path_says_so(catalog: Any) -> None:
    catalog.sql(f"CREATE TABLE kraft_tests.columns (offset BIGINT) USING kraft OPTIONS (path '{NODE}')")
    with pytest.raises(AnalysisException, match="a table that was created with a list of columns has none"):
        catalog.table("kraft_tests.columns").count()
    with pytest.raises(AnalysisException, match="did you mean 'view'"):
        catalog.sql(f"CREATE TABLE kraft_tests.typo USING kraft OPTIONS (path '{NODE}', veiw 'files')")


def test_several_paths_are_one_table(spark: Any) -> None:
    kraft.register(spark)
    frame = spark.read.format("kraft").load([str(NODE), str(NODE.parent / "n4")])
    assert {tuple(row) for row in frame.groupBy("replica").count().collect()} == {("1", 275), ("4", 115)}
