"""The replicas of a chaos run: processes, their directories and disks.

Each replica has a directory of its own; as root, on a small file system of its own, so that its disk can be full. Wall
clocks are moved by `clock.c`, where there is a C compiler. Every process is ended by its id, whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.cluster import free_ports
from kraftlib.cli.lines import LineClient
from kraftlib.storage import names
from kraftlib.storage.directory import InitialController, format_directory
from kraftlib.types import Endpoint, ReplicaId, new_uuid, parse_endpoint, uuid_text
from tests.chaos.links import Network

SETTINGS: Final[Mapping[str, str | int | bool]] = {
    "election_timeout_ms": 300,
    "fetch_timeout_ms": 1_000,
    "fetch_max_wait_ms": 250,
    "request_timeout_ms": 1_000,
    "shutdown_timeout_ms": 1_000,
    "segment_bytes": 8 * 1024 * 1024,
    "snapshot_interval_bytes": 512 * 1024,
    "retention_bytes": 4 * 1024 * 1024,
    "retention_interval_ms": 2_000,
    "scrub_interval_ms": 10_000,
}
OFFSET: Final = struct.Struct("=q")
"""What `clock.c` reads."""
DISK_BYTES: Final = 128 * 1024 * 1024
START_S: Final = 60.0
STOP_S: Final = 20.0
ROOT: Final = Path(__file__).resolve().parents[2]


class Stopped(Exception):
    """A replica ended by itself, or could not be started: a violation."""


class Replica:
    """One process, its directory, and the connection to its service."""

    def __init__(
        self, number: ReplicaId, home: Path, port: int, *, arguments: Sequence[str], shim: Path | None
    ) -> None:
        self.number: Final = number
        self.home: Final = home
        self.listen: Final = Endpoint("127.0.0.1", port)
        self.directory: Final = home / "disk" / "data"
        self.directory_id = ""
        self.process: asyncio.subprocess.Process | None = None
        self._lines: LineClient | None = None
        self._is_ended = True
        """Whether it was not started yet, or somebody here has ended it or is about to."""
        self._arguments: Final = tuple(arguments)
        self._clock: Final = home / "clock"
        self._shim: Final = shim

    @property
    def running(self) -> bool:
        """Whether it can be asked something; a paused one can."""
        return self._lines is not None

    @property
    def log_path(self) -> Path:
        """What the process has logged."""
        return self.home / "log"

    async def start(self) -> None:
        """Start the process and connect to it. Raises: Stopped with its last words."""
        command = (sys.executable, "-m", "tests.chaos.replica", "-c", str(self.home / "config.toml"), *self._arguments)
        with self.log_path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self._clock_settings()},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                said = await self.process.stdout.readline()
                if not said:
                    await self.process.wait()
                    raise Stopped(f"replica {self.number} did not start: {self.last_words()}")
                greeting = json.loads(said)
                self._lines = await LineClient.connect(parse_endpoint(greeting["clients"]))
                self._is_ended = False
        except TimeoutError:
            raise Stopped(f"replica {self.number} took more than {START_S:.0f} s to start") from None
        self.directory_id = greeting["directory_id"]

    def last_words(self) -> str:
        """Return the last line of its log."""
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def ask(self, do: str, *, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        """Return the answer of its service. Raises: ConnectionError, TimeoutError; the outcome is unknown then."""
        if self._lines is None:
            raise ConnectionRefusedError(f"replica {self.number} does not run")
        return await self._lines.ask({"do": do, **arguments}, timeout_ms=timeout_ms)

    async def kill(self) -> None:
        """kill -9, paused or not."""
        self._is_ended = True
        self.signal(signal.SIGKILL)
        await self._gone()

    async def stop(self) -> None:
        """Let it hand over, flush and close; kill it if that takes too long."""
        self._is_ended = True
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                async with asyncio.timeout(STOP_S):
                    status = await self.process.wait()
                    if status:
                        raise Stopped(f"replica {self.number} ended with status {status}: {self.last_words()}")
            except TimeoutError:
                await self.kill()
                raise Stopped(f"replica {self.number} took more than {STOP_S:.0f} s to shut down") from None
        await self._gone()

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    def check(self) -> None:
        """Raise Stopped, if the process has ended although nobody ended it."""
        if not self._is_ended and self.process is not None and self.process.returncode is not None:
            raise Stopped(f"replica {self.number} ended by itself: {self.last_words()}")

    async def _gone(self) -> None:
        if self.process is not None:
            await self.process.wait()
        if self._lines is not None:
            lines, self._lines = self._lines, None
            await lines.close()

    # --- its clock and its disk ---------------------------------------------------------------------------------------

    def move_clock(self, seconds: int) -> None:
        """Let its wall clock be off by so much; the monotonic one goes on."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(OFFSET.pack(seconds))  # in place: the process has the file mapped

    def _clock_settings(self) -> dict[str, str]:
        if self._shim is None:
            return {}
        if not self._clock.exists():
            self.move_clock(0)
        return {"LD_PRELOAD": str(self._shim), "KRAFTLIB_CHAOS_CLOCK": str(self._clock)}

    @property
    def has_reserve(self) -> bool:
        """Whether it keeps space for a full disk. It takes that again within seconds after a disk was full."""
        return (self.directory / names.PARTITION_DIRECTORY / names.RESERVE).exists()

    def fill_disk(self) -> None:
        """Leave not a byte on its disk."""
        with (self.home / "disk" / "balloon").open("ab", buffering=0) as balloon:
            for size in (1024 * 1024, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        if balloon.write(bytes(size)) < size:
                            raise OSError(errno.ENOSPC, "short write")

    def free_disk(self) -> None:
        """Give the space back."""
        (self.home / "disk" / "balloon").unlink(missing_ok=True)


class Fleet:
    """All replicas of a run, and the network between them."""

    def __init__(
        self,
        directory: Path,
        *,
        voters: int,
        observers: int,
        arguments: Sequence[str] = (),
        clock_shim: Path | None = None,
    ) -> None:
        self.directory: Final = directory
        self.cluster_id: Final = uuid_text(new_uuid())
        ids = range(1, voters + observers + 1)
        self.network: Final = Network(ids)
        self.replicas: Final = {
            number: Replica(number, directory / f"replica-{number}", port, arguments=arguments, shim=clock_shim)
            for number, port in zip(ids, free_ports(len(ids)), strict=True)
        }
        self._first_voters: Final = range(1, voters + 1)
        self.own_disks: Final = can_mount()
        self.own_clocks: Final = clock_shim is not None

    async def __aenter__(self) -> Fleet:
        try:
            await self.network.start()
            keys = {number: new_uuid() for number in self._first_voters}
            first = [InitialController(number, self.network.endpoint(number), key) for number, key in keys.items()]
            for replica in self.replicas.values():
                self._prepare(replica)
                self.format(replica, first if replica.number in keys else [])
            await asyncio.gather(*(replica.start() for replica in self.replicas.values()))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        await asyncio.gather(*(replica.kill() for replica in self.replicas.values()))
        await self.network.close()
        if self.own_disks:
            await asyncio.gather(*(asyncio.to_thread(_unmount, replica) for replica in self.replicas.values()))

    def _prepare(self, replica: Replica) -> None:
        disk = replica.home / "disk"
        disk.mkdir(parents=True)
        if self.own_disks:
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
            subprocess.run(command, check=True, capture_output=True)
        self.network.serve(replica.number, replica.listen)
        settings = {
            "node_id": replica.number,
            "directory": str(replica.directory),
            "listen": str(replica.listen),
            "advertised": str(self.network.endpoint(replica.number)),
            "bootstrap_servers": ",".join(str(self.network.endpoint(number)) for number in self.replicas),
            "engine": "thread" if replica.number % 2 else "inline",
            **SETTINGS,
        }
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        (replica.home / "config.toml").write_text("".join(lines))

    def format(self, replica: Replica, first_voters: Sequence[InitialController] = ()) -> None:
        """Give a replica a new, empty directory; it comes to a quorum that exists unless `first_voters` are given."""
        shutil.rmtree(replica.directory, ignore_errors=True)
        format_directory(
            replica.directory,
            node_id=replica.number,
            cluster_id=self.cluster_id,
            initial_controllers=first_voters,
            no_initial_controllers=not first_voters,
        )

    @property
    def running(self) -> list[Replica]:
        """The replicas that were started and not ended since."""
        return [replica for replica in self.replicas.values() if replica.running]

    async def statuses(self, *, timeout_ms: int = 1_000) -> dict[ReplicaId, dict[str, Any]]:
        """Return what the replicas that answer say of themselves."""
        running = self.running
        answers = await asyncio.gather(
            *(replica.ask("status", timeout_ms=timeout_ms) for replica in running), return_exceptions=True
        )
        return {
            replica.number: answer["ok"]
            for replica, answer in zip(running, answers, strict=True)
            if isinstance(answer, dict) and "ok" in answer
        }

    async def leader(self) -> tuple[Replica, dict[str, Any]] | None:
        """Return the replica that says that it leads the highest epoch, and its status; None if there is none."""
        leaders = {n: status for n, status in (await self.statuses()).items() if status["role"] == "leader"}
        if not leaders:
            return None
        number = max(leaders, key=lambda n: leaders[n]["epoch"])
        return self.replicas[number], leaders[number]


def _unmount(replica: Replica) -> None:
    subprocess.run(["umount", "-l", str(replica.home / "disk")], check=False, capture_output=True)


def build_clock_shim(build_directory: Path) -> Path | None:
    """Compile `clock.c`; None if there is no C compiler here."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    shim = build_directory / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    return shim


def can_mount() -> bool:
    """Whether this process may mount file systems, in a mount namespace of its own."""
    return os.environ.get("KRAFTLIB_CHAOS_NAMESPACE") == "1"


def enter_namespace() -> None:
    """Start this program again in a mount namespace of its own, so that no mount outlives it. No-op if not allowed."""
    if can_mount() or os.geteuid() != 0 or shutil.which("unshare") is None:
        return
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        return
    os.environ["KRAFTLIB_CHAOS_NAMESPACE"] = "1"
    os.execvp("unshare", [*unshare, sys.executable, "-m", "tests.chaos.run", *sys.argv[1:]])
