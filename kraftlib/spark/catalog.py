"""Tables that a catalog keeps: `CREATE TABLE log USING kraft OPTIONS (path '/archive')`.

When a table is created Spark hands its properties over as if they were options: `owner`, `provider`, `location`, and
each option once more as `option.view`. When the table is read Spark (4.1 to 4.3) gives a source that is written in
Python the columns of the catalog and no option at all. So the options are put where they are kept: into the metadata of
the first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

METADATA: Final = "kraft.options"
_PROVIDER: Final = "provider"
_PREFIX: Final = "option."


def without_properties(given: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Return the options among the properties of a table that is being created, and whether there is one."""
    named = {name.lower(): text for name, text in given.items()}
    if _PROVIDER not in named:
        return dict(given), False
    options = {name.removeprefix(_PREFIX): text for name, text in named.items() if name.startswith(_PREFIX)}
    path = named.get("path") or named.get("location")
    return {**options, "path": path} if path else options, True


def metadata_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return what the first column of a table bears."""
    return {METADATA: json.dumps(dict(options), sort_keys=True)}


def options_in(schema: Any) -> dict[str, str]:
    """Return the options that the columns of a table bear; none, if it is not one of a catalog."""
    for field in schema.fields:
        text = (field.metadata or {}).get(METADATA)
        if text:
            return {str(name): str(value) for name, value in json.loads(text).items()}
    return {}
