"""Readers that hold the log, and where their holds outlive a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from kraftlib.errors import HoldExpiredError
from kraftlib.frozen import immutable
from kraftlib.storage.log.holds_file import StoredHold, read_holds, write_holds
from kraftlib.types import Offset


class RetentionHold:
    """A reader's claim on the log: nothing from `offset` on is deleted while it lasts. For any thread.

    The reader moves it with `advance` as it reads, and gives it up with `release`. It outlives a restart of the
    replica: the same name returns it at the same offset.
    """

    def __init__(self, name: str, offset: Offset, max_bytes: int, on_release: Callable[[str], object]) -> None:
        """`on_release` is called with the name, once."""
        self.name: Final = name
        self.max_bytes: Final = max_bytes
        """The hold expires when it alone keeps a log of more than this."""
        self._offset = offset
        self._on_release = on_release
        self._lock: Final = threading.Lock()
        self._expired = self._released = False

    @property
    def offset(self) -> Offset:
        """First offset that is still wanted."""
        return self._offset

    @property
    def expired(self) -> bool:
        """Whether it was given up because the log had become too large."""
        return self._expired

    @property
    def is_over(self) -> bool:
        """Whether it was released, or has expired."""
        return self._released or self._expired

    def expire(self) -> None:
        """Give it up, because the log has become too large: its reader is told with the next `advance`."""
        with self._lock:
            self._expired = True

    def advance(self, offset: Offset) -> None:
        """Everything below `offset` has been read; an earlier offset than before changes nothing.

        Raises: HoldExpiredError, if it has expired: records may be gone, so begin again with the newest snapshot.
        """
        with self._lock:
            if self._expired:
                raise HoldExpiredError(
                    f"the hold of {self.name!r} at offset {self._offset} has expired: the log had grown beyond its "
                    f"max_bytes={self.max_bytes}; begin again with the newest snapshot, and a new hold"
                )
            self._offset = max(self._offset, offset)

    def release(self) -> None:
        """Give it up. Calling it twice is allowed.

        Once the client is closed, the call itself writes that down in the directory. Raises: then StorageError, if it
        cannot: DirectoryInUseError, while the client is closing, or where the replica runs again. The hold is as it
        was, and the call may be repeated.
        """
        with self._lock:
            if self._released:
                return
            self._released = True
        try:
            self._on_release(self.name)
        except BaseException:
            self._released = False
            raise

    def __repr__(self) -> str:
        state = "expired" if self._expired else "released" if self._released else "held"
        return f"<RetentionHold {self.name!r} at {self._offset}, {state}>"


class Holds(Protocol):
    """Where retention holds are kept."""

    def read(self) -> Sequence[StoredHold]:
        """Return what was written last."""
        ...

    def write(self, holds: Sequence[StoredHold]) -> None:
        """Replace what is stored."""
        ...

    def remove_late(self, name: str) -> None:
        """Take a hold out when the replica has ended. For any thread."""
        ...


@immutable
class HoldStore:
    """Where retention holds outlive a restart; nowhere, if the log is not in the replica's directory."""

    directory: Path | None
    file_mode: int

    def read(self) -> Sequence[StoredHold]:
        """Return what was written last."""
        return [] if self.directory is None else read_holds(self.directory)

    def write(self, holds: Sequence[StoredHold]) -> None:
        """Replace what is stored."""
        if self.directory is not None:
            write_holds(self.directory, holds, mode=self.file_mode)

    def remove_late(self, name: str) -> None:
        """Take a hold out, once this replica has let go of its directory. Raises: StorageError; DirectoryInUseError."""
        from kraftlib.storage.lock import DirectoryLock  # memory stores do not need it

        if self.directory is not None:
            lock = DirectoryLock.acquire(self.directory.parent, mode=self.file_mode)
            try:
                self.write([hold for hold in read_holds(self.directory) if hold.name != name])
            finally:
                lock.release()
