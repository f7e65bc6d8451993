from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage.log.failure import Failure


@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O error"), StorageError("cannot sync it")])
def test_an_error_of_the_disk_ends_the_use_of_the_log(error: Exception) -> None:
    failure = Failure(Path("log"))

    def fail() -> None:
        raise error

    failure.ensure_none()
    with pytest.raises(StorageError, match=r"I/O error|cannot sync it"):
        failure.guard(fail)
    with pytest.raises(StorageError, match="the log cannot be used any more: ") as caught:
        failure.ensure_none()
    assert caught.value.__cause__ is failure.error


def test_what_is_no_error_of_the_disk_ends_nothing() -> None:
    failure = Failure(Path("log"))

    assert failure.guard(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        failure.guard(lambda: 1 // 0)
    failure.ensure_none()
