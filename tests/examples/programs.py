"""The examples as real processes: three replicas with directories, started, paused and killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kraftlib import format_directory
from tests.interop.processes import Process, free_ports, wait_for

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PATIENCE_S: Final = 60.0


def run(example: str, *arguments: str) -> str:
    """Run a program to its end, and return what it prints."""
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class Programs:
    """Three processes of one program, each with a replica of one quorum."""

    def __init__(self, home: Path) -> None:
        self._home = home
        ports = free_ports(3)
        self.servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        for number in (1, 2, 3):
            directory = home / f"data-{number}"
            format_directory(directory, node_id=number, cluster_id="examples", static_voters=(1, 2, 3))
            settings = f'node_id = {number}\nvoters = "{voters}"\ndirectory = "{directory}"\n'
            self.config(number).write_text(settings)
        self.running: dict[int, Process] = {}

    def config(self, number: int) -> Path:
        return self._home / f"replica-{number}.toml"

    def start(self, number: int, *command: str) -> None:
        process = self.running[number] = Process([sys.executable, *command], log=self._home / f"{number}.log")
        process.start()

    def that_says(self, text: str, *, but: int = 0) -> int:
        """Return the number of a running process, other than `but`, that has printed `text`."""

        def found() -> int:
            for number, process in self.running.items():
                assert process.running, f"process {number} ended with {process.status}:\n{process.tail()}"
                if number != but and text in process.log_text():
                    return number
            return 0

        return wait_for(f"{text!r} from a process", found, timeout_s=PATIENCE_S)

    def kill(self, number: int) -> None:
        """kill -9."""
        self.running.pop(number).kill()


@contextmanager
def programs(home: Path) -> Iterator[Programs]:
    together = Programs(home)
    try:
        yield together
    finally:
        for process in together.running.values():
            process.kill()
