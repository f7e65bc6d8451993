"""The error of a wrong command line; exit status 2."""

from __future__ import annotations

from kraftlib.errors import ConfigError


class UsageError(ConfigError):
    """The arguments of a command contradict each other, or one of them is wrong."""
