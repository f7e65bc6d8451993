"""Increments in a simulation: a state machine that knows what it has changed, and the real snapshotter on real files.

Some seeds draw such a state machine. Its replicas then write snapshots as those of an application do: after a number of
records, each as an increment on the one before, merged into a checkpoint now and then. Every state loaded from a
checkpoint and its increments is compared with that of the log (I14).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftlib.runtime.committed import CommittedRecord, LoadedSnapshot
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine, Increments
from kraftlib.storage.snapshots.increment_files import IncrementFiles
from kraftlib.testing.reads import checksum
from kraftlib.testing.subject import Subject, state_of

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World

MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where files cost no waiting, if there is such a place; None: where temporary files are."""

KEYS: Final = 200
GONE_ONE_IN: Final = 4
"""Share of the records that remove a key instead of setting it."""


class Shelves(IncrementalStateMachine):
    """Some keys with a value each. All of it depends on every record and on their order."""

    def __init__(self) -> None:
        self.digest = 0
        self.items: dict[bytes, bytes] = {}
        self.changed: set[bytes] = set()

    def apply(self, record: CommittedRecord) -> int:
        """Put something or remove something; return a hash of everything applied so far."""
        self.digest = zlib.crc32(record.value, self.digest)
        key = b"%03d" % (self.digest % KEYS)
        if self.digest // KEYS % GONE_ONE_IN == 0:
            self.items.pop(key, None)
        else:
            self.items[key] = b"%d" % self.digest
        self.items[b"digest"] = b"%d" % self.digest
        self.changed |= {key, b"digest"}
        return self.digest

    def snapshot(self) -> Iterable[bytes]:
        """Return every key with its value, in the order of the keys."""
        return [key + b":" + value for key, value in sorted(self.items.items())]

    def freeze(self) -> Iterable[bytes]:
        """Return the same, and begin to note changes anew."""
        self.changed.clear()
        return self.snapshot()

    def freeze_changes(self) -> Iterable[tuple[bytes, bytes | None]]:
        """Return what was changed."""
        changed, self.changed = self.changed, set()
        return [(key, key + b":" + self.items[key] if key in self.items else None) for key in changed]

    def key_of(self, value: bytes) -> bytes:
        """Return what stands before the colon."""
        return value.partition(b":")[0]

    def restore(self, values: Iterable[bytes]) -> None:
        """Begin with these."""
        self.items = {key: value for key, _, value in (item.partition(b":") for item in values)}
        self.digest = int(self.items.get(b"digest", b"0"))
        self.changed.clear()


INCREMENTAL: Final = Subject(machine=Shelves)
"""In the place of the ordinary state machine in some of the seeds."""


class IncrementDirectory:
    """Where a simulated disk has its increments: real files, which go with the world."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def files(self) -> IncrementFiles:
        """Return what a new life finds there."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="kraftlib-increments-", dir=MEMORY))
            weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        found = IncrementFiles(self._path)
        found.find()
        return found


class WatchedIncrements(Increments):
    """The chain of one life; loaded states are kept for the comparison with the log."""

    def __init__(self, world: World, process: Process, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._world = world
        self._process = process

    def was_loaded(self, snapshot: LoadedSnapshot) -> None:
        """As `Increments.was_loaded`."""
        super().was_loaded(snapshot)
        if self.base is not None:
            self._world.increments_loaded += 1
        state = checksum(state_of(self._world.subject, self._process.machine))
        self._world.snapshots.append((self._process.node_id, snapshot.snapshot_id.offset, state))
