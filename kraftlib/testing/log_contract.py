"""The contract of every log and every election store, as checks for any implementation.

A check is a function of one argument, a function that opens the store: first an empty one, later, after `close`, the
same one again. With pytest:

    @pytest.mark.parametrize("check", LOG_CHECKS)
    def test_my_log_keeps_the_contract(check, tmp_path):
        check(lambda: MyLog(tmp_path / "log"))

A broken promise raises InvariantError, which is an AssertionError and says what was promised.
"""

from __future__ import annotations

import random as chance
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from kraftlib.errors import InvariantError, StorageError, ensure
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import ElectionState, EpochStart, OffsetAndEpoch, ReplicaKey

OpenLog = Callable[[], ReplicatedLog]
OpenStore = Callable[[], QuorumStateStore]

ALL: Final = 1 << 30
_TIMESTAMP: Final = 1_700_000_000_000


def some_batch(base_offset: int, epoch: int, *, records: int = 1, size: int = 20) -> Batch:
    """Return a batch whose values tell where it stands."""
    values = [f"{base_offset + n}@{epoch}".encode().ljust(size, b".") for n in range(records)]
    return encode_batch(values, timestamp_ms=_TIMESTAMP, base_offset=base_offset, epoch=epoch)


def fill(log: ReplicatedLog, *epochs: int, records: int = 1) -> None:
    """Append one batch per epoch named, each by itself."""
    for epoch in epochs:
        log.append([some_batch(log.end_offset, epoch, records=records)])


def store_snapshot(log: ReplicatedLog, offset: int, epoch: int, data: bytes = b"a snapshot") -> OffsetAndEpoch:
    """Write and freeze a snapshot; return its id."""
    snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
    sink = log.create_snapshot(snapshot_id)
    sink.write(data)
    sink.freeze()
    return snapshot_id


def read_all(log: ReplicatedLog, max_bytes: int = ALL) -> list[Batch]:
    """Return every batch, read piece by piece."""
    found: list[Batch] = []
    offset = log.start_offset
    while batches := log.read(offset, max_bytes):
        found += batches
        offset = batches[-1].last_offset + 1
    ensure(offset == log.end_offset, f"reads end at {offset}, the log at {log.end_offset}")
    return found


def refuses(error: type[BaseException], call: Callable[[], object], what: str) -> None:
    """Check that `call` raises `error`."""
    try:
        call()
    except error:
        return
    raise InvariantError(f"{what}: expected {error.__name__}, and there was no error")


# Logs ---------------------------------------------------------------------------------------------


def a_new_log_is_empty(open_log: OpenLog) -> None:
    """Start, end and flushed offset are 0, and there is nothing to read."""
    log = open_log()
    ensure(isinstance(log, ReplicatedLog), f"{type(log).__name__} lacks methods of ReplicatedLog")
    ensure((log.start_offset, log.end_offset, log.flushed_offset) == (0, 0, 0), "a new log begins and ends at 0")
    ensure(not log.epoch_starts() and not log.snapshots(), "a new log has neither epochs nor snapshots")
    ensure(not log.read(0, ALL), "there is nothing to read in a new log")
    ensure(log.flush() == 0, "flushing an empty log returns 0")
    log.close()


def what_is_appended_is_read_before_any_flush(open_log: OpenLog) -> None:
    """Byte for byte, whether it was appended alone or with others."""
    log = open_log()
    batches = [some_batch(0, 1), some_batch(1, 1, records=3), some_batch(4, 2, records=2)]
    log.append(batches[:1])
    log.append(batches[1:])
    log.append([])
    ensure(log.end_offset == 6, f"the log ends at {log.end_offset} after 6 records")
    ensure(read_all(log) == batches, "batches are read as they were appended")
    ensure(log.flushed_offset == 0, "an append alone makes nothing durable")
    log.close()


def a_read_returns_whole_batches_and_at_least_one(open_log: OpenLog) -> None:
    """From the one that contains the offset, up to the bytes that are wanted."""
    log = open_log()
    fill(log, 1, 1, 1, 1, records=2)
    size = len(read_all(log)[0].data)
    ensure([b.base_offset for b in log.read(3, 1)] == [2], "a read begins with the batch that contains the offset")
    ensure([b.base_offset for b in log.read(2, 2 * size)] == [2, 4], "a read takes what fits")
    ensure([b.base_offset for b in log.read(2, 2 * size - 1)] == [2], "a read takes no more than fits")
    ensure(len(log.read(0, ALL)) >= 1, "a read takes at least one batch")
    ensure(not log.read(8, ALL), "there is nothing at the end")
    refuses(InvariantError, lambda: log.read(9, ALL), "a read beyond the end")
    ensure([b.base_offset for b in read_all(log, 1)] == [0, 2, 4, 6], "piece by piece everything is read")
    log.close()


def what_does_not_continue_the_log_is_refused(open_log: OpenLog) -> None:
    """A gap, an overlap, an older epoch; also inside one call, of which then nothing is kept."""
    log = open_log()
    fill(log, 2, 2)
    for wrong in (some_batch(3, 2), some_batch(1, 2), some_batch(2, 1)):
        refuses(InvariantError, partial(log.append, [wrong]), f"appending {wrong!r} at 2@2")
    refuses(InvariantError, lambda: log.append([some_batch(2, 3), some_batch(3, 2)]), "an epoch that falls")
    ensure(log.end_offset == 2 and len(read_all(log)) == 2, "a refused batch leaves no trace")
    fill(log, 3)
    log.close()


def epochs_are_noted(open_log: OpenLog) -> None:
    """With their first batch, or before it has any; one without a batch gives way."""
    log = open_log()
    fill(log, 1, 1, 3)
    expected = [EpochStart(epoch=1, start_offset=0), EpochStart(epoch=3, start_offset=2)]
    ensure(list(log.epoch_starts()) == expected, f"epochs are {log.epoch_starts()}, not {expected}")
    log.begin_epoch(5, 3)
    log.begin_epoch(5, 3)
    ensure(list(log.epoch_starts()) == [*expected, EpochStart(epoch=5, start_offset=3)], "an epoch may begin empty")
    log.begin_epoch(6, 3)
    fill(log, 6)
    ensure(list(log.epoch_starts()) == [*expected, EpochStart(epoch=6, start_offset=3)], "an empty epoch gives way")
    log.close()


def a_flush_makes_durable_what_was_appended(open_log: OpenLog) -> None:
    """And it says up to which offset."""
    log = open_log()
    fill(log, 1, 1)
    ensure(log.flush() == 2 == log.flushed_offset, "a flush reaches the end")
    fill(log, 1)
    ensure((log.flushed_offset, log.end_offset) == (2, 3), "batches after a flush are not durable")
    ensure(log.flush() == 3 == log.flush(), "a flush may be repeated")
    log.close()


def a_flush_runs_beside_appends_and_reads(open_log: OpenLog) -> None:
    """On another thread, as the disk thread of the engine does; each vouches for the batches that were there when it
    began."""
    log = open_log()
    ends: list[tuple[int, int, int]] = []
    done = threading.Event()

    def flush() -> None:
        while not done.is_set():
            before = log.end_offset
            ends.append((before, log.flush(), log.end_offset))

    with ThreadPoolExecutor(1) as pool:
        flushing = pool.submit(flush)
        try:
            for number in range(300):
                fill(log, 1 + number // 100)
                ensure(log.read(number, 1)[0].base_offset == number, "appended batches are read while a flush runs")
        finally:
            done.set()
        flushing.result(timeout=60)
    ensure(all(before <= end <= after for before, end, after in ends), "a flush reaches what was there when it began")
    ensure(log.flush() == 300 and len(read_all(log)) == 300, "nothing is lost")
    log.close()


def a_truncation_drops_whole_batches(open_log: OpenLog) -> None:
    """Those that reach beyond the new end; epochs go with them, and the log goes on there."""
    log = open_log()
    fill(log, 1, 1, 2, 4, records=2)
    ensure(log.truncate(8) == 8, "there is nothing beyond the end")
    ensure(log.truncate(6) == 6, "a truncation at a boundary is exact")
    ensure(log.truncate(3) == 2, "a batch that reaches beyond the end goes as a whole")
    ensure((log.end_offset, log.flushed_offset) == (2, 2), "the rest is durable")
    ensure([start.epoch for start in log.epoch_starts()] == [1], "epochs go with their batches")
    fill(log, 3, 3)
    ensure([(b.base_offset, b.epoch) for b in read_all(log)] == [(0, 1), (2, 3), (3, 3)], "other batches take over")
    log.flush()
    ensure(log.truncate(0) == 0 and not log.epoch_starts(), "everything may go")
    fill(log, 5)
    log.close()
    ensure([(b.base_offset, b.epoch) for b in read_all(open_log())] == [(0, 5)], "a truncation lasts")


def a_closed_log_opens_as_it_was(open_log: OpenLog) -> None:
    """Batches, epochs and snapshots; and all of it is durable."""
    log = open_log()
    fill(log, 1, 2, 2, records=3)
    snapshot_id = store_snapshot(log, 3, 1)
    before = read_all(log)
    log.close()
    log.close()
    refuses(StorageError, lambda: fill(log, 2), "an append to a closed log")
    again = open_log()
    ensure(read_all(again) == before, "batches are there again")
    ensure(again.flushed_offset == again.end_offset == 9, "a closed log is durable")
    ensure([start.start_offset for start in again.epoch_starts()] == [0, 3], "epochs are there again")
    ensure(list(again.snapshots()) == [snapshot_id], "snapshots are there again")
    fill(again, 3)
    again.close()


def a_snapshot_exists_once_frozen(open_log: OpenLog) -> None:
    """All or nothing."""
    log = open_log()
    fill(log, 1, 1)
    snapshot_id = OffsetAndEpoch(offset=2, epoch=1)
    refuses(StorageError, lambda: log.open_snapshot(snapshot_id), "a snapshot that is not there")
    dropped = log.create_snapshot(snapshot_id)
    dropped.write(b"dropped")
    dropped.abort()
    sink = log.create_snapshot(snapshot_id)
    sink.write(b"0123")
    sink.write(memoryview(b"456789"))
    ensure(sink.size == 10 and sink.read_at(3, 4) == b"3456", "written bytes can be read before the snapshot is frozen")
    ensure(not log.snapshots(), "a snapshot that is being written does not exist yet")
    sink.freeze()
    sink.abort()
    ensure(list(log.snapshots()) == [snapshot_id], "a frozen snapshot exists")
    source = log.open_snapshot(snapshot_id)
    ensure(source.size == 10 and source.read_at(8, 100) == b"89" and source.read_at(10, 1) == b"", "reads end with it")
    source.close()
    store_snapshot(log, 1, 1)
    ensure([s.offset for s in log.snapshots()] == [1, 2], "snapshots are listed in order")
    log.close()


def an_installed_snapshot_replaces_the_log(open_log: OpenLog) -> None:
    """Which begins anew at its end, also after a restart."""
    log = open_log()
    fill(log, 1, 1, 2)
    store_snapshot(log, 2, 1)
    snapshot_id = store_snapshot(log, 100, 7)
    log.install_snapshot(snapshot_id)
    ensure((log.start_offset, log.end_offset, log.flushed_offset) == (100, 100, 100), "the log begins at its end")
    ensure(list(log.snapshots()) == [snapshot_id] and not log.epoch_starts(), "older snapshots and epochs are gone")
    refuses(StorageError, lambda: log.read(2, ALL), "a read below the start")
    log.close()
    log = open_log()
    ensure((log.start_offset, log.end_offset) == (100, 100), "a restart changes nothing")
    fill(log, 8, 8)
    starts = [(start.epoch, start.start_offset) for start in log.epoch_starts()]
    ensure(starts == [(8, 100)], f"the only epoch is that of the batches behind the snapshot; found {starts}")
    ensure(log.truncate(100) == 100, "the log may be emptied again")
    fill(log, 9)
    log.close()
    ensure([(b.base_offset, b.epoch) for b in read_all(open_log())] == [(100, 9)], "the log goes on")


def its_size_is_that_of_its_batches(open_log: OpenLog) -> None:
    """Retention counts it: it grows with each append, and dropped batches no longer count."""
    log = open_log()
    sizes = [log.size_bytes]
    for _ in range(2):
        log.append([some_batch(log.end_offset, 1, size=5_000)])
        sizes.append(log.size_bytes)
    log.flush()
    sizes.append(log.size_bytes)
    least = sum(len(batch.data) for batch in read_all(log))
    ensure(sizes[0] < sizes[1] < sizes[2] <= sizes[3], f"sizes grow with each append: {sizes}")
    ensure(sizes[3] >= least, f"{least} bytes of batches count as {sizes[3]}")
    log.truncate(1)
    ensure(log.size_bytes < sizes[2], f"a truncation makes it smaller: {sizes[2]}, then {log.size_bytes}")
    log.install_snapshot(store_snapshot(log, 100, 7))
    ensure(log.size_bytes < sizes[1], f"an installed snapshot leaves no batch: {log.size_bytes} bytes count")
    log.close()
    again = open_log()
    ensure(again.size_bytes < sizes[1], f"nor after a restart: {again.size_bytes} bytes count")
    again.close()


def what_a_snapshot_replaces_may_go(open_log: OpenLog) -> None:
    """But nothing from its end on; the log decides how much below it goes."""
    log = open_log()
    fill(log, 1, 1, 2, 2, 3, records=2)
    store_snapshot(log, 2, 1)
    snapshot_id = store_snapshot(log, 6, 2)
    log.delete_before(snapshot_id)
    ensure(log.start_offset <= 6, "nothing from the end of the snapshot on is deleted")
    ensure([b.base_offset for b in log.read(6, ALL)][:1] == [6], "the log can be read from there")
    ensure(list(log.snapshots()) == [snapshot_id], "older snapshots are gone")
    log.flush()
    log.close()
    again = open_log()
    ensure(again.start_offset <= 6 and again.end_offset == 10, "a restart changes nothing")
    again.close()


def a_snapshot_that_comes_too_late_is_dropped(open_log: OpenLog) -> None:
    """The log begins behind it by the time it is frozen."""
    for installed, epochs in ((False, (1, 1, 2, 2)), (True, (3, 3, 4, 4))):
        log = open_log()
        end = log.end_offset
        fill(log, *epochs)
        late = OffsetAndEpoch(offset=end + 2, epoch=epochs[1])
        sink = log.create_snapshot(late)
        sink.write(b"late")
        newer = store_snapshot(log, end + 4, epochs[3])
        (log.install_snapshot if installed else log.delete_before)(newer)
        sink.freeze()
        ensure(late not in log.snapshots() or log.start_offset < late.offset, f"{late} is before {log.start_offset}")
        log.close()


def it_agrees_with_the_memory_log(open_log: OpenLog, *, seed: int = 0, steps: int = 200) -> None:
    """On a long random life, restarts included."""
    random = chance.Random(seed)
    log, twin = open_log(), MemoryReplicatedLog()
    epoch = 1
    for _ in range(steps):
        step = random.choices(("append", "flush", "truncate", "reopen", "delete"), (20, 4, 2, 1, 1))[0]
        if step == "append":
            batches: list[Batch] = []
            for _ in range(random.randint(1, 3)):
                epoch += random.random() < 0.1
                at = batches[-1].end_offset if batches else twin.end_offset
                batches.append(some_batch(at, epoch, records=random.randint(1, 3), size=random.choice((10, 500))))
            log.append(batches)
            twin.append(batches)
        elif step == "flush":
            ensure(log.flush() == twin.flush(), "flushes agree")
        elif step == "truncate":
            at = random.randint(max(twin.start_offset, twin.end_offset - 9), twin.end_offset)
            ensure(log.truncate(at) == twin.truncate(at), f"truncations to {at} agree")
        elif step == "reopen":
            log.close()
            twin.close()
            log, twin = open_log(), twin.reopen()
        elif twin.end_offset > twin.start_offset:
            batch = random.choice(twin.read(twin.start_offset, ALL))
            _delete(log, twin, OffsetAndEpoch(offset=batch.end_offset, epoch=batch.epoch))
        _compare(log, twin, random)
    log.close()


def _delete(log: ReplicatedLog, twin: MemoryReplicatedLog, snapshot_id: OffsetAndEpoch) -> None:
    for each in (log, twin):
        if snapshot_id not in each.snapshots():
            store_snapshot(each, snapshot_id.offset, snapshot_id.epoch)
        each.delete_before(snapshot_id)


def _compare(log: ReplicatedLog, twin: MemoryReplicatedLog, random: chance.Random) -> None:
    ensure(log.start_offset <= twin.start_offset, "no more is deleted than may be")
    ends = (log.end_offset, log.flushed_offset)
    ensure(ends == (twin.end_offset, twin.flushed_offset), f"end and flushed end {ends} agree")
    ensure(list(log.snapshots()) == list(twin.snapshots()), "snapshots agree")
    here = [start for start in twin.epoch_starts() if start.start_offset > twin.start_offset]
    there = [start for start in log.epoch_starts() if start.start_offset > twin.start_offset]
    ensure(here == there, f"epochs agree: {here}, {there}")
    if twin.end_offset > twin.start_offset:
        offset, max_bytes = random.randrange(twin.start_offset, twin.end_offset), random.choice((1, 700, ALL))
        ours, theirs = log.read(offset, max_bytes), twin.read(offset, max_bytes)
        ensure(
            0 < len(ours) <= len(theirs), f"a read at {offset} returns something, and no more than {max_bytes} bytes"
        )
        ensure(list(ours) == list(theirs)[: len(ours)], f"reads at {offset} agree")


LOG_CHECKS: Final[Sequence[Callable[[OpenLog], None]]] = (
    a_new_log_is_empty,
    what_is_appended_is_read_before_any_flush,
    a_read_returns_whole_batches_and_at_least_one,
    what_does_not_continue_the_log_is_refused,
    epochs_are_noted,
    a_flush_makes_durable_what_was_appended,
    a_flush_runs_beside_appends_and_reads,
    a_truncation_drops_whole_batches,
    a_closed_log_opens_as_it_was,
    a_snapshot_exists_once_frozen,
    an_installed_snapshot_replaces_the_log,
    its_size_is_that_of_its_batches,
    what_a_snapshot_replaces_may_go,
    a_snapshot_that_comes_too_late_is_dropped,
    it_agrees_with_the_memory_log,
)


# Election stores ----------------------------------------------------------------------------------

_DIRECTORY: Final = uuid.UUID(int=0x0123456789)
_ELECTIONS: Final = (
    ElectionState(epoch=0),
    ElectionState(epoch=3, voted_key=ReplicaKey(2, _DIRECTORY)),
    ElectionState(epoch=3, leader_id=2, voted_key=ReplicaKey(2, _DIRECTORY)),
    ElectionState(epoch=4, leader_id=0),
)


def a_new_store_knows_nothing(open_store: OpenStore) -> None:
    """Which is not the same as epoch 0."""
    store = open_store()
    ensure(isinstance(store, QuorumStateStore), f"{type(store).__name__} lacks methods of QuorumStateStore")
    ensure(store.read() is None, "nothing was ever written")
    store.close()


def what_was_written_last_is_read(open_store: OpenStore) -> None:
    """At once and after a restart."""
    for election in _ELECTIONS:
        store = open_store()
        store.read()
        store.write(ElectionState(epoch=election.epoch), kraft_version=1)
        store.write(election, kraft_version=1)
        ensure(store.read() == election, f"{election} is read back")
        store.close()
        ensure(open_store().read() == election, f"{election} survives a restart")


def kraft_version_0_keeps_all_but_the_directory_id(open_store: OpenStore) -> None:
    """Its file has no place for it; a store that keeps it is welcome."""
    vote = ReplicaKey(2, _DIRECTORY)
    store = open_store()
    store.read()
    store.write(ElectionState(epoch=3, leader_id=2, voted_key=vote), kraft_version=0, voters=(1, 2, 3))
    store.close()
    election = open_store().read()
    ensure(
        election in [ElectionState(epoch=3, leader_id=2, voted_key=key) for key in (vote, ReplicaKey(2))],
        f"{election} is what was written",
    )


def a_closed_store_takes_no_more_votes(open_store: OpenStore) -> None:
    """Another process may own the directory by now."""
    store = open_store()
    store.close()
    store.close()
    refuses(StorageError, lambda: store.write(ElectionState(epoch=1), kraft_version=1), "a write after close")


STORE_CHECKS: Final[Sequence[Callable[[OpenStore], None]]] = (
    a_new_store_knows_nothing,
    what_was_written_last_is_read,
    kraft_version_0_keeps_all_but_the_directory_id,
    a_closed_store_takes_no_more_votes,
)
