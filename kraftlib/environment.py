"""Options of the tables `[tls]` and `[sasl]` from environment variables, for files that are the same on every host.

`KRAFTLIB_TLS_CERT` is `cert` of `[tls]`, `KRAFTLIB_SASL_PASSWORD_FILE` is `password_file` of `[sasl]`: the name of each
option in upper case, for all options but tables of users. Relative paths are below the working directory. An empty
variable is an error: a template whose values are missing would take TLS away. So is one that is named like another
option of `RaftConfig`, which has no effect; other variables with this prefix are warned of.

One rule says which value counts: the command line before the environment, and the environment before a file. A
configuration built in code (`RaftConfig(...)`, `RaftConfig.from_mapping`) does not look at the environment.
"""

from __future__ import annotations

import logging
import os
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.form import PURE

logger = logging.getLogger(__name__)

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
        if not key.startswith(prefix):
            continue
        if key not in known:
            raise ConfigError(f"{key} in the environment is no option of [{name}]: known are {', '.join(known)}")
        if not environment[key]:
            raise ConfigError(f"{key} in the environment is empty: give it a value, or unset it")
        field, hint = known[key]
        found[field] = _value(key, environment[key], hint)
    return found


def check_others(
    tables: Collection[str], options: Collection[str], environment: Mapping[str, str] | None = None
) -> None:
    """Check the variables that belong to none of `tables`; `options` are the names of all other options.

    Raises: ConfigError that names the variable, for one that is named like an option and would have no effect.
    """
    environment = os.environ if environment is None else environment
    for key in sorted(environment):
        name = key.removeprefix(PREFIX).lower()
        if not key.startswith(PREFIX) or key == PURE or any(name.startswith(f"{table}_") for table in tables):
            continue
        if any(name == option or name.startswith(f"{option}_") for option in options):
            raise ConfigError(
                f"{key} in the environment has no effect: only the options of {', '.join(tables)} may stand there;"
                " write it into the file, and unset the variable"
            )
        logger.warning("%s in the environment has no effect: it is no option of kraftlib", key)


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
