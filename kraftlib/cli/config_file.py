"""Configuration files as commands take them: our TOML, or Kafka's own `server.properties` by its ending."""

from __future__ import annotations

import sys
from typing import Final

from kraftlib.config import RaftConfig

FORMS: Final = "CONFIG"
HELP: Final = "the replica: a TOML file (kraftlib.RaftConfig), or Kafka's own NAME.properties"


def read_config(path: str) -> RaftConfig:
    """Read a configuration; print each key without effect on stderr. Raises: ConfigError."""
    if path.endswith(".properties"):
        return RaftConfig.from_properties(path, tell=lambda text: print(f"kraftlib: {text}", file=sys.stderr))
    return RaftConfig.from_toml(path)
