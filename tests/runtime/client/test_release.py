"""The end of a replica waits neither for a disk that hangs nor for the application, and keeps its directory locked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from kraftlib.errors import ClosedError, DirectoryInUseError, OutcomeUnknownError
from kraftlib.runtime.client import release
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.storage import files
from tests.runtime.client.test_node import configs, is_locked, running
from tests.runtime.quorum import PATIENCE_S, until


class Stubborn(StateMachine):
    """The values of its snapshot do not come before they may."""

    def __init__(self) -> None:
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    def apply(self, record: CommittedRecord) -> None:
        pass

    def freeze(self) -> Iterator[bytes]:
        self.asked.set()
        self.may_go_on.wait(PATIENCE_S)
        yield b"value"

    def restore(self, values: Iterable[bytes]) -> None:
        pass


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_an_end_does_not_wait_for_ever_for_the_application_and_keeps_the_directory_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """What is still under way in the background would write into a directory that is another process's by then."""
    monkeypatch.setattr(release, "BACKGROUND_ENDS_WITHIN_S", 0.01)
    config = attrs.evolve(configs(tmp_path, engine=engine)[0])
    config = attrs.evolve(config, voters=config.voters[:1])
    machine = Stubborn()
    client: RaftClient[bytes] = RaftClient(config, state_machine=machine)
    await client.start()
    await client.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
    await client.propose(b"record")
    snapshot = asyncio.ensure_future(client.create_snapshot())
    await until(machine.asked.is_set)
    await client.shutdown()
    with pytest.raises(DirectoryInUseError):
        await RaftClient(config).start()
    machine.may_go_on.set()
    with pytest.raises(ClosedError):
        await snapshot
    await until(lambda: not is_locked(tmp_path / "1"))
    async with running([config]) as ((again,), _):
        assert again.status().log_end_offset > 1


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_an_end_does_not_wait_for_ever_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, engine: str
) -> None:
    """An fsync may take minutes on a network disk that is gone. What it wanted to write is still its own."""
    monkeypatch.setattr(release, "BACKGROUND_ENDS_WITHIN_S", 0.01)
    monkeypatch.setattr(release, "DISK_ENDS_WITHIN_S", 0.01)
    config = configs(tmp_path, engine=engine)[0]
    config = attrs.evolve(config, voters=config.voters[:1])
    client: RaftClient[bytes] = RaftClient(config)
    await client.start()
    await client.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
    await client.append_one(b"before")
    hangs, may_go_on, sync = threading.Event(), threading.Event(), files.sync_data

    def hanging(descriptor: int) -> None:
        hangs.set()
        may_go_on.wait(PATIENCE_S)
        sync(descriptor)

    monkeypatch.setattr(files, "sync_data", hanging)
    append = asyncio.ensure_future(client.append_one(b"under way"))
    await until(hangs.is_set)
    await client.shutdown(timeout_ms=0)
    with pytest.raises(OutcomeUnknownError):
        await append
    assert "its disk does not answer" in caplog.text
    assert is_locked(tmp_path / "1")
    may_go_on.set()
    await until(lambda: not is_locked(tmp_path / "1"))
    async with running([config]) as ((again,), _):
        assert again.status().log_end_offset > 2
