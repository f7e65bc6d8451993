"""Options from plain values: a value of a TOML file or a text becomes the value of a field of `RaftConfig`.

The form of each value is checked here, and its sense by the class of the option. Errors name the option and its value.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kraftlib.errors import ConfigError
from kraftlib.types import Endpoint, ReplicaId, parse_endpoint


@attrs.frozen(order=True)
class StaticVoter:
    """A voter of a static quorum (kraft.version 0): its id and where it is reached."""

    id: ReplicaId
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.id}@{self.endpoint}"


def parse_voter(text: str) -> StaticVoter:
    """Read `id@host:port`, the form of Kafka's `controller.quorum.voters`.

    Raises: ConfigError, also for `0.0.0.0` and `::`, to which no replica can connect.
    """
    match = re.fullmatch(r"([0-9]{1,10})@(.+)", text.strip(), re.ASCII)
    if match is None:
        raise ConfigError(f"{text!r} is no voter: expected id@host:port")
    endpoint = parse_endpoint(match[2])
    if endpoint.host in ("0.0.0.0", "::"):  # refused, not bound
        raise ConfigError(f"voter {text!r}: no replica can connect to {endpoint.host}; name a routable host")
    return StaticVoter(int(match[1]), endpoint)


def parse_voters(text: str) -> tuple[StaticVoter, ...]:
    """Read a comma-separated list of `id@host:port`."""
    return tuple(parse_voter(part) for part in text.split(",") if part.strip())


def types_of(kind: type[Any]) -> Mapping[str, Any]:
    """Return the types of the fields of an attrs class."""
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in attrs.fields_dict(kind)}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint for the unknown option `name`: the known one that it resembles most, else all of them."""
    import difflib  # for errors only: it is left out of a start that goes well

    near = difflib.get_close_matches(name.lower().replace("-", "_").replace(".", "_"), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"


def from_plain_or_built(name: str, value: object, wanted: object) -> Any:
    """Return an option of several parts, which is given as what the field holds, or as plain values."""
    if typing.get_origin(wanted) is tuple:
        parts = list(value) if isinstance(value, list | tuple) else None
        if parts is not None and all(isinstance(part, typing.get_args(wanted)[0]) for part in parts):
            return tuple(parts)
        return from_plain(name, value if parts is None else parts, wanted, Path())
    return value if isinstance(value, wanted) else from_plain(name, value, wanted, Path())  # type: ignore[arg-type]


def from_plain(name: str, value: object, wanted: object, base: Path) -> Any:
    """Turn a plain value into what the field `name` of type `wanted` holds. Relative paths are below `base`."""
    if name == "voters":
        return tuple(parse_voter(text) for text in _texts(name, value))
    if name in ("bootstrap_servers", "upstreams"):
        return tuple(parse_endpoint(text) for text in _texts(name, value))
    if name in ("listen", "advertised"):
        if not isinstance(value, str):
            raise ConfigError(f"{name}={value!r} must be text of the form host:port or unix:/path")
        return parse_endpoint(value, lowest_port=0 if name == "listen" else 1)
    if name == "yield_to":
        return _numbers(name, value)
    if name in ("file_mode", "unix_socket_mode") and isinstance(value, str):
        if re.fullmatch(r"(?:0o?)?[0-7]{3}", value) is None:
            raise ConfigError(f"{name}={value!r} must be an integer, or an octal mode of three digits such as '660'")
        return int(value.removeprefix("0o"), 8)
    kinds = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    kind = next(kind for kind in kinds if kind is not type(None))
    if kind is Path:
        if not isinstance(value, str | Path) or "\0" in str(value):
            raise ConfigError(f"{name}={value!r} must be a path")
        return base / value
    if attrs.has(kind) and isinstance(value, Mapping):
        return _from_table(name, value, kind, base)
    if kind == tuple[str, ...]:
        return tuple(_texts(name, value))
    if typing.get_origin(kind) is Mapping or (name == "password" and not isinstance(value, str)):
        return value  # the class checks it; a password must not be shown
    if attrs.has(kind):
        raise ConfigError(f"{name}={value!r} must be a table [{name}]")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{name}={value!r} must be of type {kind.__name__}")
    return value


def _from_table(name: str, table: Mapping[str, object], kind: type[Any], base: Path) -> Any:
    """Turn the table `[name]` into a value of the attrs class `kind`; its fields are read as those of RaftConfig."""
    fields = types_of(kind)
    for key in table:
        if key not in fields:
            raise ConfigError(f"[{name}]: unknown key {key!r}; {nearest(key, fields)}")
    try:
        return kind(**{key: from_plain(key, value, fields[key], base) for key, value in table.items()})
    except ConfigError as error:
        raise ConfigError(f"[{name}]: {error}") from error


def _texts(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [part for part in value.split(",") if part.strip()]
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return value
    raise ConfigError(f"{name}={value!r} must be a list of text or one comma-separated text")


def _numbers(name: str, value: object) -> tuple[int, ...]:
    parts: list[object] = list(value) if isinstance(value, list) else list(_texts(name, value))
    if all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        return tuple(int(str(part)) for part in parts)
    if all(isinstance(part, str) and re.fullmatch(r"\s*[0-9]{1,10}\s*", part, re.ASCII) for part in parts):
        return tuple(int(str(part)) for part in parts)
    raise ConfigError(f"{name}={value!r} must be a list of replica ids")
