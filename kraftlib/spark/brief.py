"""Errors of options, files and rows, as short as Spark lets them be: it shows the traceback of its Python processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from kraftlib.errors import KraftError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def brief(method: Callable[P, R]) -> Callable[P, R]:
    """Return `method`, whose KraftError comes without the frames below it and without the errors that led to it."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KraftError as error:
            raise error.with_traceback(None) from None

    return called


def brief_rows(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Return the generator `method`, whose errors come likewise."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except KraftError as error:
            raise error.with_traceback(None) from None

    return called
