"""Unix sockets of a transport: where to listen, and how to connect (`kraftlib.security.unix_users` says to whom).

The file of a socket has its mode before a peer can connect: it is bound, then changed, then listened on. A file that a
killed process has left behind is replaced, one with a listener never is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from typing import Final

from kraftlib.errors import ConfigError
from kraftlib.security.unix_users import check_support, user_of, why_not_the_directory, why_not_the_server
from kraftlib.types import UNIX

BACKLOG: Final = 128


class StrangerError(OSError):
    """The process that listens on a socket is not a replica; the text says whose it is."""


def bind_unix(path: str, mode: int) -> socket.socket:
    """Return a listening, non-blocking socket whose file has `mode`.

    Raises: ConfigError, if another process listens there, if others may write in its directory, or the path cannot be
    had.
    """
    check_support()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if (trouble := why_not_the_directory(path) or _make_room(path)) is not None:
            raise ConfigError(f"cannot listen on {UNIX}{path}: {trouble}")
        listener.bind(path)
        os.chmod(path, mode)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {UNIX}{path}: {error.strerror or error}; name a directory that this user may write in"
        ) from error
    except ConfigError:
        listener.close()
        raise
    return listener


def remove(path: str) -> None:
    """Remove the file of a socket that is closed, unless another process listens there by now."""
    with contextlib.suppress(OSError):
        _make_room(path)


def _make_room(path: str) -> str | None:
    """Remove the file of a socket that has no listener; return why there is still a file. Raises: OSError."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISSOCK(found.st_mode):
        return "there is a file that is no socket; name another path"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as visitor:
        visitor.setblocking(False)
        try:
            visitor.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return None
        except BlockingIOError:
            pass  # its queue is full, so it has a listener
    return "a process listens there; stop it, or name another path"


async def dial(path: str, replicas: frozenset[str]) -> socket.socket:
    """Return a connected, non-blocking socket. Raises: OSError; StrangerError, before anything is sent."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, path)
        _check(connection, path, replicas)
    except BaseException:
        connection.close()
        raise
    return connection


def dial_blocking(path: str, timeout_s: float) -> socket.socket:
    """Return a connected socket for a tool. Raises: OSError; StrangerError, before anything is sent."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
        _check(connection, path, frozenset())
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: socket.socket, path: str, replicas: frozenset[str]) -> None:
    if (reason := why_not_the_server(user_of(connection), path, replicas)) is not None:
        raise StrangerError(reason)
