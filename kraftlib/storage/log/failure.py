"""The error that ended the use of a log.

After an error of the disk its content is unknown. A sync that is tried again may report success for pages that were
dropped, so nothing is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from kraftlib.errors import StorageError
from kraftlib.storage import files

T = TypeVar("T")


class Failure:
    """The first error of a log, if there was one."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self.error: StorageError | None = None
        """Why the log may not be used any more."""

    def ensure_none(self) -> None:
        """Raise StorageError, if the log may not be used any more."""
        if self.error is not None:
            raise StorageError(f"the log cannot be used any more: {self.error}", path=self._directory) from self.error

    def guard(self, work: Callable[[], T]) -> T:
        """Do some work on the files; an error ends the use of the log. Raises: StorageError."""
        try:
            return work()
        except OSError as error:
            self.error = files.as_storage_error("write", self._directory, error)
            raise self.error from error
        except StorageError as error:
            self.error = error
            raise
