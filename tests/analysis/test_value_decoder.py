"""A decoder of one's own gets the values of data records, all of them and nothing else, and is not believed blindly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kraftlib.analysis.reading import options_of, read_table, schema_for
from kraftlib.errors import ConfigError
from tests.analysis.logs import values_batch, write_log
from tests.captured import DATA

HERE = __name__


def sizes(values: Any) -> Any:
    """Return the size of each value, and whether it is a short one."""
    size = pc.binary_length(values)
    return pa.StructArray.from_arrays([size, pc.less(size, 10)], names=["size", "short"])


def in_pieces(values: Any) -> Any:
    return pa.chunked_array([sizes(values[:1]), sizes(values[1:])])


def fails(values: Any) -> Any:
    if len(values):
        raise LookupError("no such thing")
    return sizes(values)


def drops(values: Any) -> Any:
    return sizes(values)[1:]


def changes(values: Any) -> Any:
    return sizes(values) if not len(values) else pa.StructArray.from_arrays([values], names=["size"])


def no_struct(values: Any) -> Any:
    return pc.binary_length(values)


def no_array(values: Any) -> Any:
    return values.to_pylist()


NO_FUNCTION = 5


@pytest.mark.parametrize("decoder", ["sizes", "in_pieces"])
def test_each_data_record_has_what_the_decoder_made_of_it_and_control_records_have_nothing(decoder: str) -> None:
    path = DATA / "kafka-4.3.1" / "n1"
    table = read_table(path, include="all", columns="control,value,record", valueDecoder=f"{HERE}:{decoder}")

    assert table["control"].to_pylist().count(True) > 3
    for row in table.to_pylist():
        size = None if row["value"] is None else len(row["value"])
        assert row["record"] == (None if row["control"] else {"size": size, "short": size is not None and size < 10})


def test_the_column_is_there_without_being_named_and_has_the_type_of_the_decoder(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", [values_batch([b"v"])])
    schema = schema_for(options_of(tmp_path, valueDecoder=f"{HERE}:sizes"))
    assert schema.field("record").type == pa.struct([("size", pa.int32()), ("short", pa.bool_())])
    assert schema.names[-1] == "record"


@pytest.mark.parametrize(
    ("decoder", "complaint"),
    [
        ("fails", r"failed for .*t-0/0+\.log, offsets 0 to 1: LookupError: no such thing"),
        ("drops", r"returned 1 of type .* 2 of type"),
        ("changes", r"returned 2 of type struct<size: binary>"),
        ("no_struct", "returns int32, and a struct with fields is expected"),
        ("no_array", "returned a list for no values"),
        ("NO_FUNCTION", "is a int and no function"),
        ("missing", "is not found: .*importable on the driver and on every executor"),
    ],
)
def test_a_decoder_that_is_not_there_or_does_something_else_is_named(
    decoder: str, complaint: str, tmp_path: Path
) -> None:
    write_log(tmp_path / "t-0", [values_batch([b"v", b"w"])])
    with pytest.raises(ConfigError, match=f"valueDecoder={HERE}:{decoder} {complaint}"):
        read_table(tmp_path, valueDecoder=f"{HERE}:{decoder}")


def test_a_decoder_and_one_of_ours_are_not_asked_for_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        options_of(tmp_path, valueDecoder=f"{HERE}:sizes", decode="json")
    with pytest.raises(ConfigError, match=r"expected package\.module:function"):
        options_of(tmp_path, valueDecoder="os.system")
    with pytest.raises(ConfigError, match=r"no\.such\.module:x is not found"):
        schema_for(options_of(tmp_path, valueDecoder="no.such.module:x"))
    with pytest.raises(ConfigError, match="not for the view 'batches'"):
        options_of(tmp_path, valueDecoder=f"{HERE}:sizes", view="batches")
