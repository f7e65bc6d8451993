"""Producers that go on whatever happens to the cluster (`peer/Traffic.java`), and what consumers find afterwards."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Final

from tests.interop.clusters import Cluster
from tests.interop.peer import compiled
from tests.interop.processes import PATIENCE_S, wait_for

PARTITIONS: Final[dict[str, int]] = {"plain": 3, "exact": 1}


class Traffic:
    """An idempotent producer and a transactional one, as long as the block runs; then all is read and compared."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        release = cluster.lab.release.of_tools
        self._command = release.java("Traffic", cluster.bootstrap, heap_mb=128, classes=compiled(release))
        self._log = cluster.lab.home / "traffic.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Traffic:
        for topic, partitions in PARTITIONS.items():
            words = ("--partitions", partitions, "--replication-factor", 3, "--config", "min.insync.replicas=2")
            self._cluster.topics("--create", "--topic", topic, *words)
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=out, stderr=out)
        self.wait_for_more()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        if error is not None:
            self._process.send_signal(signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        if error is not None:
            print(f"--- {self._log.name}\n{self._log.read_text()[-1_500:]}")

    def lines(self, kind: str) -> list[list[str]]:
        """Return the words behind `kind` of all lines that begin so."""
        found = (line.split() for line in self._log.read_text().splitlines())
        return [words[1:] for words in found if words[:1] == [kind]]

    def wait_for_more(self, *kinds: str) -> None:
        """Wait until these producers, or both, have had another answer."""
        before = {kind: len(self.lines(kind)) for kind in kinds or PARTITIONS}
        for kind, count in before.items():
            wait_for(f"the producer of {kind}", lambda kind=kind, count=count: len(self.lines(kind)) > count)

    def slowest_ms(self, kind: str) -> int:
        """Return the longest time that an acknowledgement took, or a transaction."""
        return max(int(ms) for _, ms in self.lines(kind))

    def check(self) -> dict[str, int]:
        """See that whatever was acknowledged is there, once, and that transactions left nothing twice, or half."""
        assert self._log.read_text().splitlines()[-1] == "done", self._log.read_text()[-1_500:]
        found: dict[str, list[int]] = {topic: [] for topic in PARTITIONS}
        for topic, value in self.lines("read"):
            found[topic].append(int(value))
        acknowledged = {int(value) for value, _ in self.lines("plain")}
        assert acknowledged <= set(found["plain"]), sorted(acknowledged - set(found["plain"]))
        assert len(set(found["plain"])) == len(found["plain"])
        committed = max(int(end) for end, _ in self.lines("exact"))
        assert found["exact"] == list(range(len(found["exact"])))
        assert committed <= len(found["exact"])
        assert len(found["exact"]) % 10 == 0
        return {"acknowledged": len(acknowledged), "committed": committed}

    @property
    def log(self) -> Path:
        """What it has printed."""
        return self._log
