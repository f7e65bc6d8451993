"""Values decoded by a function of yours: the option `valueDecoder=package.module:function`.

    def decode(values: pa.Array) -> pa.StructArray: ...

It gets the values of data records as an Arrow array of bytes, nulls included, and returns a struct for each: null for a
value that it cannot read. It is asked for no values at first, and the type that it returns then is that of the column
`record`. It runs where rows are read, so executors must be able to import it; control records never reach it.

That the name comes from an option makes an import of a computed name: a user who sets the options of a reader runs code
of their own anyway. No file, and nothing that is read, has a say in it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from kraftlib.errors import ConfigError


def decoder_name(text: str) -> str:
    """Return the name of a function. Raises: ValueError, if it is none."""
    name = text.strip()
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
        raise ValueError("expected package.module:function")
    return name


@lru_cache(maxsize=32)
def decoded_type(name: str) -> Any:
    """Return the Arrow type that a decoder gives. Raises: ConfigError, if it is not found, or makes no structs."""
    kind = _called(name, pa.array([], pa.binary()), "no values, to learn its type").type
    if not pa.types.is_struct(kind) or not kind.num_fields:
        raise ConfigError(f"valueDecoder={name} returns {kind}, and a struct with fields is expected")
    return kind


def decoded_by(name: str, values: Any, *, where: str) -> Any:
    """Return the structs that a decoder makes of values, one each. `where` they are is for errors.

    Raises: ConfigError, if it fails, or returns something else than it did for no values.
    """
    made = _called(name, values, where)
    if len(made) != len(values) or made.type != decoded_type(name):
        raise ConfigError(
            f"valueDecoder={name} returned {len(made)} of type {made.type} for {where}: {len(values)} of type"
            f" {decoded_type(name)} are expected, as it returns for no values"
        )
    return made


def _called(name: str, values: Any, where: str) -> Any:
    decode = _function(name)
    try:
        made = decode(values)
    except Exception as error:
        raise ConfigError(f"valueDecoder={name} failed for {where}: {type(error).__name__}: {error}") from error
    if isinstance(made, pa.ChunkedArray):
        made = made.combine_chunks()
    if not isinstance(made, pa.Array):
        raise ConfigError(f"valueDecoder={name} returned a {type(made).__name__} for {where}, and no Arrow array")
    return made


@lru_cache(maxsize=32)
def _function(name: str) -> Callable[[Any], Any]:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"valueDecoder={name} is not found: {error}; it must be importable on the driver and on every executor"
        ) from error
    if not callable(found):
        raise ConfigError(f"valueDecoder={name} is a {type(found).__name__} and no function")
    return found
