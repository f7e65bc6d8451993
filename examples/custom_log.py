"""A log of your own: batches, snapshots and votes in SQLite.

`kraftlib.ReplicatedLog` and `kraftlib.QuorumStateStore` say, per method, what must be durable on return; the whole
safety of the quorum stands on that. `kraftlib.testing.log_contract` checks it. What to look at:

* `append` only has to make batches readable. They wait in a list until `flush` writes all of them in one transaction.
* `flush` runs on the disk thread while the loop goes on appending and reading: hence two connections, one to write and
  one to read (SQLite's write-ahead log lets readers go on), and a lock around everything that writes.
* `truncate`, `install_snapshot` and the vote are durable on return, and SQLite makes each of them all or nothing.
* A batch is stored as the bytes it came in. `read_batch` checks its checksum whenever it is read back.

    python examples/custom_log.py
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kraftlib import NotLeaderError, RaftClient, RaftConfig, StorageError
from kraftlib.errors import InvariantError
from kraftlib.records.batch import Batch, read_batch
from kraftlib.runtime.waiters import Appended
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.types import ElectionState, EpochStart, OffsetAndEpoch, ReplicaKey

SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (base_offset INTEGER PRIMARY KEY, last_offset INTEGER, epoch INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS snapshots (epoch INTEGER, offset INTEGER, data BLOB, PRIMARY KEY (epoch, offset));
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the database: changes in explicit transactions, each of them synced when it ends."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(SCHEMA)
    return connection


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Let what SQLite complains of leave as what the replica expects of a disk."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{path}: {error}", path=path) from error


class SqliteLog:
    """A `kraftlib.ReplicatedLog`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with storage_errors(path):
            self._writer, self._reader = connect(path), connect(path)
            self._start = int(self._fact("start_offset") or 0)
            rows = self._reader.execute("SELECT base_offset, last_offset, epoch FROM batches ORDER BY base_offset")
            self._end, self._epochs = self._start, EpochTable()
            for base_offset, last_offset, epoch in rows:
                self._epochs.assign(epoch, max(base_offset, self._start))
                self._end = last_offset + 1
        self._flushed = self._end
        self._unflushed: list[Batch] = []
        self._lock = threading.RLock()
        self._closed = False

    # Where it begins and ends

    @property
    def start_offset(self) -> int:
        """First offset that can be read."""
        return self._start

    @property
    def end_offset(self) -> int:
        """One past the last record, flushed or not."""
        return self._end

    @property
    def flushed_offset(self) -> int:
        """One past the last record that survives a crash."""
        return self._flushed

    @property
    def size_bytes(self) -> int:
        """Size of all batches: what retention counts."""
        with storage_errors(self._path):
            stored = self._reader.execute("SELECT coalesce(sum(length(data)), 0) FROM batches").fetchone()[0]
        return int(stored) + sum(len(batch.data) for batch in self._unflushed)

    def epoch_starts(self) -> Sequence[EpochStart]:
        """Return the epochs and where they start."""
        return self._epochs.starts()

    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        """Note an epoch that has no record yet."""
        self._epochs.assign(epoch, start_offset)

    # Batches

    def append(self, batches: Sequence[Batch]) -> None:
        """Make batches readable, not durable. All of them continue the log, or none is taken."""
        self._ensure_open()
        end, epoch = self._end, self._epochs.latest_epoch
        for batch in batches:
            if batch.base_offset != end or batch.epoch < epoch:
                raise InvariantError(f"{batch!r} does not continue a log that ends at {end} in epoch {epoch}")
            end, epoch = batch.last_offset + 1, batch.epoch
        for batch in batches:
            if batch.epoch != self._epochs.latest_epoch:
                self._epochs.assign(batch.epoch, batch.base_offset)
        self._unflushed += batches
        self._end = end

    def flush(self) -> int:
        """Make durable what was appended before the call. Runs on the disk thread, beside appends and reads."""
        self._ensure_open()
        with self._lock:
            batches = self._unflushed[:]
            with self._transaction():
                rows = [(batch.base_offset, batch.last_offset, batch.epoch, batch.data) for batch in batches]
                self._writer.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", rows)
            # Only now: until the transaction has ended, a reader finds them in the list, from now on in the table.
            del self._unflushed[: len(batches)]
            if batches:
                self._flushed = batches[-1].last_offset + 1
            return self._flushed

    def read(self, start_offset: int, max_bytes: int) -> Sequence[Batch]:
        """Return whole batches from the one with `start_offset` on: at least one, else at most `max_bytes`."""
        self._ensure_open()
        if start_offset < self._start:
            raise StorageError(f"offset {start_offset} is below the start of the log, {self._start}", path=self._path)
        if start_offset > self._end:
            raise InvariantError(f"offset {start_offset} is beyond the end of the log, {self._end}")
        found: list[Batch] = []
        size = 0
        for batch in self._from(start_offset):
            size += len(batch.data)
            if found and size > max_bytes:
                break
            found.append(batch)
        return found

    def _from(self, offset: int) -> Iterator[Batch]:
        unflushed = self._unflushed[:]  # before the table is read: what leaves the list meanwhile is in both
        stored_end = unflushed[0].base_offset if unflushed else self._end
        query = "SELECT data FROM batches WHERE last_offset >= ? AND base_offset < ? ORDER BY base_offset"
        with storage_errors(self._path):
            for (data,) in self._reader.execute(query, (offset, stored_end)):
                yield read_batch(data)
        yield from (batch for batch in unflushed if batch.last_offset >= offset)

    def truncate(self, end_offset: int) -> int:
        """Drop the batches that reach beyond `end_offset`. Durable on return."""
        self.flush()
        with self._transaction():
            self._writer.execute("DELETE FROM batches WHERE last_offset >= ?", (end_offset,))
            (last_offset,) = self._writer.execute("SELECT max(last_offset) FROM batches").fetchone()
        self._end = self._flushed = self._start if last_offset is None else last_offset + 1
        self._epochs.truncate_to(self._end)
        return self._end

    # Snapshots

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """Return the ids of the snapshots, ascending."""
        with storage_errors(self._path):
            rows = self._reader.execute("SELECT epoch, offset FROM snapshots ORDER BY epoch, offset").fetchall()
        return [OffsetAndEpoch(epoch=epoch, offset=offset) for epoch, offset in rows]

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> SqliteSnapshotSink:
        """Open a new snapshot for writing."""
        return SqliteSnapshotSink(self, snapshot_id)

    def store_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Take over what a sink has gathered, unless the log begins behind it by now."""
        if snapshot_id.offset < self._start:
            return
        with self._transaction():
            row = (snapshot_id.epoch, snapshot_id.offset, data)
            self._writer.execute("INSERT OR IGNORE INTO snapshots VALUES (?, ?, ?)", row)

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SqliteSnapshotSource:
        """Open a stored snapshot for reading."""
        key = (snapshot_id.epoch, snapshot_id.offset)
        with storage_errors(self._path):
            row = self._reader.execute("SELECT data FROM snapshots WHERE epoch = ? AND offset = ?", key).fetchone()
        if row is None:
            raise StorageError(f"there is no snapshot {snapshot_id}", path=self._path)
        return SqliteSnapshotSource(row[0])

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drop every batch and begin anew at the end of this snapshot. Durable on return."""
        with self._transaction():
            self._unflushed.clear()
            self._writer.execute("DELETE FROM batches")
            self._forget_before(snapshot_id)
        self._start = self._end = self._flushed = snapshot_id.offset
        self._epochs = EpochTable()

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget what this snapshot replaces."""
        offset = max(self._start, snapshot_id.offset)
        with self._lock:
            with self._transaction():
                self._writer.execute("DELETE FROM batches WHERE last_offset < ?", (offset,))
                self._forget_before(snapshot_id)
            self._unflushed = [batch for batch in self._unflushed if batch.last_offset >= offset]
            self._start, self._flushed = offset, max(self._flushed, offset)
        self._epochs.start_at(offset)

    def _forget_before(self, snapshot_id: OffsetAndEpoch) -> None:
        key = (snapshot_id.epoch, snapshot_id.offset)
        self._writer.execute("DELETE FROM snapshots WHERE (epoch, offset) < (?, ?)", key)
        start = str(max(self._start, snapshot_id.offset))
        self._writer.execute("INSERT OR REPLACE INTO facts VALUES ('start_offset', ?)", (start,))

    # The rest

    def close(self) -> None:
        """Flush and let go. Calling it twice is allowed."""
        if not self._closed:
            self.flush()
            self._closed = True
            self._writer.close()
            self._reader.close()

    def _ensure_open(self) -> None:
        if self._closed:
            raise StorageError("the log is closed", path=self._path)

    def _fact(self, name: str) -> str | None:
        row = self._reader.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, and durable at the end."""
        with self._lock, storage_errors(self._path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")


class SqliteSnapshotSink:
    """A snapshot being written, in memory until it is frozen. A log for large states would write it piece by piece."""

    def __init__(self, log: SqliteLog, snapshot_id: OffsetAndEpoch) -> None:
        self._log = log
        self._snapshot_id = snapshot_id
        self._data: bytearray | None = bytearray()
        self._size = 0

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._size

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        if self._data is None:
            raise StorageError(f"snapshot {self._snapshot_id} is frozen or dropped")
        self._data += data
        self._size = len(self._data)

    def read_at(self, position: int, size: int) -> bytes:
        """Return some of what was written."""
        return bytes((self._data or b"")[position : position + size])

    def freeze(self) -> None:
        """Make it durable and visible, all or nothing."""
        if self._data is not None:
            self._log.store_snapshot(self._snapshot_id, bytes(self._data))
            self._data = None

    def abort(self) -> None:
        """Drop it, unless it is frozen."""
        self._data = None


class SqliteSnapshotSource:
    """A stored snapshot."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self._data)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        return self._data[position : position + size]

    def close(self) -> None:
        """Nothing to release."""


class SqliteElections:
    """A `kraftlib.QuorumStateStore`: epoch, leader and vote. A vote must never be forgotten, so a write is synced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with storage_errors(path):
            self._connection = connect(path)

    def read(self) -> ElectionState | None:
        """Return what was written last."""
        with storage_errors(self._path):
            row = self._connection.execute("SELECT value FROM facts WHERE name = 'election'").fetchone()
        if row is None:
            return None
        epoch, leader_id, voted_id, voted_directory = json.loads(row[0])
        directory_id = None if voted_directory is None else uuid.UUID(voted_directory)
        voted_key = None if voted_id is None else ReplicaKey(voted_id, directory_id)
        return ElectionState(epoch=epoch, leader_id=leader_id, voted_key=voted_key)

    def write(self, election: ElectionState, *, kraft_version: int, voters: Sequence[int] = ()) -> None:
        """Replace the election state. Durable on return: one statement is one transaction."""
        voted = election.voted_key
        directory_id = None if voted is None or voted.directory_id is None else str(voted.directory_id)
        value = json.dumps([election.epoch, election.leader_id, None if voted is None else voted.id, directory_id])
        with storage_errors(self._path):
            self._connection.execute("INSERT OR REPLACE INTO facts VALUES ('election', ?)", (value,))

    def close(self) -> None:
        """Let go. Calling it twice is allowed."""
        self._connection.close()


async def main() -> None:
    """Write through three replicas, stop all of them, and find everything again."""
    voters = ",".join(f"{number}@127.0.0.1:{free_port()}" for number in (1, 2, 3))
    with tempfile.TemporaryDirectory() as home:
        clients = await start(Path(home), voters)
        first = await append(clients, [b"one", b"two", b"three"])
        print(f"three records were committed, the last at offset {first.last_offset}")
        await stop(clients)

        clients = await start(Path(home), voters)
        second = await append(clients, [b"four"])
        print(f"after a restart a fourth was committed, at offset {second.last_offset}")
        for client in clients.values():
            await client.wait_for_offset(second.last_offset, timeout_ms=10_000)
        await stop(clients)

        logs = [SqliteLog(Path(home) / f"{number}.db") for number in (1, 2, 3)]
        values = [[value for batch in log.read(0, 1_000_000) for value in batch.values()] for log in logs]
        print("all three databases hold", values[0])
        assert values == [[b"one", b"two", b"three", b"four"]] * 3


async def start(home: Path, voters: str) -> dict[int, RaftClient[bytes]]:
    """Start three replicas on their databases."""
    clients: dict[int, RaftClient[bytes]] = {}
    for number in (1, 2, 3):
        config = RaftConfig.from_mapping({"node_id": number, "voters": voters})
        path = home / f"{number}.db"
        clients[number] = RaftClient(config, log=SqliteLog(path), elections=SqliteElections(path))
    await asyncio.gather(*(client.start() for client in clients.values()))
    return clients


async def append(clients: dict[int, RaftClient[bytes]], values: list[bytes]) -> Appended:
    """Append through whoever leads; try again, if that is about to change."""
    while True:
        leader = await clients[1].wait_for_leader(timeout_ms=10_000)
        try:
            return await clients[leader.leader_id or 1].append(values)
        except NotLeaderError:
            await asyncio.sleep(0.01)  # nothing was appended


async def stop(clients: dict[int, RaftClient[bytes]]) -> None:
    """Stop all replicas at once."""
    await asyncio.gather(*(client.shutdown() for client in clients.values()))


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    asyncio.run(main())
