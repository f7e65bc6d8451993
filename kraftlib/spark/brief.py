"""Errors of a user's options, as short as Spark lets them be: it shows the traceback of the process that plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from kraftlib.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


def brief(method: Callable[P, R]) -> Callable[P, R]:
    """Return `method`, whose ConfigError comes without the frames below it and without the errors that led to it."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except ConfigError as error:
            raise error.with_traceback(None) from None

    return called
