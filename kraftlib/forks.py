"""Descriptors that a forked child must not keep: the lock of a directory, a listening socket, connections.

A child has its own descriptor of everything that is open in its parent. A lock lasts, an address is taken, and a peer
hears of no end of a connection, until the last descriptor is closed, even if the parent has closed its own or is dead.
So in a child these lead to the null device. They are not closed: an object of the parent owns the number, and closes it
some day.
"""

from __future__ import annotations

import os
from typing import Final

_own: Final[dict[int, tuple[int, int]]] = {}
"""By descriptor the device and the inode of its file: the number may be another file's by now."""


def keep_from_children(descriptor: int) -> None:
    """Let no child that is forked from now on keep this open."""
    _own[descriptor] = _identity(descriptor)


def forget(descriptor: int) -> None:
    """This descriptor is about to be closed, or was."""
    _own.pop(descriptor, None)


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _in_child() -> None:
    if _own:
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor, identity in _own.items():
            if _is_still(descriptor, identity):
                os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)
        _own.clear()


def _is_still(descriptor: int, identity: tuple[int, int]) -> bool:
    try:
        return _identity(descriptor) == identity
    except OSError:
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
