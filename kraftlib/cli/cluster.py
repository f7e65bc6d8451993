"""Three voters as three processes on loopback: the basis of `demo` and `bench`.

Every process is ours alone and is ended by its id: each reads its stdin, which ends with the parent, and the parent
kills what is left when it leaves. A voter that dies for another reason (a kill -9 by hand, or by the kernel) is started
again and counted, for a quorum has to live with that.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.lines import LineClient
from kraftlib.config import StaticVoter
from kraftlib.errors import KraftError
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint, new_uuid, parse_endpoint, uuid_text

PORTS: Final = range(20_000, 30_000)
"""Below the range from which systems take the ports of outgoing connections: one of those could otherwise sit on the
port of a voter that is down for a moment."""

SETTINGS: Final[Mapping[str, str | int]] = {"election_timeout_ms": 300, "shutdown_timeout_ms": 1_000}
"""On one machine a second is too long to find out that there is no leader yet."""

START_TIMEOUT_S: Final = 20.0
START_ATTEMPTS: Final = 3
STOP_TIMEOUT_S: Final = 10.0
LEADER_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.005


class ClusterError(KraftError):
    """A voter did not do what it must; the message names it and quotes its output."""


class Voter:
    """One process with one replica."""

    def __init__(self, number: int, directory: Path, config: Path, socket: Path, program: str) -> None:
        self.number: Final = number
        self.directory: Final = directory
        self.process: asyncio.subprocess.Process | None = None
        self.lines: LineClient | None = None
        self._command: Final = (sys.executable, "-m", program, "voter", "-c", str(config), "--socket", str(socket))
        self._errors: Final = directory.parent / f"voter-{number}.log"

    @property
    def pid(self) -> int:
        """Id of its process."""
        return self.process.pid if self.process is not None else -1

    @property
    def partition(self) -> Path:
        """Where its log is."""
        return self.directory / "__cluster_metadata-0"

    async def start(self) -> None:
        """Start the process and connect to it. Raises: ClusterError with its last words."""
        with self._errors.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its voters in good order
            )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                said = await self.process.stdout.readline() if self.process.stdout else b""
                if not said:
                    await self.process.wait()
                    raise ClusterError(f"voter {self.number} did not start: {self.last_words()}")
                self.lines = await LineClient.connect(parse_endpoint(json.loads(said)["clients"]))
        except TimeoutError as error:
            raise ClusterError(f"voter {self.number} took more than {START_TIMEOUT_S:.0f} s to start") from error

    def last_words(self) -> str:
        """Return the last line that the process wrote on stderr."""
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def ask(self, name: str, value: Any = True, *, timeout_ms: int = 10_000) -> Any:
        """Return the answer to one request.

        Raises: ConnectionError, if the process dies first; TimeoutError; RefusedError, if it says no.
        """
        if self.lines is None:
            raise ConnectionResetError(f"voter {self.number} is not running")
        answer = await self.lines.ask({name: value}, timeout_ms=timeout_ms)
        if "error" in answer:
            raise RefusedError(answer)
        return answer[name]

    async def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self._gone()

    async def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        if self.process is not None and self.process.returncode is None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self.process.wait()
            except TimeoutError:
                self.process.send_signal(signal.SIGKILL)
        await self._gone()

    async def _gone(self) -> None:
        if self.process is not None:
            await self.process.wait()
        if self.lines is not None:
            await self.lines.close()
            self.lines = None


class RefusedError(KraftError):
    """A voter answered with an error; nothing is known to be lost by that."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{answer['error']}: {answer.get('message', '')}")
        self.leader: int | None = answer.get("leader")


class Cluster:
    """Three voters, in directories of their own below `directory`; `program` is the module that runs one of them.

    They listen on `host`, an address of this machine. Sockets for their clients are in a temporary directory of this
    user: the path of `directory` may be longer than that of a socket can be.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str | int] | None = None,
        host: str = "127.0.0.1",
        program: str = "kraftlib.cli",
        on_death: Callable[[Voter, int], None] = lambda voter, status: None,
    ) -> None:
        self.cluster_id: Final = uuid_text(new_uuid())
        self.directory: Final = directory
        self.voters: Final[dict[int, Voter]] = {}
        self.endpoints: Final[list[Endpoint]] = []
        self._settings = {**SETTINGS, **(settings or {})}
        self._host = host
        self._program = program
        self._on_death = on_death
        self._watchers: dict[int, asyncio.Task[None]] = {}
        self._undo = ExitStack()

    async def __aenter__(self) -> Cluster:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _start(self) -> None:
        sockets = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="kraftlib-")))
        voters = [StaticVoter(number, Endpoint(self._host, port)) for number, port in enumerate(free_ports(3), 1)]
        self.endpoints.extend(voter.endpoint for voter in voters)
        for voter in voters:
            home = self.directory / f"voter-{voter.id}"
            config = self.directory / f"voter-{voter.id}.toml"
            config.write_text(
                _toml(
                    {
                        "node_id": voter.id,
                        "directory": home.name,
                        "listen": str(voter.endpoint),
                        "voters": ",".join(map(str, voters)),
                        **self._settings,
                    }
                )
            )
            format_directory(home, node_id=voter.id, cluster_id=self.cluster_id)
            self.voters[voter.id] = Voter(voter.id, home, config, sockets / f"{voter.id}.sock", self._program)
        await asyncio.gather(*(self.start(number) for number in self.voters))

    async def start(self, number: int) -> Voter:
        """Start a voter that is not running, and watch over it. Raises: ClusterError, if it does not start."""
        voter = self.voters[number]
        await self._start_voter(voter)
        self._watchers[number] = asyncio.create_task(self._watch(voter))
        return voter

    async def _start_voter(self, voter: Voter) -> None:
        for attempt in range(START_ATTEMPTS):
            try:
                await voter.start()
                return
            except ClusterError:  # killed from outside while it started, or really broken
                await voter.kill()
                if attempt == START_ATTEMPTS - 1:
                    raise

    async def kill(self, number: int) -> Voter:
        """kill -9 of a voter, which stays down."""
        self._watchers.pop(number).cancel()
        await self.voters[number].kill()
        return self.voters[number]

    async def _watch(self, voter: Voter) -> None:
        """Start the voter again whenever it dies outside the script."""
        while voter.process is not None:
            status = await voter.process.wait()
            self._on_death(voter, status)
            await voter.kill()
            await self._start_voter(voter)

    async def leader(self, *, timeout_s: float = LEADER_TIMEOUT_S, after_epoch: int = -1) -> tuple[Voter, int]:
        """Return the voter that says it leads, and its epoch, once there is one in a later epoch than `after_epoch`.

        Raises: ClusterError, if that takes too long.
        """
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for voter, status in await self.statuses():
                if status["role"] == "leader" and status["epoch"] > after_epoch:
                    return voter, int(status["epoch"])
            await asyncio.sleep(POLL_S)
        raise ClusterError(f"no voter was elected within {timeout_s:.0f} s")

    async def statuses(self) -> list[tuple[Voter, dict[str, Any]]]:
        """Return what the voters that answer say of themselves.

        Raises: ClusterError, if one died outside the script and could not be started again.
        """
        for watcher in self._watchers.values():
            if watcher.done() and not watcher.cancelled():
                watcher.result()
        voters = list(self.voters.values())
        answers = await asyncio.gather(
            *(voter.ask("status", timeout_ms=1_000) for voter in voters), return_exceptions=True
        )
        return [(v, answer) for v, answer in zip(voters, answers, strict=True) if isinstance(answer, dict)]

    async def close(self) -> None:
        """End all processes; kill those that do not."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
        await asyncio.gather(*(voter.stop() for voter in self.voters.values()), return_exceptions=True)
        self._undo.close()


def free_ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue  # in use
        found.append(port)
        if len(found) == count:
            return found
    raise ClusterError(f"no {count} free ports in {PORTS.start}..{PORTS.stop}")


def _toml(settings: Mapping[str, str | int]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
