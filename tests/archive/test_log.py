"""The log of an archiving observer: only what is committed gets to the disk, whatever else arrives and goes again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.archive.log import ArchiveLog
from kraftlib.errors import InvariantError, StorageError
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import EpochStart
from tests.archive.archives import a_writer, an_archive, log_bytes, store_checkpoint
from tests.storage.builders import a_batch, offsets, some_batches


def test_what_is_not_committed_stays_in_memory(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        log = ArchiveLog(archive, writer)
        log.append(some_batches(1, 1, 2))
        assert isinstance(log, ReplicatedLog)
        assert (log.flush(), log_bytes(archive)) == (3, b"")

        assert log.write_committed(2) == 2
        log.forget_written()

        assert log_bytes(archive) == b"".join(batch.data for batch in some_batches(1, 1))
        assert offsets(log.read(2, 100)) == [(2, 2)]
        assert log.read(3, 100) == ()
        with pytest.raises(StorageError):
            log.read(1, 100)


def test_a_truncation_drops_what_is_not_committed_and_never_more(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        log = ArchiveLog(archive, writer)
        log.append(some_batches(1, 1, 2))
        log.write_committed(1)
        log.forget_written()

        assert log.truncate(2) == 2
        assert log.truncate(1) == 1
        assert log.epoch_starts() == (EpochStart(epoch=1, start_offset=0),)
        with pytest.raises(InvariantError, match="all below 1 is committed"):
            log.truncate(0)


def test_a_log_that_is_opened_again_begins_at_its_end_and_knows_the_epoch_there(tmp_path: Path) -> None:
    """A truncation back to that place must leave the epoch: else the observer would ask as if it had nothing."""
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(some_batches(1, 4))
    with a_writer(archive) as writer:
        log = ArchiveLog(archive, writer)
        assert (log.start_offset, log.end_offset, log.flushed_offset) == (2, 2, 2)

        log.append([a_batch(2, epoch=6)])
        log.truncate(2)

        assert log.epoch_starts()[-1].epoch == 4


def test_a_checkpoint_takes_the_place_of_what_was_missed(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        log = ArchiveLog(archive, writer)
        log.append(some_batches(1, 1, 1))
        log.write_committed(2)
        sink = log.create_snapshot(store_checkpoint(archive, 50, 3))
        sink.abort()
        log._add_snapshot(store_checkpoint(archive, 50, 3))
        log.install_snapshot(log.snapshots()[-1])

        assert (log.start_offset, log.end_offset, writer.end_offset) == (50, 50, 50)
        log.append([a_batch(50, epoch=3)])
        log.write_committed(51)

    assert archive.segment_offsets() == [0, 50]


@settings(max_examples=50)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3)),
            st.tuples(st.just("commit"), st.integers(0, 5)),
            st.tuples(st.just("truncate"), st.integers(0, 5)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_an_archive_is_the_committed_prefix_after_any_history(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = an_archive(tmp_path_factory.mktemp("archive"))
    writer = _Restarting(archive)
    committed = 0
    bytes_at = {0: b""}
    epoch = 1
    for what, number in steps:
        log = writer.log
        if what == "append":
            for _ in range(number):
                batch = a_batch(log.end_offset, epoch)
                bytes_at[log.end_offset + 1] = bytes_at[log.end_offset] + bytes(batch.data)
                log.append([batch])
        elif what == "commit":
            committed = min(committed + number, log.end_offset)
            assert log.write_committed(committed) == committed
            log.forget_written()
        elif what == "truncate":
            epoch += 1
            log.truncate(min(committed + number, log.end_offset))
        else:
            writer.restart()
            assert writer.log.end_offset == committed
    assert log_bytes(archive) == bytes_at[committed]
    writer.close()


class _Restarting:
    """An archive whose process ends without a word, and begins again."""

    def __init__(self, archive: ArchiveDirectory) -> None:
        self._archive = archive
        self.restart()

    def restart(self) -> None:
        self._context = a_writer(self._archive, segment_bytes=200)
        self.log = ArchiveLog(self._archive, self._context.__enter__())

    def close(self) -> None:
        self._context.__exit__(None, None, None)
