"""Options of the tables `[tls]` and `[sasl]` from environment variables, for files that are the same on every host.

`KRAFTLIB_TLS_CERT` is `cert` of `[tls]`, `KRAFTLIB_SASL_PASSWORD_FILE` is `password_file` of `[sasl]`: the name of each
option in upper case, for all options but tables of users. Relative paths are below the working directory. An empty
variable counts as not set.

One rule says which value counts: the command line before the environment, and the environment before a file. What is
built in code (`RaftConfig(...)`, `RaftConfig.from_mapping`) does not look at the environment.
"""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError

PREFIX: Final = "KRAFTLIB_"
WORDS: Final = {"true": True, "false": False}


def table_from_environment(
    name: str, kind: type[Any], environment: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Return the options of the table `name`, of the attrs class `kind`, that the environment sets, as plain values.

    Raises: ConfigError that names the variable, for one of this table that is no option, and for values that are none.
    """
    environment = os.environ if environment is None else environment
    prefix = f"{PREFIX}{name.upper()}_"
    hints = typing.get_type_hints(kind)
    known = {prefix + field.upper(): (field, hints[field]) for field in attrs.fields_dict(kind)}
    known = {key: (field, hint) for key, (field, hint) in known.items() if typing.get_origin(hint) is not Mapping}
    found: dict[str, object] = {}
    for key in sorted(environment):
        if not key.startswith(prefix) or not environment[key]:
            continue
        if key not in known:
            raise ConfigError(f"{key} in the environment is no option of [{name}]: known are {', '.join(known)}")
        field, hint = known[key]
        found[field] = _value(key, environment[key], hint)
    return found


def names_set(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Return the names of the variables behind these options, for people."""
    return ", ".join(f"{PREFIX}{name.upper()}_{option.upper()}" for name, table in tables.items() for option in table)


def _value(key: str, text: str, hint: object) -> object:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if Path in kinds:
        return Path(text).absolute()
    if bool in kinds:
        if text.lower() not in WORDS:
            raise ConfigError(f"{key}={text!r} in the environment must be true or false")
        return WORDS[text.lower()]
    return text
