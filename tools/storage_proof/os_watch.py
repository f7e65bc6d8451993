"""Standing between a package and the operating system: every call that may change a file is seen, and may be made fail.

The modules of the package keep their code; for a while their global `os` is ours, and so are the functions that they
took from it under another name. Calls that only read are let through. An unknown call is refused rather than missed, so
that a trace is complete or there is none.

    with watching("kraftlib.storage", handler):
        log.flush()            # handler(call, really) is asked for every open, pwrite, fdatasync, replace ...

`really()` does what was asked for. The handler may call it or not, record it, raise an OSError, or write less.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, Protocol

import attrs

CHANGING: Final = frozenset(
    "open close write pwrite writev pwritev ftruncate truncate posix_fallocate replace rename unlink remove mkdir rmdir"
    " fsync fdatasync fchmod chmod fallocate".split()
)
"""Calls that change files, or their names, or that say whether that is durable."""

READING: Final = frozenset(
    "read pread preadv lseek stat lstat fstat statvfs fstatvfs listdir scandir access readlink posix_fadvise fspath"
    " fsencode fsdecode strerror getpid getuid geteuid urandom cpu_count path sep name environ PathLike DirEntry"
    " stat_result sync_file_range".split()
)
"""Calls that change nothing, or nothing to count on, and names that are no calls."""


class UnwatchedCallError(AssertionError):
    """A call could be missed: `CHANGING` or `READING` must name it, or its module must be imported first."""


@attrs.frozen(kw_only=True)
class Site:
    """A line of the package."""

    module: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line}"


@attrs.frozen(kw_only=True)
class Call:
    """A call that is about to be made."""

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = attrs.Factory(dict)
    stack: tuple[Site, ...] = ()
    """The lines of the package that led to it, the innermost first; empty unless asked for."""

    def __str__(self) -> str:
        return f"os.{self.name} at {' < '.join(map(str, self.stack))}"


class Handler(Protocol):
    """Is asked for every call that may change something."""

    def __call__(self, call: Call, really: Callable[..., Any]) -> Any:
        """Return what the caller gets; `really(*call.arguments, **call.keywords)` does what it asked for."""
        ...


class StatHandler(Protocol):
    """Is asked what the package sees of a file: inode and time of change, perhaps."""

    def __call__(self, subject: int | str | os.PathLike[str], found: os.stat_result) -> os.stat_result:
        """Return what is told of `subject`, a descriptor or a path."""
        ...


@contextmanager
def watching(
    package: str, handler: Handler, *, on_stat: StatHandler | None = None, with_stacks: bool = False
) -> Iterator[None]:
    """Let the modules of `package` make their calls through `handler`, for the time of the block.

    `with_stacks` tells the handler which lines of the package led to a call; that costs more than the call itself.
    """
    found = _ways_out(package)
    places, watched = found.places, found.names if with_stacks else frozenset()
    stand_ins = {os: _OsStandIn(handler, watched, on_stat), ctypes: _CtypesStandIn(handler, watched)}
    try:
        for module, name, value in places:
            setattr(module, name, _stand_in_for(value, stand_ins))
        yield
    finally:
        for module, name, value in places:
            setattr(module, name, value)


def let_through(call: Call, really: Callable[..., Any]) -> Any:
    """A handler that changes nothing."""
    return really(*call.arguments, **call.keywords)


@attrs.frozen
class _WaysOut:
    """The modules of a package, and the global names in them that lead to the operating system, with their values."""

    modules: tuple[ModuleType, ...]
    names: frozenset[str]
    places: tuple[tuple[ModuleType, str, Any], ...]
    globals: tuple[Mapping[str, Any], ...]
    """Of each module, when they were looked for."""

    def still_hold(self) -> bool:
        """Whether nothing was imported again, or replaced, since they were looked for."""
        return all(
            sys.modules.get(module.__name__) is module and vars(module) == known
            for module, known in zip(self.modules, self.globals, strict=True)
        )


_known: dict[str, _WaysOut] = {}
"""The calls of each package, so that they are found once for thousands of traces."""


def _ways_out(package: str) -> _WaysOut:
    """Raises: UnwatchedCallError, if the package is being watched already, or not all of it is imported."""
    known = _known.get(package)
    if known is None or not known.still_hold():
        modules = modules_of(package)
        places = tuple(
            (module, name, value)
            for module in modules
            for name, value in vars(module).items()
            if _leads_out(module, value)
        )
        known = _known[package] = _WaysOut(
            modules, frozenset(module.__name__ for module in modules), places, tuple(dict(vars(m)) for m in modules)
        )
    return known


def _leads_out(module: ModuleType, value: object) -> bool:
    if isinstance(value, _OsStandIn):
        raise UnwatchedCallError(f"{module.__name__} is being watched already: of two only one would see")
    return value is os or value is ctypes or _is_of_os(value)


def modules_of(package: str) -> tuple[ModuleType, ...]:
    """Return a package with every module in it, or the one module of this name.

    Raises: UnwatchedCallError, if some of it is not imported yet: a module that is loaded later would not be watched.
    """
    top = sys.modules.get(package)
    inside = pkgutil.walk_packages(getattr(top, "__path__", ()), prefix=f"{package}.")
    names = [package, *(info.name for info in inside)]
    missing = [name for name in names if name not in sys.modules]
    if missing:
        raise UnwatchedCallError(f"import {', '.join(missing)} first: a module that is loaded later is not watched")
    return tuple(sys.modules[name] for name in names)


def aliases_in(module: ModuleType) -> dict[str, str]:
    """Return the global names that a module has for functions of `os`, with the functions."""
    return {name: value.__name__ for name, value in vars(module).items() if _is_of_os(value)}


def _is_of_os(value: object) -> bool:
    name = getattr(value, "__name__", None)
    return callable(value) and isinstance(name, str) and name in CHANGING and getattr(os, name, None) is value


def _stand_in_for(value: Any, stand_ins: Mapping[ModuleType, Any]) -> object:
    if isinstance(value, ModuleType):
        return stand_ins[value]
    return getattr(stand_ins[os], value.__name__)


class _OsStandIn:
    """Replaces the module `os` in the package."""

    def __init__(self, handler: Handler, watched: frozenset[str], on_stat: StatHandler | None) -> None:
        self._handler = handler
        self._watched = watched
        self._on_stat = on_stat

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name in CHANGING:
            value = _through(self._handler, name, found, self._watched)
        elif name in ("stat", "lstat", "fstat") and self._on_stat is not None:
            value = self._told(found, self._on_stat)
        elif name in READING or name.isupper() or not callable(found):
            value = found
        else:
            raise UnwatchedCallError(f"os.{name} is not known to {__name__}: does it change files?")
        setattr(self, name, value)
        return value

    @staticmethod
    def _told(stat: Callable[..., os.stat_result], on_stat: StatHandler) -> Callable[..., os.stat_result]:
        def told(subject: Any, *arguments: Any, **keywords: Any) -> os.stat_result:
            return on_stat(subject, stat(subject, *arguments, **keywords))

        return told


class _CtypesStandIn:
    """Replaces the module `ctypes` in the package, which has the calls that `os` lacks."""

    def __init__(self, handler: Handler, watched: frozenset[str]) -> None:
        self._handler = handler
        self._watched = watched
        self._errno = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(ctypes, name)

    def CDLL(self, *arguments: Any, **keywords: Any) -> _LibraryStandIn:  # noqa: N802 - its name in ctypes
        """Return a library of which only the known calls can be used."""
        return _LibraryStandIn(self, ctypes.CDLL(*arguments, **keywords))

    def get_errno(self) -> int:
        """Return the error number of the last call."""
        return self._errno

    def call(self, name: str, function: Callable[..., int], arguments: tuple[Any, ...]) -> int:
        """Make a call of a library, through the handler; an OSError becomes -1 and an error number."""

        def really(*arguments: Any) -> int:
            result = function(*arguments)
            if result == -1:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            return result

        try:
            return int(_through(self._handler, name, really, self._watched)(*arguments))
        except OSError as error:
            self._errno = error.errno or 0
            return -1


class _LibraryStandIn:
    def __init__(self, owner: _CtypesStandIn, library: Any) -> None:
        self._owner = owner
        self._library = library

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)
        if name in READING:
            return function
        if name not in CHANGING:
            raise UnwatchedCallError(f"the C function {name} is not known to {__name__}: does it change files?")
        return lambda *arguments: self._owner.call(name, function, arguments)


def _through(handler: Handler, name: str, really: Callable[..., Any], watched: frozenset[str]) -> Callable[..., Any]:
    """Return a function that makes the call through the handler."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        stack = _stack(watched) if watched else ()
        return handler(Call(name=name, arguments=arguments, keywords=keywords, stack=stack), really)

    return call


@functools.cache
def _site(module: str, line: int) -> Site:
    return Site(module=module, line=line)


def _stack(watched: frozenset[str]) -> tuple[Site, ...]:
    """Return the lines of the watched modules that are being executed, the innermost first."""
    sites = []
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in watched:
            sites.append(_site(module, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(sites)
