"""Processes of these tests: each in a group of its own, with a log file, bounded in time, and ended by its id.

A test run that is killed takes its processes with it, where `setpriv` is there to arrange that.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

PORTS: Final = (10_000, 32_000)

PATIENCE_S: Final = 120.0
"""No single wait is longer: these machines have two cores, and a JVM takes seconds to start."""


def wait_for(what: str, condition: Callable[[], T], *, timeout_s: float = PATIENCE_S, every_s: float = 0.02) -> T:
    """Return what `condition` returns as soon as that is true. Raises: TimeoutError that names `what`."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(every_s)
    return found


def free_ports(count: int) -> list[int]:
    """Return ports of loopback on which nobody listens at this moment.

    Voters must be known by port before they start. Below the range from which the system takes ports for connections,
    and drawn at random, nobody else takes one meanwhile.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


class Process:
    """A program that runs until it is told to stop. `log` takes what it prints, over all of its lives."""

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        """Start it; return at once."""
        assert not self.running, f"{self.log.stem} runs already"
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        die_with_us = ["setpriv", "--pdeathsig", "SIGKILL"] if shutil.which("setpriv") else []
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [*die_with_us, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status of its last life; negative if a signal ended it."""
        return None if self._process is None else self._process.poll()

    def log_text(self) -> str:
        """Return what it has printed in this life."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    def wait_for_line(self, text: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it has printed `text`. Raises: AssertionError with the end of its log, if it ended before."""

        def seen() -> bool:
            if text in self.log_text():
                return True
            if not self.running:
                raise AssertionError(f"{self.log.stem} ended with {self.status} before {text!r}:\n{self.tail()}")
            return False

        wait_for(f"{text!r} from {self.log.stem}", seen, timeout_s=timeout_s)

    def tail(self, size: int = 3_000) -> str:
        """Return the end of what it has printed."""
        return self.log_text()[-size:]

    def signal(self, number: signal.Signals) -> None:
        """Send it, and whatever it has started, a signal."""
        if self._process is not None and self.running:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End it at once, like `kill -9`."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(PATIENCE_S)

    def stop(self, *, timeout_s: float = PATIENCE_S) -> int:
        """Ask it to end (SIGTERM), wait until it has, and return its exit status."""
        assert self._process is not None
        self.signal(signal.SIGTERM)
        return self._process.wait(timeout_s)
