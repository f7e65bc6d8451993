"""A live quorum behind a stream: an archive that is kept by a thread beside the query.

Several queries may share one archive: the one that gets its lock writes, and the others read; when the writer ends,
another one takes over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kraftlib.archive.directory import find_archives, open_archive
from kraftlib.archive.follower import Progress, follow
from kraftlib.errors import ConfigError, DirectoryInUseError, KraftError
from kraftlib.types import Endpoint

logger: Final = logging.getLogger(__name__)

_POLL_S: Final = 0.01
_RETRY_S: Final = 0.2
_ATTEMPT_MS: Final = 5_000


class _Told:
    """A flag of another thread, to be waited for on a loop."""

    def __init__(self, flag: threading.Event) -> None:
        self._flag = flag

    async def wait(self) -> None:
        while not self._flag.is_set():  # noqa: ASYNC110 - it is set by another thread, once, at the end
            await asyncio.sleep(0.1)


class LiveArchive:
    """Follows a quorum into an archive until it is stopped; a quorum that is not reached is tried again."""

    def __init__(self, root: Path, servers: Sequence[Endpoint], *, cluster_id: str | None) -> None:
        self._root: Final = root
        self._servers: Final = tuple(servers)
        self._cluster_id = cluster_id
        self._stop: Final = threading.Event()
        self._lock: Final = threading.Lock()
        self._progress: Progress | None = None
        self._failure: KraftError | None = None
        self._silent_since: float | None = time.monotonic()
        self._trouble = "it has not answered yet"

    def start(self) -> None:
        """Begin. The thread ends with the process."""
        threading.Thread(target=self._run, name="kraftlib-live-archive", daemon=True).start()

    def stop(self) -> None:
        """Let it end."""
        self._stop.set()

    def check(self, patience_s: float) -> None:
        """Raise what makes it impossible to go on: a failure, or a quorum that was not reached for `patience_s`.

        One that was reached, and is lost, is waited for.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            since = self._silent_since
            if since is not None and time.monotonic() - since > patience_s:
                names = ",".join(map(str, self._servers))
                raise ConfigError(f"the quorum at {names} was not reached for {patience_s:.0f} s: {self._trouble}")

    def wait_caught_up(self, patience_s: float) -> None:
        """Wait until everything that is committed now, as far as the leader has told, is in the archive.

        Raises: KraftError, if the archive did not grow for `patience_s`; and what `check` raises.
        """
        until, end_offset, wanted = time.monotonic() + patience_s, -1, 0
        while True:
            self.check(patience_s)
            with self._lock:
                progress, is_written_by_others = self._progress, self._silent_since is None
            if progress is None and is_written_by_others:
                return
            if progress is not None:
                wanted = wanted or progress.high_watermark
                if 0 < wanted <= progress.end_offset:
                    return
                if progress.end_offset > end_offset:
                    until, end_offset = time.monotonic() + patience_s, progress.end_offset
                elif time.monotonic() >= until:
                    raise KraftError(
                        f"the archive in {self._root} has stayed at offset {end_offset} for {patience_s:.0f} s, and"
                        f" {wanted or 'an unknown number of'} records are committed: is its quorum well?"
                    )
            time.sleep(_POLL_S)

    def high_watermark(self) -> int | None:
        """Return one past the last record that the leader said is committed; None, if it has not said."""
        with self._lock:
            progress = self._progress
        return None if progress is None else progress.high_watermark or None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except DirectoryInUseError:
                self._reached(None)
            except TimeoutError as error:
                self._not_reached(str(error))
            except KraftError as error:
                self._failed(error)
                return
            except Exception as error:  # noqa: BLE001 - it ends this thread, and no query must wait for it in vain
                self._failed(KraftError(f"the archive in {self._root} has ended: {error!r}"))
                return
            self._stop.wait(_RETRY_S)

    def _follow(self) -> None:
        archive = open_archive(self._root, cluster_id=self._known_cluster_id())

        async def work() -> None:
            stop = _Told(self._stop)
            await follow(archive, self._servers, stop=stop, on_progress=self._reached, timeout_ms=_ATTEMPT_MS)

        asyncio.run(work())

    def _known_cluster_id(self) -> str:
        """Return the cluster that is to be followed: as told, or that of the archive. Raises: ConfigError."""
        if self._cluster_id is None:
            present = find_archives(self._root) if self._root.is_dir() else []
            if len(present) != 1:
                raise ConfigError(
                    f"{self._root} is no archive yet, and nothing says whose it is to be: set the option clusterId, as"
                    " `kraftlib quorum status` shows it"
                )
            self._cluster_id = present[0].cluster_id
        return self._cluster_id

    def _failed(self, error: KraftError) -> None:
        with self._lock:
            self._failure = error

    def _reached(self, progress: Progress | None) -> None:
        with self._lock:
            self._progress, self._silent_since = progress, None

    def _not_reached(self, why: str) -> None:
        with self._lock:
            self._trouble = why
            if self._silent_since is None:
                self._silent_since = time.monotonic()
        logger.warning("the quorum is not reached: %s", why)
