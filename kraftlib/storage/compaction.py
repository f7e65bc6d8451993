"""Compaction by key: of many changes the latest of each key, sorted, without holding them all in memory.

Changes are taken up until they fill the memory that they may have; then they are sorted, reduced to the latest of each
key and put aside as a run in a temporary file. At the end the runs are merged. So the memory is bounded, whatever the
number of keys, and the output comes in the order of the keys: the same for the same state, however it came about.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import IO, Final

from kraftlib.errors import ConfigError
from kraftlib.records.increment import Change, merge_changes
from kraftlib.storage import files

MEMORY_BYTES: Final = 64 << 20
ENTRY_OVERHEAD: Final = 200
"""The memory that Python needs for an entry beside its bytes, roughly, in bytes."""

TYPE_SIZE: Final = 4
STEP_EVERY: Final = 64
BUFFER_BYTES: Final = 256 * 1024

MERGED_AT_ONCE: Final = 64
"""The number of runs that are open at a time; more are merged into one first."""

_SIZES: Final = struct.Struct(">ii")
_GONE: Final = -1


def typed_key(type_: int, key: bytes) -> bytes:
    """Return a key that sorts by type first: by number, then by the bytes of `key`."""
    if not 0 <= type_ < 1 << 32:
        raise ConfigError(f"type_={type_} must be 0 to {(1 << 32) - 1}")
    return type_.to_bytes(TYPE_SIZE, "big") + key


def compact(
    changes: Iterable[Change],
    *,
    type_of: Callable[[bytes], int] | None = None,
    keep_tombstones: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    directory: Path | None = None,
    step: Callable[[], None] = lambda: None,
) -> Iterator[Change]:
    """Yield per key the latest of `changes`, in the order of the keys.

    A value of None is a tombstone: the key is gone. Tombstones are dropped, unless they are to be kept, for an
    increment. `type_of` says the type of a key, and sorts by type first.

    Temporary files go to `directory`, by default the system's; they have no name there and vanish by themselves. `step`
    is called now and then. Raises: ConfigError, StorageError.
    """
    if memory_bytes < 1:
        raise ConfigError(f"memory_bytes={memory_bytes} must be positive")
    typed = changes if type_of is None else ((typed_key(type_of(key), key), value) for key, value in changes)
    prefix = 0 if type_of is None else TYPE_SIZE
    with ExitStack() as held:
        runs: list[Iterable[Change]] = []
        for run, is_last in _sorted_runs(typed, memory_bytes, step):
            runs.append(run if is_last else _stored(run, directory, held))
            if len(runs) == MERGED_AT_ONCE:
                runs = [_stored(merge_changes(*runs), directory, held)]
        for count, (key, value) in enumerate(merge_changes(*runs)):
            if value is not None or keep_tombstones:
                yield key[prefix:], value
            if count % STEP_EVERY == 0:
                step()


def _sorted_runs(
    changes: Iterable[Change], memory_bytes: int, step: Callable[[], None]
) -> Iterator[tuple[Iterable[Change], bool]]:
    """Yield the changes in runs that fit into memory, sorted, with one change per key; and which is the last."""
    latest: dict[bytes, bytes | None] = {}
    size = 0
    for count, (key, value) in enumerate(changes):
        if size >= memory_bytes:
            yield sorted(latest.items(), key=itemgetter(0)), False
            latest, size = {}, 0
        size += ENTRY_OVERHEAD + len(key) + len(value or b"")
        latest[key] = value
        if count % STEP_EVERY == 0:
            step()
    yield sorted(latest.items(), key=itemgetter(0)), True


def _stored(run: Iterable[Change], directory: Path | None, held: ExitStack) -> Iterable[Change]:
    """Put a run into a file without a name, and return what reads it."""
    import tempfile  # only here: few snapshots are so large, and it loads much

    where = Path(tempfile.gettempdir() if directory is None else directory)
    with files.storage_errors("put a sorted run aside in", where):
        # Closed with all the others, once everything is merged.
        file: IO[bytes] = held.enter_context(tempfile.TemporaryFile(dir=where, buffering=BUFFER_BYTES))  # noqa: SIM115
        for key, value in run:
            file.write(_SIZES.pack(len(key), _GONE if value is None else len(value)))
            file.write(key)
            file.write(value or b"")
        file.flush()
    return _Run(file, where)


class _Run:
    """A sorted run in a file. It is read through a buffer of its own, so that many can be read at a time."""

    def __init__(self, file: IO[bytes], where: Path) -> None:
        self._file = file
        self._where = where

    def __iter__(self) -> Iterator[Change]:
        with files.storage_errors("read a sorted run in", self._where):
            self._file.seek(0)
            while head := self._file.read(_SIZES.size):
                key_size, value_size = _SIZES.unpack(head)
                key = self._file.read(key_size)
                yield key, None if value_size == _GONE else self._file.read(value_size)
