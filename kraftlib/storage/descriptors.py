"""A few descriptors in hand for the moment in which the process has none left.

A vote goes to a new file, and a read of an old segment opens it. A host that has used up its descriptors, perhaps for a
second, would so stop its replica for good, and an election at that time all of a quorum. So some descriptors are taken
while there are plenty, and one is given back where an open finds none. They are taken again when there are some.

The limit of the whole system (ENFILE) is met in the same way, as far as that helps.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final, TypeVar

SPARE: Final = 8
"""Several threads may open files at the same time, and a descriptor that is given back may be taken by another
first."""

_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)

_open: Final = os.open
_spare: Final[list[int]] = []
"""Shared by all threads without a lock: one more than wanted does no harm, and a forked child must not wait for one."""

T = TypeVar("T")


def spend(work: Callable[[], T]) -> T:
    """Do `work`, which opens one file; where there is no descriptor left, once more with one given back."""
    while True:
        try:
            result = work()
        except OSError as error:
            if error.errno not in _NONE_LEFT or not _give_back():
                raise
        else:
            if len(_spare) < SPARE:
                _take()
            return result


def _give_back() -> bool:
    try:
        descriptor = _spare.pop()
    except IndexError:
        return False
    os.close(descriptor)
    return True


def _take() -> None:
    try:
        while len(_spare) < SPARE:
            _spare.append(_open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return  # not now
