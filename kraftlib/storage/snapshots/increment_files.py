"""Increments as files beside the checkpoints, and the chain that they make on one.

    00000000000000000042-0000000003.increment.tmp    being written; removed at the next start
    00000000000000000042-0000000003.increment        complete: the changes since its base

They only ever save time: a state comes from checkpoint and log without them, too, and the log is never cut on their
word. So one that is damaged, or that nothing leads to, is removed and not missed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from kraftlib.errors import KraftError
from kraftlib.frozen import immutable
from kraftlib.records.control_messages import VotersRecord
from kraftlib.records.increment import Change, IncrementReader, IncrementWriter
from kraftlib.storage import files, names
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import OffsetAndEpoch

logger: Final = logging.getLogger(__name__)


@immutable
class _Known:
    """Base and size of an increment in the directory."""

    base: OffsetAndEpoch
    size: int


class IncrementFiles:
    """The increments in one directory. For any thread.

    Their list is replaced under a lock, and never changed in place.
    """

    def __init__(
        self, directory: Path, *, file_mode: int = files.FILE_MODE, before_write: Callable[[], None] = lambda: None
    ) -> None:
        """`before_write` raises StorageError if the space that is left on the disk is not for increments."""
        self._directory: Final = directory
        self._before_write: Final = before_write
        self._mode: Final = file_mode
        self._lock: Final = Lock()
        self._known: Mapping[OffsetAndEpoch, _Known] = {}

    def find(self) -> None:
        """Read what is there, to its end; remove what is damaged. Called once, before the rest."""
        for name in files.list_names(self._directory):
            increment = names.parse_increment_name(name)
            if increment is None:
                continue
            try:
                with self.open(increment) as reader:
                    reader.verify()
                    self._known = {**self._known, increment: _Known(reader.base, reader.size)}
            except KraftError as error:
                logger.warning("%s is of no use and is removed: %s", self._directory / name, error)
                files.remove(self._directory / name)

    def chain(self, base: OffsetAndEpoch) -> Sequence[OffsetAndEpoch]:
        """Return the increments that lead on from this checkpoint, in order."""
        found: list[OffsetAndEpoch] = []
        at, known = base, self._known
        while (after := min((i for i, one in known.items() if one.base == at), default=None)) is not None:
            found.append(after)
            at = after
        return found

    def size_of(self, chain: Iterable[OffsetAndEpoch]) -> int:
        """Return the bytes of these increments; of those that have gone meanwhile none."""
        known = self._known
        return sum(known[increment].size for increment in chain if increment in known)

    def open(self, increment: OffsetAndEpoch) -> IncrementReader:
        """Open an increment for reading. Raises: CorruptBatchError, StorageError, ConfigError."""
        path = self._directory / names.increment_name(increment)
        return IncrementReader(FileSnapshotSource(path), epoch=increment.epoch)

    def write(
        self,
        increment: OffsetAndEpoch,
        changes: Iterable[Change],
        *,
        base: OffsetAndEpoch,
        timestamp_ms: int,
        kraft_version: int,
        voters: VotersRecord | None,
        step: Callable[[], None],
    ) -> None:
        """Write an increment, all or nothing, durably. `changes` ascend by key.

        An earlier increment on `base`, or one beside it, goes: two increments on one base make no chain. Raises:
        StorageError, ConfigError.
        """
        self.drop_beyond(base)
        path = self._directory / names.increment_name(increment)
        temporary = path.with_name(path.name + ".tmp")
        files.remove(temporary)
        descriptor = files.create(temporary, mode=self._mode)
        position = 0

        def put(data: bytes | memoryview) -> None:
            nonlocal position
            self._before_write()
            with files.storage_errors("write", temporary):
                files.write_at(descriptor, data, position)
            position += len(data)

        try:
            writer = IncrementWriter(
                put,
                base=base,
                epoch=increment.epoch,
                last_contained_log_timestamp=timestamp_ms,
                kraft_version=kraft_version,
                voters=voters,
            )
            for change in changes:
                writer.append([change])
                step()
            writer.freeze()
            with files.storage_errors("sync", temporary):
                os.fsync(descriptor)
        except BaseException:
            files.remove(temporary)
            raise
        finally:
            os.close(descriptor)
        files.rename(temporary, path)
        files.sync_directory(self._directory)
        with self._lock:
            self._known = {**self._known, increment: _Known(base, position)}

    def drop_up_to(self, snapshot_id: OffsetAndEpoch) -> None:
        """Remove the increments that a checkpoint of this id stands in for."""
        self._drop(lambda increment: increment.offset <= snapshot_id.offset)

    def drop_beyond(self, snapshot_id: OffsetAndEpoch) -> None:
        """Remove the increments beyond this id, on any base."""
        self._drop(lambda increment: increment.offset > snapshot_id.offset)

    def _drop(self, goes: Callable[[OffsetAndEpoch], bool]) -> None:
        with self._lock:
            gone = [increment for increment in self._known if goes(increment)]
            self._known = {increment: known for increment, known in self._known.items() if increment not in gone}
        for increment in gone:
            files.remove(self._directory / names.increment_name(increment))
