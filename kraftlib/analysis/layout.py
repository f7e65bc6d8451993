"""Where logs lie: the naming of directories, and the way to a store. Both are said by options.

    layout          {cluster}/{replica}/{topic}-{partition}
    storageOptions  {"endpoint_override": "minio:9000", "scheme": "http"}

A layout describes the last parts of every directory that holds segments or checkpoints; `*` stands for anything within
a part. A directory that it does not name is found as without it: by `cluster=…/replica=…`, a meta.properties, or the
last part.

Options of a store are those that pyarrow takes in a URI, and become part of it. Credentials are not among them, since
Spark shows options in plans and logs: they come from the environment of each process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlencode

from kraftlib.errors import ConfigError

_LABELS: Final = {"cluster": "[^/]+", "replica": "[^/]+", "topic": "[^/]+", "partition": "[0-9]{1,9}"}
_PLACE: Final = re.compile(r"\{([^{}]*)\}|\*")
_SECRET: Final = re.compile("key|secret|token|password|credential|sas", re.IGNORECASE)


def checked_layout(text: str) -> str:
    """Return a layout. Raises: ValueError, if it names what there is not, something twice, or nothing."""
    layout = text.strip().strip("/")
    named = [match[1] for match in _PLACE.finditer(layout) if match[1] is not None]
    unknown = sorted(set(named) - set(_LABELS))
    if unknown:
        raise ValueError(f"{{{unknown[0]}}} is none of {', '.join(f'{{{name}}}' for name in _LABELS)}")
    if not named or len(set(named)) != len(named):
        raise ValueError(
            "expected each name at most once, and one at least, as {cluster}/{replica}/{topic}-{partition}"
        )
    if re.search(r"[{}]", _PLACE.sub("", layout)):
        raise ValueError("expected every { to have its }")
    return layout


def labels_in(directory: str, layout: str) -> dict[str, str]:
    """Return what a directory is named after. Raises: ConfigError, if it is not laid out so."""
    match = _pattern(layout).search(directory)
    if match is None:
        raise ConfigError(f"{directory} is not laid out as {layout!r}: load what is, or change the option layout")
    return match.groupdict()


@lru_cache(maxsize=32)
def _pattern(layout: str) -> re.Pattern[str]:
    pieces = []
    position = 0
    for match in _PLACE.finditer(layout):
        pieces.append(re.escape(layout[position : match.start()]))
        pieces.append(f"(?P<{match[1]}>{_LABELS[match[1]]})" if match[1] is not None else "[^/]*")
        position = match.end()
    pieces.append(re.escape(layout[position:]))
    return re.compile(f"(?:^|/){''.join(pieces)}$", re.ASCII)


def with_storage_options(path: str, options: Mapping[str, str]) -> str:
    """Return a URI that says the options, too.

    Raises: ConfigError, if it is none, says one of them already, or if one is a secret.
    """
    scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", path)
    if scheme is None or path.startswith("file:"):
        raise ConfigError(f"storageOptions are for a URI, as s3://bucket/path, and the path is {path!r}")
    secrets = sorted(name for name in options if _SECRET.search(name))
    if secrets:
        raise ConfigError(
            f"storageOptions say {secrets[0]!r}, and Spark shows options in its logs: credentials come from the"
            " environment of driver and executors, as AWS_ACCESS_KEY_ID"
        )
    uri, _, query = path.partition("?")
    twice = sorted(name for name in options if re.search(rf"(?:^|&){re.escape(quote(name))}=", query))
    if twice:
        raise ConfigError(f"{twice[0]!r} stands in the URI and in storageOptions: say it once")
    return f"{uri}?{'&'.join(filter(None, (query, urlencode(options))))}"
