"""The command as a process of its own: started, read line by line, ended by its id whatever happens."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from kraftlib.runtime.net.sockets import connected
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint, parse_endpoint
from tests.ports import free_port

TIMEOUT_S = 120
COMMAND = (sys.executable, "-m", "kraftlib.cli")


@attrs.define
class Process:
    """A running command."""

    popen: subprocess.Popen[bytes]
    _said: bytes = b""

    def line(self) -> str:
        """Return the next line of its output; empty at the end."""
        assert self.popen.stdout is not None
        while b"\n" not in self._said:
            poll = select.poll()  # unlike select it takes any descriptor
            poll.register(self.popen.stdout, select.POLLIN)
            assert poll.poll(TIMEOUT_S * 1_000), f"it says nothing more after {self._said!r}"
            more = os.read(self.popen.stdout.fileno(), 65_536)
            if not more:
                return ""
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line.decode() + "\n"

    def line_with(self, text: str) -> str:
        """Return the next line that contains `text`."""
        while line := self.line():
            if text in line:
                return line
        raise AssertionError(f"it ended without saying {text!r}: {self.end()}")

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal, if one is given; return exit status and stderr."""
        if number is not None:
            self.popen.send_signal(number)
        _, errors = self.popen.communicate(timeout=TIMEOUT_S)
        return self.popen.returncode, errors.decode()


@contextmanager
def running(*arguments: object, command: Sequence[str] = COMMAND) -> Iterator[Process]:
    """Run the command; kill it at the end, if it still runs."""
    popen = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    try:
        yield Process(popen)
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.communicate(timeout=TIMEOUT_S)


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child is no more."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([descriptor], [], [], TIMEOUT_S)
        assert ended, f"process {pid} does not end"
    finally:
        os.close(descriptor)


def ask(endpoint: Endpoint, request: Any) -> Any:
    """Send one request to a line server, return its answer."""
    with connected(endpoint, TIMEOUT_S) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(connection.makefile().readline())


def clients_of(line: str) -> Endpoint:
    """Return where the clients connect, of the line with which `run` begins."""
    return parse_endpoint(line.partition("clients to ")[2].partition(";")[0])


def single(directory: Path, **settings: object) -> Path:
    """Write the configuration of a quorum of one, and format its directory, if there is none; return the path."""
    port = settings.pop("port", None) or free_port()
    table = {"node_id": 1, "directory": "data", "voters": f"1@127.0.0.1:{port}", "election_timeout_ms": 20, **settings}
    path = directory / "replica.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items()))
    if not (directory / "data").exists():
        format_directory(directory / "data", node_id=1, cluster_id="blue")
    return path
