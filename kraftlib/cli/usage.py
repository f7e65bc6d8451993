"""The common parts of commands: the error of a wrong command line (exit status 2), and `--bootstrap`."""

from __future__ import annotations

import argparse

from kraftlib.errors import ConfigError
from kraftlib.types import Endpoint, parse_endpoint


class UsageError(ConfigError):
    """The arguments of a command contradict each other, or one of them is wrong."""


def servers_of(options: argparse.Namespace) -> list[Endpoint]:
    """Return the endpoints of `--bootstrap`. Raises: UsageError, if there are none; ConfigError."""
    servers = [parse_endpoint(part) for part in options.bootstrap.split(",") if part]
    if not servers or options.timeout_ms < 1:
        raise UsageError("--bootstrap names at least one host:port or unix:/path, --timeout-ms at least 1")
    return servers
