"""Arrow's types as Spark writes them, for the few that our tables have."""

from __future__ import annotations

from collections.abc import Iterable
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


def same_type(ours: Any, spark_type: Any) -> bool:
    """Whether a Spark type is that of our column."""
    return type_name(ours) == spark_type.simpleString()
