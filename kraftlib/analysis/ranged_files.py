"""Files that are read in ranges, local ones and those of a store that pyarrow reaches by a URI."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from pyarrow import fs as arrow_fs

from kraftlib.analysis.log_files import LogFile
from kraftlib.errors import ConfigError, StorageError


class RangedFile:
    """A file that is read in ranges."""

    def __init__(self, file: LogFile, path: str | None = None, *, buffer: bytearray | None = None) -> None:
        """`buffer` is for `read_chunk`."""
        self.path = path or file.path
        self._buffer: Final = buffer
        self._stream: Any = None
        self._descriptor = -1
        try:
            if file.root:
                self._stream = filesystem(file.root).open_input_file(self.path)
            else:
                self._descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise StorageError(
                f"{self.path} is gone since it was listed: the log was compacted meanwhile; read it again, or read an"
                " archive, which deletes nothing",
                path=self.path,
            ) from error
        except OSError as error:
            raise StorageError(f"{self.path} cannot be opened: {error}", path=self.path) from error

    def read_chunk(self, position: int, size: int) -> bytes | memoryview:
        """Read as `read_at` does; into the buffer, if there is a large enough one. The next chunk overwrites it then.

        Memory that is used again stays in the cache of the processor.
        """
        if self._stream is not None or self._buffer is None or size > len(self._buffer):
            return self.read_at(position, size)
        view, got = memoryview(self._buffer)[:size], 0
        try:
            while got < size and (piece := os.preadv(self._descriptor, [view[got:]], position + got)):
                got += piece
        except OSError as error:
            raise self._unreadable(error, position) from error
        return view[:got]

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; shorter only at the end. Raises: StorageError."""
        try:
            if self._stream is not None:
                data: bytes = self._stream.read_at(size, position)
                return data
            return self._read_local(position, size)
        except OSError as error:
            raise self._unreadable(error, position) from error

    def _unreadable(self, error: OSError, position: int) -> StorageError:
        what = f"{self.path} cannot be read at byte {position}: {error}"
        return StorageError(what, path=self.path, position=position)

    def _read_local(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size and (piece := os.pread(self._descriptor, size - got, position + got)):
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Release the file."""
        if self._stream is not None:
            self._stream.close()
        else:
            os.close(self._descriptor)

    def __enter__(self) -> RangedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=32)
def filesystem(root: str) -> Any:
    """Return the filesystem of a URI, or of local files for an empty one."""
    if not root:
        return arrow_fs.LocalFileSystem()
    return from_uri(root)[0]


def named(root: str, path: str) -> str:
    """Return what names a path below `root` to a reader: itself if local, else a URI with the options of `root`."""
    if not root:
        return path
    uri, mark, options = root.partition("?")
    return uri.rstrip("/") + quote(path[len(from_uri(root)[1].rstrip("/")) :]) + mark + options


def from_uri(uri: str) -> tuple[Any, str]:
    """Return the filesystem that a URI names, and the path in it. Raises: ConfigError."""
    try:
        return arrow_fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"{uri!r} is no place that pyarrow can read: {error}") from error
