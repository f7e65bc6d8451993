"""The kit for durability passes the logs that keep their promises, and finds each planted bug."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from examples.custom_log import SqliteElections, SqliteLog
from kraftlib.errors import InvariantError, StorageError
from kraftlib.records.batch import read_batch
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.log import FileReplicatedLog
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.testing.durability_contract import DURABILITY_CHECKS, STORE_DURABILITY_CHECKS
from kraftlib.testing.log_contract import LOG_CHECKS
from kraftlib.types import ElectionState, OffsetAndEpoch

Check = Callable[[Callable[[], Any]], None]


@pytest.mark.parametrize("check", DURABILITY_CHECKS, ids=lambda check: check.__name__)
def test_the_log_in_files_outlives_its_process(check: Check, tmp_path: Path) -> None:
    check(lambda: FileReplicatedLog.open(tmp_path))


@pytest.mark.parametrize("check", STORE_DURABILITY_CHECKS, ids=lambda check: check.__name__)
def test_the_votes_in_files_outlive_their_process(check: Check, tmp_path: Path) -> None:
    check(lambda: FileQuorumStateStore(tmp_path))


@pytest.mark.parametrize("check", STORE_DURABILITY_CHECKS, ids=lambda check: check.__name__)
def test_the_votes_in_sqlite_outlive_their_process(check: Check, tmp_path: Path) -> None:
    check(lambda: SqliteElections(tmp_path / "votes.db"))


class FlushesInMemory(SqliteLog):
    """Writes at close only."""

    def flush(self) -> int:
        if not self._closed:
            self._flushed = self._end
        return self._end

    def close(self) -> None:
        SqliteLog.flush(self)
        super().close()


class NeverSyncs(SqliteLog):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._writer.execute("PRAGMA synchronous = OFF")


class TruncatesInMemory(SqliteLog):
    """The batches that it hides come back with the next start."""

    def truncate(self, end_offset: int) -> int:
        self.flush()
        self._end = self._flushed = max(self._start, min(self._end, end_offset))
        self._epochs.truncate_to(self._end)
        return self._end


class TruncatesWithoutItsAppends(SqliteLog):
    """Forgets to flush what stands before the new end."""

    def truncate(self, end_offset: int) -> int:
        kept, self._unflushed = self._unflushed, []
        super().truncate(end_offset)
        self._unflushed = [batch for batch in kept if batch.last_offset < end_offset]
        self._end = self._unflushed[-1].end_offset if self._unflushed else self._end
        return self._end


class InstallsInMemory(SqliteLog):
    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._unflushed.clear()
        self._start = self._end = self._flushed = snapshot_id.offset
        self._epochs = EpochTable()


class ForgetsWhereItStarts(SqliteLog):
    def _forget_before(self, snapshot_id: OffsetAndEpoch) -> None:
        super()._forget_before(snapshot_id)
        self._writer.execute("DELETE FROM facts WHERE name = 'start_offset'")


class KeepsEpochsWhenItInstalls(SqliteLog):
    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        before = self._epochs
        super().install_snapshot(snapshot_id)
        self._epochs = before


class KeepsBatchesWhenItInstalls(SqliteLog):
    """And finds them at the next start."""

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        with self._transaction():
            self._unflushed.clear()
            self._forget_before(snapshot_id)
        self._start = self._end = self._flushed = snapshot_id.offset
        self._epochs = EpochTable()


class DeletesTooMuch(SqliteLog):
    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        super().delete_before(snapshot_id)
        with self._transaction():
            self._writer.execute("DELETE FROM batches WHERE base_offset <= ?", (snapshot_id.offset,))


class FreezesInMemory(SqliteLog):
    """A snapshot reaches the disk with the next flush."""

    def store_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        self._writer.execute("BEGIN IMMEDIATE")
        self._writer.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (snapshot_id.epoch, snapshot_id.offset, data))

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        rows = self._writer.execute("SELECT epoch, offset FROM snapshots ORDER BY epoch, offset").fetchall()
        return [OffsetAndEpoch(epoch=epoch, offset=offset) for epoch, offset in rows]


class CutsSnapshotsShort(SqliteLog):
    def store_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        super().store_snapshot(snapshot_id, data[: 1 << 16])


class ShowsWhatIsNotFrozen(SqliteLog):
    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> Any:
        self.store_snapshot(snapshot_id, b"")
        return super().create_snapshot(snapshot_id)


class WeighsNothing(SqliteLog):
    @property
    def size_bytes(self) -> int:
        return 0


class NeverLosesWeight(SqliteLog):
    heaviest = 0

    @property
    def size_bytes(self) -> int:
        self.heaviest = max(self.heaviest, super().size_bytes)
        return self.heaviest


class SwallowsErrors(SqliteLog):
    def flush(self) -> int:
        with contextlib.suppress(StorageError):
            return super().flush()
        self._flushed = self._end
        return self._end


class LetsErrorsOfSqliteThrough(SqliteLog):
    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")


class ClaimsWhatCameLater(SqliteLog):
    def flush(self) -> int:
        super().flush()
        self._flushed = self._end
        return self._end


class BelievesAnyBytes(SqliteLog):
    """Puts the checksum right before it looks at it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for base_offset, data in self._reader.execute("SELECT base_offset, data FROM batches").fetchall():
            mended = data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]
            self._writer.execute("UPDATE batches SET data = ? WHERE base_offset = ?", (mended, base_offset))


class DropsWhatIsDamaged(SqliteLog):
    """As if it had never been."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        rows = self._reader.execute("SELECT base_offset, data FROM batches ORDER BY base_offset").fetchall()
        damaged = [base_offset for base_offset, data in rows if not _is_whole(data)]
        if damaged:
            self.truncate(damaged[0])


class ForgetsTheLastBatch(SqliteLog):
    def __init__(self, path: Path) -> None:
        with sqlite3.connect(path) as database, contextlib.suppress(sqlite3.Error):
            database.execute("DELETE FROM batches WHERE base_offset = (SELECT max(base_offset) FROM batches)")
        database.close()
        super().__init__(path)


class DoubtsItsOwnEnd(SqliteLog):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._flushed = self._start


class TakesAppendsWhenClosed(SqliteLog):
    def _ensure_open(self) -> None:
        pass


class FlushesUnderTheLockOfAppends(SqliteLog):
    """Puts what was appended meanwhile away, and forgets it."""

    def flush(self) -> int:
        end = super().flush()
        threading.Event().wait(0.001)
        self._unflushed.clear()
        return end


def _is_whole(data: bytes) -> bool:
    try:
        read_batch(data)
    except StorageError:
        return False
    return True


PLANTED: list[type[SqliteLog]] = [
    FlushesInMemory, NeverSyncs, TruncatesInMemory, TruncatesWithoutItsAppends, InstallsInMemory, ForgetsWhereItStarts,
    KeepsEpochsWhenItInstalls, KeepsBatchesWhenItInstalls, DeletesTooMuch, FreezesInMemory, CutsSnapshotsShort,
    ShowsWhatIsNotFrozen, WeighsNothing, NeverLosesWeight, SwallowsErrors, LetsErrorsOfSqliteThrough,
    ClaimsWhatCameLater, BelievesAnyBytes, DropsWhatIsDamaged, ForgetsTheLastBatch, DoubtsItsOwnEnd,
    TakesAppendsWhenClosed, FlushesUnderTheLockOfAppends,
]  # fmt: skip


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_bug_of_a_log_is_found(kind: type[SqliteLog], tmp_path: Path) -> None:
    found = list(broken([*LOG_CHECKS, *DURABILITY_CHECKS], lambda number: lambda: kind(tmp_path / f"{number}.db")))
    assert found != []


class VotesInMemory(SqliteElections):
    def write(self, election: ElectionState, *, kraft_version: int, voters: Sequence[int] = ()) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN")
        super().write(election, kraft_version=kraft_version, voters=voters)

    def close(self) -> None:
        self._connection.commit()
        super().close()


class VotesWithoutSync(SqliteElections):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connection.execute("PRAGMA synchronous = OFF")


@pytest.mark.parametrize("kind", [VotesInMemory, VotesWithoutSync])
def test_a_planted_bug_of_an_election_store_is_found(kind: type[SqliteElections], tmp_path: Path) -> None:
    assert list(broken(STORE_DURABILITY_CHECKS, lambda number: lambda: kind(tmp_path / f"{number}.db"))) != []


def broken(checks: Sequence[Check], place: Callable[[int], Callable[[], Any]]) -> Iterator[str]:
    """Yield what the first check says that finds something; an error of the log itself counts, too."""
    for number, check in enumerate(checks):
        try:
            check(place(number))
        except (InvariantError, StorageError, sqlite3.Error, IndexError) as error:
            yield f"{check.__name__}: {error}"
            return
