"""Kafka's raft client as a peer of ours (`peer/Peer.java`): opaque records, and the same orders as our replica."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlib.types import Endpoint, new_uuid, uuid_text
from tests.interop.jars import libraries, once, release_directory
from tests.interop.kafka import FORMAT, Release
from tests.interop.processes import PATIENCE_S, Process

SOURCES: Final = tuple(sorted((Path(__file__).with_name("peer")).glob("*.java")))
READY: Final = "orders "


def compiled(release: Release) -> Path:
    """Return the directory with our Java classes, compiled against this release."""
    text = b"".join(source.read_bytes() for source in SOURCES)
    target = release_directory(release.version) / f"peer-{hashlib.sha256(text).hexdigest()[:12]}"

    def make(place: Path) -> None:
        path = f"{libraries(release.version)}/*"
        subprocess.run(["javac", "-cp", path, "-d", str(place), *map(str, SOURCES)], check=True, timeout=PATIENCE_S)

    once(target, make)
    return target


class JavaPeer(Process):
    """A raft client of Kafka without a controller."""

    def __init__(
        self,
        release: Release,
        node_id: int,
        *,
        home: Path,
        endpoint: Endpoint,
        quorum: Mapping[str, object],
        properties: Mapping[str, object] | None = None,
        listen: Endpoint | None = None,
    ) -> None:
        self.release = release
        self.node_id = node_id
        self.endpoint = endpoint
        self.directory = home / f"peer-{node_id}"
        self.properties_file = home / f"peer-{node_id}.properties"
        words = {
            "node.id": node_id,
            "log.dirs": self.directory,
            "process.roles": "controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{listen or endpoint}",
            "advertised.listeners": f"CONTROLLER://{endpoint}",
            "controller.quorum.append.linger.ms": 0,
            **quorum,
            **(properties or {}),
        }
        self.properties_file.write_text("".join(f"{name}={value}\n" for name, value in words.items()))
        super().__init__([], log=home / f"peer-{node_id}.log")

    @property
    def partition(self) -> Path:
        """Where the log is."""
        return self.directory / "__cluster_metadata-0"

    def format(self, cluster_id: str, *arguments: object) -> None:
        """Make the directory: with Kafka's own tool where the voters stand in it, else it is just there."""
        if arguments:
            self.release.tool(FORMAT, "format", "-t", cluster_id, "-c", self.properties_file, *arguments).ok()
            told = (self.directory / "meta.properties").read_text()
            found = re.search(r"^directory\.id=(.*)$", told, re.MULTILINE)
            assert found is not None
            directory_id = found[1]
        else:
            self.directory.mkdir()
            directory_id = uuid_text(new_uuid())
        classes = compiled(self.release)
        self.command = self.release.java(
            "Peer", self.properties_file, cluster_id, directory_id, heap_mb=256, level="INFO", classes=classes
        )

    def wait_started(self) -> None:
        """Wait until it takes orders."""
        self.wait_for_line(READY)

    def ask(self, name: str, argument: object = "", *, timeout_s: float = PATIENCE_S) -> Any:
        """Give an order and return the answer."""
        line = next(line for line in self.log_text().splitlines() if line.startswith(READY))
        port = json.loads(line.removeprefix(READY))["port"]
        words = argument
        if isinstance(argument, dict) and name == "load":
            words = f"{argument['count']} {argument['prefix']} {argument.get('callers', 8)}"
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(f"{name} {words}\n".encode())
            answer = json.loads(connection.makefile("rb").readline())
        return {"acknowledged": answer, "unknown": []} if name == "load" else answer

    def replica_status(self) -> dict[str, Any]:
        """Return what it says of itself."""
        status: dict[str, Any] = self.ask("status")
        return status
