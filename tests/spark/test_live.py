"""The archive that a query keeps of a live quorum: one writer at a time, and every trouble is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftlib.archive.directory import find_archives
from kraftlib.archive.follower import Progress
from kraftlib.archive.report import describe
from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ConfigError, KraftError
from kraftlib.spark.live import LiveArchive
from kraftlib.types import Endpoint
from tests.archive.archives import an_archive
from tests.cli.processes import free_port

PATIENCE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def quorum() -> Iterator[RaftClient[bytes]]:
    place = Endpoint("127.0.0.1", free_port())
    client: RaftClient[bytes] = RaftClient(
        RaftConfig(node_id=1, cluster_id="live", voters=(StaticVoter(1, place),), listen=place)
    )
    with client:
        client.wait_for_leader(timeout_ms=10_000)
        yield client


def end_of(root: Path) -> int:
    archives = find_archives(root) if root.exists() else []
    ranges = describe(archives[0]).ranges if archives else ()
    return ranges[-1].end_offset if ranges else 0


def test_when_the_writer_of_an_archive_goes_the_next_one_takes_over(quorum: RaftClient[bytes], tmp_path: Path) -> None:
    both = [LiveArchive(tmp_path / "spool", [quorum.endpoint], cluster_id="live") for _ in range(2)]
    for one in both:
        one.start()
    first = quorum.append([b"a"]).last_offset + 1
    until(lambda: end_of(tmp_path / "spool") >= first)
    for one in both:
        one.check(PATIENCE_S)
        one.wait_caught_up(PATIENCE_S)

    both[0].stop()
    second = quorum.append([b"b"]).last_offset + 1
    until(lambda: end_of(tmp_path / "spool") >= second)
    both[1].stop()


def test_a_quorum_that_is_not_reached_is_told_after_a_while(tmp_path: Path) -> None:
    live = LiveArchive(tmp_path / "spool", [Endpoint("127.0.0.1", free_port())], cluster_id="live")
    live.start()
    live.check(PATIENCE_S)
    with pytest.raises(ConfigError, match=r"the quorum at 127.0.0.1:\d+ was not reached for 0 s"):
        live.check(0.0)
    live.stop()


def test_what_can_never_go_well_is_told_at_once(quorum: RaftClient[bytes], tmp_path: Path) -> None:
    an_archive(tmp_path / "other", cluster_id="another")
    for root, cluster_id, complaint in (
        (tmp_path / "new", None, "set the option clusterId"),
        (tmp_path / "other", "live", "is the archive of cluster 'another'"),
    ):
        live = LiveArchive(root, [quorum.endpoint], cluster_id=cluster_id)
        live.start()
        until(lambda live=live: live._failure is not None)
        with pytest.raises(KraftError, match=complaint):
            live.check(PATIENCE_S)


class Clock:
    """A clock that moves when somebody sleeps; `step` is called every `step_s`."""

    def __init__(self, step_s: float, step: Callable[[], object]) -> None:
        self.now = 0.0
        self._step_s, self._step = step_s, step
        self._due = step_s

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._due:
            self._due += self._step_s
            self._step()


def progress(end_offset: int, high_watermark: int) -> Progress:
    return Progress(end_offset=end_offset, epoch=1, high_watermark=high_watermark, bytes_written=0)


def test_an_archive_that_grows_is_waited_for_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The query would end before what is committed, or begin there; it need not wait for what is committed later."""
    ends: list[int] = []

    def grow() -> None:
        ends.append(len(ends))
        live._reached(progress(ends[-1], 10 + len(ends)))

    monkeypatch.setattr("kraftlib.spark.live.time", Clock(40.0, grow))
    live = LiveArchive(tmp_path / "spool", [], cluster_id="live")
    live.wait_caught_up(PATIENCE_S)
    assert ends[-1] == 11  # the first high watermark


@pytest.mark.parametrize("high_watermark", [0, 10])
def test_an_archive_that_does_not_grow_is_told_after_a_while(
    high_watermark: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kraftlib.spark.live.time", Clock(1.0, lambda: live._reached(progress(9, high_watermark))))
    live = LiveArchive(tmp_path / "spool", [], cluster_id="live")
    with pytest.raises(KraftError, match=r"has stayed at offset 9 for 60 s, and (10|an unknown number of) records"):
        live.wait_caught_up(PATIENCE_S)


def test_an_error_that_is_none_of_ours_ends_the_query_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def open_archive(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("kraftlib.spark.live.open_archive", open_archive)
    live = LiveArchive(tmp_path / "spool", [], cluster_id="live")
    live.start()
    until(lambda: live._failure is not None)
    with pytest.raises(KraftError, match="has ended: OSError"):
        live.check(PATIENCE_S)
