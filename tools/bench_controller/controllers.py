"""Controllers as processes: ours, and Kafka's from its jars with the flags of its own start script."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kraftlib.controller import format_controller
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.names import PARTITION_DIRECTORY, QUORUM_STATE
from kraftlib.types import ElectionState, Endpoint
from tools.bench_controller.metadata import EPOCH, RELEASE

ROOT: Final = Path(__file__).resolve().parents[2]
TICK: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MEBIBYTE: Final = 1 << 20
TOOL_S: Final = 300.0
FOREVER_MS: Final = 3_600_000
"""The session timeout: no broker is fenced because this program was slow."""

FLAGS: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""Of `kafka-run-class.sh`."""

LOG4J2: Final = """\
status=error
appender.console.type=Console
appender.console.name=STDERR
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.stdout.ref=STDERR
"""


class Node:
    """One controller: a directory, a place and a process. `command` starts it once it is formatted."""

    def __init__(self, node_id: int, home: Path, place: Endpoint, command: Sequence[str]) -> None:
        self.node_id = node_id
        self.place = place
        self.directory = home / f"node-{node_id}"
        self.log = home / f"node-{node_id}.log"
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def load(self, checkpoint: Path) -> None:
        """Have it begin with this checkpoint."""
        partition = self.directory / PARTITION_DIRECTORY
        partition.mkdir(exist_ok=True)
        shutil.copyfile(checkpoint, partition / checkpoint.name)

    def start(self) -> None:
        """Start the process. It dies with this program, where `setpriv` can arrange that."""
        with_us = ["setpriv", "--pdeathsig", "SIGKILL"] if shutil.which("setpriv") else []
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [*with_us, *self._command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT
            )

    def kill(self) -> None:
        """End it like `kill -9`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def check(self) -> None:
        """Raises: RuntimeError with the end of its log, if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"{self.log} ended with {self._process.returncode}:\n{self.log.read_text()[-2_000:]}")

    @property
    def pid(self) -> int:
        """Number of the process."""
        if self._process is None:
            raise RuntimeError(f"{self.log.stem} does not run")
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the processor time that it has taken, in all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def resident_mib(self) -> float:
        """Return the memory that it has."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE / MEBIBYTE

    def live_mib(self) -> float:
        """Return the memory that it needs. Of a process of Python that is what it has."""
        return self.resident_mib()


class OurNode(Node):
    """A controller of ours. One that had no election before would not believe a log with an epoch."""

    def __init__(
        self, node_id: int, home: Path, place: Endpoint, command: Sequence[str], voters: Sequence[int]
    ) -> None:
        super().__init__(node_id, home, place, command)
        self._voters = voters

    def load(self, checkpoint: Path) -> None:
        """Have it begin with this checkpoint, and with its epoch."""
        super().load(checkpoint)
        line = encode_line(ElectionState(epoch=EPOCH), kraft_version=0, voters=self._voters, generation=0)
        (self.directory / PARTITION_DIRECTORY / QUORUM_STATE).write_bytes(line)


class JavaNode(Node):
    """A controller of Kafka."""

    def live_mib(self) -> float:
        """Return the size of all live objects, which the JVM counts after a full collection."""
        told = subprocess.run(
            ["jcmd", str(self.pid), "GC.class_histogram"], capture_output=True, text=True, check=True, timeout=TOOL_S
        ).stdout
        found = re.search(r"^Total\s+\d+\s+(\d+)", told, re.MULTILINE)
        return int(found[1]) / MEBIBYTE if found else 0.0


class Kind:
    """A kind of controllers, which makes quorums of itself."""

    name: str

    def node(self, node_id: int, home: Path, places: Mapping[int, Endpoint], cluster_id: str) -> Node:
        """Return a controller with a formatted directory."""
        raise NotImplementedError


class Ours(Kind):
    """`kraftlib controller run`."""

    name = "kraftlib"

    def node(self, node_id: int, home: Path, places: Mapping[int, Endpoint], cluster_id: str) -> Node:
        """Return a controller of ours."""
        config = home / f"node-{node_id}.toml"
        command = [sys.executable, "-m", "kraftlib.cli", "controller", "run", "-c", str(config)]
        command += ["--broker-session-timeout-ms", str(FOREVER_MS), "--leader-imbalance-check-interval-ms", "0"]
        node = OurNode(node_id, home, places[node_id], command, list(places))
        values = {
            "node_id": node_id,
            "directory": str(node.directory),
            "listen": str(node.place),
            "voters": _voters(places),
        }
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items()]
        lines += ["[limits]\n", "connections_max = 5_000\n", "connections_per_address_max = 5_000\n"]
        config.write_text("".join(lines))
        format_controller(
            node.directory, node_id=node_id, cluster_id=cluster_id, static_voters=list(places), release=RELEASE
        )
        return node


class Kafkas(Kind):
    """Kafka's own. `linger_ms` is `controller.quorum.append.linger.ms`, 25 by default there."""

    def __init__(self, libraries: Path, *, heap_mib: int, linger_ms: int) -> None:
        self.name = f"Kafka, linger {linger_ms} ms"
        self._libraries = libraries
        self._heap_mib = heap_mib
        self._linger_ms = linger_ms

    def node(self, node_id: int, home: Path, places: Mapping[int, Endpoint], cluster_id: str) -> Node:
        """Return a controller of Kafka."""
        properties = home / f"node-{node_id}.properties"
        node = JavaNode(node_id, home, places[node_id], self._java(home, "kafka.Kafka", str(properties)))
        values = {
            "node.id": node_id,
            "process.roles": "controller",
            "log.dirs": node.directory,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{node.place}",
            "controller.quorum.voters": _voters(places),
            "broker.session.timeout.ms": FOREVER_MS,
            "auto.leader.rebalance.enable": "false",
            "controller.quorum.append.linger.ms": self._linger_ms,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        formatting = self._java(home, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))
        subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL, timeout=TOOL_S)
        return node

    def _java(self, home: Path, main: str, *arguments: str) -> list[str]:
        settings = home / "log4j2.properties"
        settings.write_text(LOG4J2)
        heap = [f"-Xms{self._heap_mib}m", f"-Xmx{self._heap_mib}m"]
        path = ["-cp", f"{self._libraries}/*"]
        return ["java", *FLAGS, *heap, f"-Dlog4j2.configurationFile={settings}", *path, main, *arguments]


def _voters(places: Mapping[int, Endpoint]) -> str:
    return ",".join(f"{number}@{place}" for number, place in places.items())


def settled_cpu_s(nodes: Sequence[Node], *, every_s: float = 0.5, patience_s: float = 120.0) -> None:
    """Wait until these processes rest: they have loaded what they had to load."""
    deadline = time.monotonic() + patience_s
    before = [node.cpu_s() for node in nodes]
    while time.monotonic() < deadline:
        time.sleep(every_s)
        now = [node.cpu_s() for node in nodes]
        if max(b - a for a, b in zip(before, now, strict=True)) < every_s / 4:
            return
        before = now
