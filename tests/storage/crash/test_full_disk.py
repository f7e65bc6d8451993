"""Each call of a start and of a run finds the disk full, one after the other: the replica goes on from its reserve."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.errors import StorageError
from kraftlib.runtime.log_repair import LogRepair
from kraftlib.runtime.snapshots.transfer import LogSnapshots
from kraftlib.storage import names
from kraftlib.storage.directory import OpenDirectory, open_directory
from kraftlib.storage.reserve import is_full
from kraftlib.storage.snapshots.download_files import DownloadFiles
from kraftlib.types import ElectionState, OffsetAndEpoch, OffsetRange, ReplicaKey
from tests.storage.builders import snapshot_bytes, some_batches
from tests.storage.crash.faulty import distinct
from tests.storage.images.history import History, config_of, history
from tools.storage_proof.file_trace import Fault, FileTrace
from tools.storage_proof.os_watch import Call

FULL = Fault(errno=errno.ENOSPC)
RESERVE_BYTES = 64 << 10
DOWNLOADED = OffsetAndEpoch(offset=500, epoch=9)


@attrs.define
class FullFrom:
    """A disk that is full from one call on, until the reserve is given back; or with nothing to give back."""

    place: int
    has_reserve: bool = True
    calls: int = 0
    hit: Call | None = None
    """The first call that found no space."""
    has_space: bool = False

    def end(self) -> None:
        """There is space from now on."""
        self.has_space = True

    def __call__(self, call: Call) -> Fault | None:
        place, self.calls = self.calls, self.calls + 1
        if self.has_reserve and call.name == "unlink" and Path(call.arguments[0]).name == names.RESERVE:
            self.has_space = self.hit is not None
        if place < self.place or self.has_space or not _takes_space(call):
            return None
        self.hit = self.hit or call
        return FULL


def _takes_space(call: Call) -> bool:
    """Whether a file system may refuse this call for want of space; some write anew even what is written in place.

    A sync that fails is another matter: it is never tried again, whatever the reason.
    """
    if call.name == "open":
        return bool(call.arguments[1] & os.O_CREAT)
    return call.name in ("pwrite", "pwritev", "ftruncate", "mkdir", "replace", "posix_fallocate", "fallocate")


@attrs.define
class Replica:
    """What a run acknowledges; it is looked for afterwards."""

    directory: Path
    opened: OpenDirectory | None = None
    acknowledged: int = 0
    """Offset up to which records were flushed and never cut."""
    election: ElectionState | None = None
    voting: ElectionState | None = None
    refused: list[str] = attrs.Factory(list)
    """What was put off for want of space."""
    make_space: Callable[[], None] = lambda: None

    def put_off(self, reason: str) -> None:
        """Somebody else makes space when something was put off for the second time."""
        assert "No space left" in reason
        self.refused.append(reason)
        if len(self.refused) > 1:
            self.make_space()

    def start(self) -> OpenDirectory:
        opened = self.opened = open_directory(_config(self.directory))
        opened.elections.read()
        return opened

    def vote(self, election: ElectionState) -> None:
        assert self.opened is not None
        self.voting = election
        self.opened.elections.write(election, kraft_version=0, voters=[1, 2, 3])
        self.election = election

    def append(self, *epochs: int, size: int = 300) -> None:
        assert self.opened is not None
        log = self.opened.log
        log.append(some_batches(*epochs, base_offset=log.end_offset, size=size))
        self.acknowledged = log.flush()

    def truncate(self, end_offset: int) -> None:
        assert self.opened is not None
        self.acknowledged = min(self.acknowledged, end_offset)
        self.acknowledged = self.opened.log.truncate(end_offset)

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()


def _config(directory: Path) -> RaftConfig:
    config = config_of(directory)
    object.__setattr__(config, "disk_reserve_bytes", RESERVE_BYTES)
    return config


def lead(replica: Replica) -> None:
    """Votes, records in several segments, a snapshot that replaces some, and a clean end."""
    opened = replica.start()
    replica.vote(ElectionState(epoch=7, voted_key=ReplicaKey(1)))
    replica.vote(ElectionState(epoch=7, leader_id=1))
    for _ in range(7):
        replica.append(7, 7)
    snapshot_id = OffsetAndEpoch(offset=opened.log.end_offset - 3, epoch=7)
    if _snapshot(replica, snapshot_id):
        opened.log.delete_before(snapshot_id)
    replica.append(7)
    replica.close()


def _snapshot(replica: Replica, snapshot_id: OffsetAndEpoch) -> bool:
    """Write a snapshot of the own state; where there is no space it is dropped."""
    assert replica.opened is not None
    sink = None
    try:
        sink = replica.opened.log.create_snapshot(snapshot_id)
        sink.write(snapshot_bytes(snapshot_id))
        sink.freeze()
    except StorageError as error:
        replica.put_off(str(error))
        if sink is not None:
            sink.abort()
        assert not list(replica.directory.rglob("*.part"))
        return False
    return True


def follow(replica: Replica) -> None:
    """The log is cut twice, goes on, and is replaced by a snapshot of the leader's."""
    opened = replica.start()
    replica.vote(ElectionState(epoch=7, leader_id=2))
    replica.append(7, 7, 7, size=900)
    replica.truncate(opened.log.end_offset - 1)
    replica.truncate(opened.log.end_offset - 4)
    replica.append(8, size=900)
    replica.vote(ElectionState(epoch=9, leader_id=3))
    partition = replica.directory / names.PARTITION_DIRECTORY
    snapshots = LogSnapshots(opened.log, downloads=DownloadFiles(partition, frozen=opened.log.adopt_snapshot))
    while not _download(replica, snapshots):
        assert len(replica.refused) < 3
    replica.acknowledged = opened.log.end_offset
    assert replica.acknowledged == DOWNLOADED.offset
    replica.append(9)
    replica.close()


def _download(replica: Replica, snapshots: LogSnapshots) -> bool:
    """Fetch a snapshot in two chunks; where there is no space it is begun anew."""
    data = snapshot_bytes(DOWNLOADED)
    for begin, end in ((0, 100), (100, len(data))):
        answer = snapshots.write(act.WriteSnapshotChunk(DOWNLOADED, begin, data[begin:end], size=len(data)))
        if isinstance(answer, ev.SnapshotRefused):
            replica.put_off(answer.reason)
            return False
    installed = snapshots.install(DOWNLOADED)
    if isinstance(installed, ev.SnapshotRefused):
        replica.put_off(installed.reason)
        return False
    return True


def repair(replica: Replica) -> None:
    """A batch is damaged, and what others have takes its place."""
    opened = replica.start()
    replica.vote(ElectionState(epoch=7, leader_id=2))
    log = opened.log
    whole = next(batch for batch in log.scan() if batch.base_offset > log.snapshots()[-1].offset)
    path = max(path for path in replica.directory.rglob("*.log") if int(path.stem) <= whole.base_offset)
    data = path.read_bytes()
    assert bytes(whole.data) in data
    with path.open("r+b") as file:
        file.seek(data.index(bytes(whole.data)) + 70)
        file.write(b"????")
    assert log.find_damage(whole.base_offset) == (OffsetRange(whole.base_offset, whole.end_offset),)
    while log.holes():
        assert len(replica.refused) < 3
        answer = LogRepair(log).write([whole])
        if isinstance(answer, ev.RepairRefused):
            replica.put_off(answer.reason)
    replica.append(7)
    log.set_snapshot_aside(log.snapshots()[-1], "it is damaged")
    replica.close()


def start_only(replica: Replica) -> None:
    """Open what is there, and end."""
    replica.start()
    replica.close()


PASTS = {
    "killed": {"closed": False, "compacted": False},
    "killed, behind a snapshot": {"closed": False, "compacted": True},
    "closed": {"closed": True, "compacted": False},
}


def made(past: str, place: Path) -> History:
    return history(place / "history", **PASTS[past])


def laid_out(past: History, directory: Path, *, reserve: bool = True, torn: bool = False) -> Path:
    """Lay out what an earlier life has left, its reserve among it, and a batch that it was writing."""
    shutil.rmtree(directory, ignore_errors=True)
    past.image.lay_out(directory)
    partition = directory / names.PARTITION_DIRECTORY
    (partition / names.RESERVE).unlink(missing_ok=True)
    if reserve:
        (partition / names.RESERVE).write_bytes(bytes(RESERVE_BYTES))
    if torn:
        with max(partition.glob("*.log")).open("ab") as file:
            file.write(bytes(some_batches(9, base_offset=past.end_offset)[0].data[:-9]))
        (partition / f"{7:020d}-{1:010d}-77.checkpoint.part").write_bytes(b"half")
    return directory


def places(life: Callable[[Replica], None], past: History, directory: Path, *, torn: bool = False) -> list[int]:
    """Return the places of the calls that take space: the first and the last one of each way to each line."""
    replica = Replica(laid_out(past, directory, torn=torn))
    with FileTrace(replica.directory, with_stacks=True) as trace:
        life(replica)
        assert replica.refused == []
    return sorted(place for place, call in distinct(trace.calls) if _takes_space(call))


def look_again(replica: Replica, past: History) -> None:
    """Start once more, with space: what was acknowledged is there, and the vote."""
    opened = open_directory(_config(replica.directory))
    try:
        assert opened.elections.read() == (replica.election or past.election)
        assert opened.log.end_offset == (replica.acknowledged or past.end_offset)
        assert list(opened.log.holes()) == []
        found = {batch.base_offset: bytes(batch.data) for batch in opened.log.scan()}
        kept = {offset: data for offset, data in past.batches.items() if opened.log.start_offset <= offset}
        if replica.election is None:
            assert kept.items() <= found.items()
    finally:
        opened.close()


@pytest.mark.parametrize("life", [follow, *(pytest.param(life, marks=pytest.mark.slow) for life in (lead, repair))])
def test_whatever_call_of_a_run_finds_the_disk_full_it_goes_on_from_the_reserve(
    life: Callable[[Replica], None], place: Path
) -> None:
    """Only a snapshot, a download and a repair are put off, and leave nothing behind."""
    past = made("killed", place)
    hit = put_off = 0
    for number in places(life, past, place / "home"):
        replica = Replica(laid_out(past, place / "home"))
        full = FullFrom(number)
        replica.make_space = full.end
        with FileTrace(replica.directory, before=full, with_stacks=True) as trace:
            try:
                life(replica)
            except StorageError as error:
                pytest.fail(f"{full.hit}: {error}")
            assert trace.open_paths == [], full.hit
            look_again(replica, past)
        hit += full.hit is not None
        put_off += bool(replica.refused)
    assert hit > 40
    assert 0 < put_off < hit / 2


@pytest.mark.parametrize(
    ("past", "torn"), [("killed", False), ("killed", True), ("killed, behind a snapshot", True), ("closed", False)]
)
def test_whatever_call_of_a_start_finds_the_disk_full_it_begins_once_more_without_the_reserve(
    past: str, torn: bool, place: Path
) -> None:
    killed = made(past, place)
    hit = 0
    for number in places(start_only, killed, place / "home", torn=torn):
        replica = Replica(laid_out(killed, place / "home", torn=torn))
        full = FullFrom(number)
        with FileTrace(replica.directory, before=full, with_stacks=True) as trace:
            try:
                start_only(replica)
            except StorageError as error:
                pytest.fail(f"{full.hit}: {error}")
            assert trace.open_paths == [], full.hit
            look_again(replica, killed)
        hit += full.hit is not None
    assert hit > 5


def test_a_start_without_any_space_says_so_and_works_once_there_is_some(place: Path) -> None:
    """There is no reserve to give back, or somebody else took the space of it: nothing is lost by waiting."""
    past = made("killed", place)
    errors: list[StorageError] = []
    for number in places(start_only, past, place / "home", torn=True):
        replica = Replica(laid_out(past, place / "home", torn=True, reserve=False))
        full = FullFrom(number, has_reserve=False)
        with FileTrace(replica.directory, before=full, with_stacks=True) as trace:
            try:
                replica.start()
            except StorageError as error:
                errors.append(error)
            full.end()
            replica.close()
            assert trace.open_paths == [], full.hit
            look_again(replica, past)
    assert len(errors) > 5
    assert all(is_full(error) for error in errors)
    assert all("is full, and the reserve does not suffice: free some space" in str(error) for error in errors)


def test_an_empty_reserve_stops_a_run_whose_vote_cannot_be_written_and_nothing_is_lost(place: Path) -> None:
    past = made("killed", place)
    errors: list[StorageError] = []
    for number in places(lead, past, place / "home"):
        replica = Replica(laid_out(past, place / "home", reserve=False))
        full = FullFrom(number, has_reserve=False)
        replica.make_space = full.end
        with FileTrace(replica.directory, before=full, with_stacks=True) as trace:
            try:
                lead(replica)
            except StorageError as error:
                errors.append(error)
                with contextlib.suppress(StorageError):
                    replica.close()
            assert trace.open_paths == [], full.hit
            full.end()
            opened = open_directory(_config(replica.directory))
            assert opened.log.end_offset >= replica.acknowledged
            assert opened.elections.read() in (replica.election or past.election, replica.voting)
            opened.close()
    assert len(errors) > 5
    assert all(is_full(error) for error in errors)
