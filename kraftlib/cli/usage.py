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
    if not servers or not 1 <= options.timeout_ms < 2**31:
        raise UsageError(f"--bootstrap names at least one host:port or unix:/path, --timeout-ms is 1 to {2**31 - 1}")
    return servers
