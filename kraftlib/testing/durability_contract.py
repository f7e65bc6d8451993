"""Checks of the promise "durable on return", for any log and any election store that outlives its process.

As in `kraftlib.testing.log_contract` a check gets a function that opens the log. It opens it in a process of its own,
which ends without a good-bye in the middle of the work, and then opens it again here. So the function must open
everything anew, and this process must not have the log open.

    @pytest.mark.parametrize("check", DURABILITY_CHECKS)
    def test_my_log_outlives_its_process(check, tmp_path):
        check(lambda: MyLog(tmp_path / "log"))

A process that ends takes nothing with it that the system was given. Losses at a power cut are another matter: one of
the checks watches the system calls with strace, and fails where there is none.
"""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kraftlib.errors import StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.testing.dying_process import Die, in_a_dying_process, mark, open_files, syncs_what_it_writes
from kraftlib.testing.log_contract import ALL, OpenLog, OpenStore, fill, read_all, some_batch, store_snapshot
from kraftlib.types import ElectionState, OffsetAndEpoch, ReplicaKey

FLUSHES: Final = 12
_STATE: Final = bytes(range(256)) * 400


def what_was_flushed_outlives_the_process(open_log: OpenLog) -> None:
    """Batches that were not flushed may be gone, from the end only."""

    def work(die: Die) -> None:
        log = open_log()
        fill(log, 1, 1, 2, records=2)
        flushed = log.flush()
        fill(log, 2, 3, records=2)
        die(flushed)

    flushed = in_a_dying_process(work)
    log = open_log()
    found = _epochs(log)
    ensure(flushed == 6, f"a flush of 6 records says that {flushed} are durable")
    ensure(log.end_offset >= flushed, f"{flushed} records were durable, and {log.end_offset} are there")
    ensure(found == [1, 1, 2, 2, 3][: len(found)], f"the rest is the beginning of the appended batches, not {found}")
    ensure(log.flushed_offset == log.end_offset, "a log that was just opened is durable to its end")
    expected = [start.epoch for start in log.epoch_starts()]
    ensure(expected == sorted(set(found)), f"its epochs are {expected}, its batches have {found}")
    fill(log, 4)
    log.close()


def what_was_never_flushed_leaves_a_sound_log(open_log: OpenLog) -> None:
    """However much it was: a whole number of batches from the beginning, and no error."""

    def work(die: Die) -> None:
        log = open_log()
        for number in range(40):
            log.append([some_batch(number, 1, size=3_000)])
        die(None)

    in_a_dying_process(work)
    log = open_log()
    ensure([batch.base_offset for batch in read_all(log)] == list(range(log.end_offset)), "a beginning is left")
    fill(log, 2)
    log.flush()
    log.close()


def a_truncation_outlives_the_process(open_log: OpenLog) -> None:
    """The records that were cut off never come back: others may have been acknowledged in their place."""

    def cut(die: Die) -> None:
        log = open_log()
        fill(log, 1, 1, 2, 2)
        log.flush()
        die(log.truncate(2))

    def replace(die: Die) -> None:
        log = open_log()
        ensure(_epochs(log) == [1, 1], f"cut to two batches of epoch 1, it has {_epochs(log)} after its process ended")
        ensure([start.epoch for start in log.epoch_starts()] == [1], "epochs that were cut off stay away")
        fill(log, 3, 3, 3)
        log.truncate(4)
        die(log.end_offset)

    ensure(in_a_dying_process(cut) == 2, "a truncation returns the new end")
    ensure(in_a_dying_process(replace) == 4, "a truncation returns the new end")
    log = open_log()
    ensure(_epochs(log) == [1, 1, 3, 3], f"a truncation is durable with all before it; found {_epochs(log)}")
    log.close()


def a_frozen_snapshot_outlives_the_process(open_log: OpenLog) -> None:
    """Whole, and alone: one that was not frozen is not there."""

    def work(die: Die) -> None:
        log = open_log()
        fill(log, 1, 1, 1)
        log.flush()
        store_snapshot(log, 2, 1, _STATE)
        unfrozen = log.create_snapshot(OffsetAndEpoch(offset=3, epoch=1))
        unfrozen.write(_STATE)
        die(None)

    in_a_dying_process(work)
    log = open_log()
    ids = list(log.snapshots())
    ensure(ids == [OffsetAndEpoch(offset=2, epoch=1)], f"the frozen snapshot is there, and no other: {ids}")
    source = log.open_snapshot(ids[0])
    ensure(source.size == len(_STATE), f"a snapshot of {len(_STATE)} bytes has {source.size} in a new process")
    ensure(source.read_at(0, ALL) == _STATE, "its bytes are those that were written")
    source.close()
    log.close()


def an_installed_snapshot_outlives_the_process(open_log: OpenLog) -> None:
    """With its offset; the old batches and epochs never come back."""

    def work(die: Die) -> None:
        log = open_log()
        fill(log, 1, 1, 2)
        log.flush()
        log.install_snapshot(store_snapshot(log, 100, 7, _STATE))
        die(None)

    in_a_dying_process(work)
    log = open_log()
    ends = (log.start_offset, log.end_offset, log.flushed_offset)
    ensure(ends == (100, 100, 100), f"it begins and ends at 100, also in a new process; found {ends}")
    ensure(not log.epoch_starts(), f"the epochs of before are gone; found {log.epoch_starts()}")
    fill(log, 8)
    ensure([(s.epoch, s.start_offset) for s in log.epoch_starts()] == [(8, 100)], "the next epoch begins at 100")
    log.close()


def what_remains_after_a_deletion_outlives_the_process(open_log: OpenLog) -> None:
    """Nothing from the end of the snapshot on is deleted, and the snapshot is there."""

    def work(die: Die) -> None:
        log = open_log()
        fill(log, 1, 1, 2, 2, 3, records=2)
        log.flush()
        log.delete_before(store_snapshot(log, 6, 2))
        die(None)

    in_a_dying_process(work)
    log = open_log()
    ensure(log.start_offset <= 6 and log.end_offset == 10, f"6 to 10 are there; found {log.start_offset} on")
    ensure([batch.base_offset for batch in log.read(6, ALL)] == [6, 8], "and can be read")
    ensure(OffsetAndEpoch(offset=6, epoch=2) in log.snapshots(), "the snapshot that stands for the rest is there")
    log.close()


def a_flush_syncs(open_log: OpenLog) -> None:
    """After the last write: bytes that only the system has are lost with its power, unless they are synced."""

    def work(die: Die) -> None:
        log = open_log()
        fill(log, 1)
        log.flush()
        mark("begin")
        fill(log, 1, 1)
        log.flush()
        mark("end")
        die(None)

    ensure(syncs_what_it_writes(work), "a flush writes, and syncs after its last write")


def a_truncation_and_a_snapshot_sync(open_log: OpenLog) -> None:
    """They are durable on return, without a flush."""

    def truncate(die: Die) -> None:
        log = open_log()
        fill(log, 1, 1, 2)
        log.flush()
        mark("begin")
        log.truncate(1)
        fill(log, 3)
        log.truncate(2)
        mark("end")
        die(None)

    def freeze(die: Die) -> None:
        log = open_log()
        mark("begin")
        store_snapshot(log, 1, 3, _STATE)
        mark("end")
        die(None)

    ensure(syncs_what_it_writes(truncate), "a truncation syncs before it returns")
    ensure(syncs_what_it_writes(freeze), "a snapshot is synced before freeze() returns")


def an_error_of_the_disk_is_told(open_log: OpenLog) -> None:
    """As StorageError, by the append or by the flush; never as records that are durable."""

    def work(die: Die) -> None:
        log = open_log()
        fill(log, 1)
        log.flush()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            for _ in range(8):
                log.append([some_batch(log.end_offset, 1, size=100_000)])
            die(f"a flush says that {log.flush()} records are durable")
        except StorageError:
            die("")

    said = in_a_dying_process(work)
    ensure(said == "", f"the system refused every write, and there was no StorageError: {said}")
    log = open_log()
    ensure(_epochs(log)[:1] == [1], "records that were durable before the error are there")
    log.close()


def a_flush_vouches_for_nothing_that_came_later(open_log: OpenLog) -> None:
    """Appended while it runs, a record may miss the sync."""

    def work(die: Die) -> None:
        log = open_log()
        seen: list[list[int]] = []
        for _ in range(FLUSHES):
            fill(log, 1)
            before, running = log.end_offset, threading.Event()

            def flush(before: int = before, running: threading.Event = running) -> None:
                running.set()
                said = log.flush()
                seen.append([before, said, log.end_offset])

            thread = threading.Thread(target=flush)
            thread.start()
            running.wait()
            while thread.is_alive():
                fill(log, 1)
                # A log that lets go of Python's lock at each row would be given rows faster than it takes them.
                thread.join(0.0001)
        die(seen)

    seen = in_a_dying_process(work)
    ensure(len(seen) == FLUSHES, f"{FLUSHES - len(seen)} of {FLUSHES} flushes beside appends have failed")
    for before, said, end in seen:
        ensure(before <= said <= end, f"a flush that began at {before} says {said}, and the log ends at {end}")
    late = sum(said == end for _, said, end in seen)
    ensure(
        late <= len(seen) // 2,
        f"{late} of {len(seen)} flushes beside appends vouch for the newest record, which may have missed the sync",
    )


def a_damaged_batch_is_not_believed(open_log: OpenLog) -> None:
    """A bit that flips on the disk is found at the next start, or by the read, and the batch is never handed out."""

    def work(die: Die) -> None:
        log = open_log()
        fill(log, 1, 1, 1)
        log.flush()
        files = [str(path) for path in open_files()]
        log.close()
        die(files)

    files = [Path(name) for name in in_a_dying_process(work)]
    places = {other for path in files for other in path.parent.iterdir() if other.is_file()}
    value = some_batch(1, 1).values()[0]
    hurt = [path for path in places if _flip(path, value)]
    ensure(
        hurt, f"no file beside {files} has the value {value!r}: of a log that hides it, try damage in a way of your own"
    )
    try:
        log = open_log()
        found = log.read(1, ALL)
        log.close()
    except StorageError:
        return
    ensure(found != [], "records that were durable are gone without a word")
    ensure(
        found[0].values()[0] == value, f"a batch with a wrong checksum is given to readers: {found[0].values()[0]!r}"
    )


def _flip(path: Path, value: bytes) -> bool:
    data = bytearray(path.read_bytes())
    at = data.find(value)
    while at >= 0:
        data[at + 1] ^= 1
        path.write_bytes(data)
        at = data.find(value)
    return path.read_bytes().find(bytes([value[0], value[1] ^ 1]) + value[2:]) >= 0


def _epochs(log: ReplicatedLog) -> list[int]:
    found: Sequence[Batch] = read_all(log)
    return [batch.epoch for batch in found]


DURABILITY_CHECKS: Final[Sequence[Callable[[OpenLog], None]]] = (
    what_was_flushed_outlives_the_process,
    what_was_never_flushed_leaves_a_sound_log,
    a_truncation_outlives_the_process,
    a_frozen_snapshot_outlives_the_process,
    an_installed_snapshot_outlives_the_process,
    what_remains_after_a_deletion_outlives_the_process,
    a_flush_syncs,
    a_truncation_and_a_snapshot_sync,
    an_error_of_the_disk_is_told,
    a_flush_vouches_for_nothing_that_came_later,
    a_damaged_batch_is_not_believed,
)


# Election stores ----------------------------------------------------------------------------------


def a_vote_outlives_the_process(open_store: OpenStore) -> None:
    """It is sent as soon as write() returns, and must not be cast twice."""
    vote = ElectionState(epoch=7, voted_key=ReplicaKey(2))

    def work(die: Die) -> None:
        store: QuorumStateStore = open_store()
        store.write(ElectionState(epoch=6), kraft_version=1)
        store.write(vote, kraft_version=1)
        die(None)

    in_a_dying_process(work)
    store = open_store()
    found = store.read()
    store.close()
    ensure(found == vote, f"a vote of epoch 7 was written, and {found} is read in a new process")


def a_vote_is_synced(open_store: OpenStore) -> None:
    """Before write() returns."""

    def work(die: Die) -> None:
        store = open_store()
        store.write(ElectionState(epoch=1), kraft_version=1)
        mark("begin")
        store.write(ElectionState(epoch=2), kraft_version=1)
        mark("end")
        die(None)

    ensure(syncs_what_it_writes(work), "a write of the election state syncs after its last write")


STORE_DURABILITY_CHECKS: Final[Sequence[Callable[[OpenStore], None]]] = (a_vote_outlives_the_process, a_vote_is_synced)
