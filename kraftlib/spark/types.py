"""Arrow's types as Spark writes them, for the few that our tables have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from kraftlib.errors import ConfigError

_NAMES: Final = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


def ddl_of(fields: Iterable[Any]) -> str:
    """Return an Arrow schema as Spark's DDL."""
    return ", ".join(f"`{field.name}` {type_name(field.type)}" for field in fields)


def type_name(kind: Any) -> str:
    """Return the name that Spark has for an Arrow type. Raises: ConfigError, if none of ours."""
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    if kind not in _NAMES:
        raise ConfigError(
            f"Spark gets no columns of type {kind} from here; cast it to one of {', '.join(map(str, _NAMES))}"
        )
    return _NAMES[kind]


_IN_JSON: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def struct_of(fields: Iterable[Any], metadata: Mapping[str, str]) -> Any:
    """Return an Arrow schema as a StructType, of which the first column bears `metadata`. Needs no JVM, unlike DDL."""
    from pyspark.sql.types import StructType

    found = _json_type(pa.struct(list(fields)))
    found["fields"][0]["metadata"] = dict(metadata)
    return StructType.fromJson(found)


def _json_type(kind: Any) -> Any:
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _json_type(kind.value_type), "containsNull": True}
    if pa.types.is_struct(kind):
        fields = [{"name": one.name, "type": _json_type(one.type), "nullable": True, "metadata": {}} for one in kind]
        return {"type": "struct", "fields": fields}
    name = type_name(kind)
    return _IN_JSON.get(name, name)


def same_type(ours: Any, spark_type: Any) -> bool:
    """Whether a Spark type is that of our column."""
    return type_name(ours) == spark_type.simpleString()
