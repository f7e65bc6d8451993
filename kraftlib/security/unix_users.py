"""Users at the other end of a Unix socket: the system tells the user id of its process (SO_PEERCRED, unix(7)).

The id is that of the moment in which the other side connected, or began to listen. It cannot be forged, and no secret
is needed. Only Linux tells it in this way; elsewhere a replica listens on TCP.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from kraftlib.errors import ConfigError
from kraftlib.types import UNIX

_UCRED: Final = struct.Struct("iII")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class UnixUser(NamedTuple):
    """A process at the other end of a Unix socket."""

    process_id: int
    user_id: int

    @property
    def principal(self) -> str:
        """Its name in `[access]`."""
        return f"{UNIX}{self.user_id}"


def check_support() -> None:
    """Raises: ConfigError, where the system does not tell who connects to a Unix socket."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise ConfigError(
            "Unix sockets need SO_PEERCRED of Linux, which this system does not have: listen on a host and a port"
        )


def user_of(connection: socket.socket) -> UnixUser:
    """Return who is at the other end. Raises: OSError, also if the connection is not made."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise OSError(errno.ENOTSUP, "this system does not tell who is at the other end of a Unix socket")
    process_id, user_id, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if user_id == 0xFFFFFFFF:  # asyncio takes a full backlog (EAGAIN) for a connection that is made
        raise BlockingIOError(errno.EAGAIN, "the other side takes no more connections for now")
    return UnixUser(process_id, user_id)


def own_principal() -> str | None:
    """Return the name of the user of this process on Unix sockets; None where there are no user ids."""
    return f"{UNIX}{os.geteuid()}" if hasattr(os, "geteuid") else None


def on_unix_socket(principals: Iterable[str]) -> bool:
    """Whether a peer with these principals is on a Unix socket."""
    return any(name.startswith(UNIX) for name in principals)


def replica_users(replicas: Iterable[str]) -> frozenset[str]:
    """Return the users of Unix sockets that may speak as replicas: our own one, and those of `[access] replicas`."""
    own = own_principal()
    return frozenset(name for name in (own, *replicas) if name is not None and name.startswith(UNIX))


def why_not_the_directory(path: str) -> str | None:
    """Return why the socket `path` may be that of another user: others may put files into its directory, or move that
    away.

    A group counts as others. Raises: OSError, if there is no such directory.
    """
    directory, *above = _directories(path)
    for place in (directory, *(place for place in above if not os.stat(place).st_mode & stat.S_ISVTX)):
        if os.stat(place).st_mode & _OTHERS_WRITE:
            return f"others may write in {place}: chmod go-w {place}, or name another directory"
    return None


def why_not_the_server(user: UnixUser, path: str, replicas: Iterable[str] = ()) -> str | None:
    """Return why the process that listens on the socket `path` is no replica; None if it is trusted.

    Trusted are our own user, those of `[access] replicas`, and the owner of the directory of the socket if one of
    these, or root, has let it have this directory: it is root, or only they may write in the directories above.
    Any user can make a directory in /tmp and own it, so that is not the operator's choice. Raises: OSError, if there is
    none.
    """
    if (reason := why_not_the_directory(path)) is not None:
        return reason
    users = replica_users(replicas)
    if user.principal in users:
        return None
    directory, *above = map(os.stat, _directories(path))
    chosen = directory.st_uid == 0 or all(
        not place.st_mode & _OTHERS_WRITE and (place.st_uid == 0 or f"{UNIX}{place.st_uid}" in users) for place in above
    )
    if user.user_id == directory.st_uid and chosen:
        return None
    return (
        f"its process runs as {user.principal}, who is not in [access] replicas, nor the owner of its directory by the"
        " choice of root"
    )


def _directories(path: str) -> list[Path]:
    """Return the directory of a socket, and all directories above it, also those that a link leads through."""
    directory = Path(os.path.abspath(path)).parent
    return list(dict.fromkeys((directory, *directory.parents, *directory.resolve().parents)))
