"""Replicas of ours, beside those of Kafka: a directory, a TOML file, and the process on them."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint, uuid_text
from tests.interop.processes import PATIENCE_S, Process

ROOT: Final = Path(__file__).resolve().parents[2]
READY: Final = "orders "
CLIENTS: Final = "clients to "


class OurReplica(Process):
    """A replica in a process of its own, which takes the orders of `tests.interop.voter`."""

    def __init__(
        self,
        node_id: int,
        *,
        home: Path,
        endpoint: Endpoint,
        quorum: Mapping[str, str],
        listen: Endpoint | None = None,
        **settings: object,
    ) -> None:
        self.node_id = node_id
        self.endpoint = endpoint
        self.directory = Path(str(settings.pop("directory", home / f"ours-{node_id}")))
        self.config_file = home / f"ours-{node_id}.toml"
        values = {
            "node_id": node_id,
            "directory": str(self.directory),
            "listen": str(listen or endpoint),
            "advertised": str(endpoint),
            "engine": "inline",
            **quorum,
            **settings,
        }
        self.config_file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
        super().__init__(
            [sys.executable, "-m", "tests.interop.voter", str(self.config_file)],
            log=home / f"ours-{node_id}.log",
            environment={"PYTHONPATH": str(ROOT)},
        )

    @property
    def partition(self) -> Path:
        """Where the metadata log is."""
        return self.directory / "__cluster_metadata-0"

    def format(self, cluster_id: str, **how: Any) -> str:
        """Make the directory; return the text of its directory id."""
        formatted = format_directory(self.directory, node_id=self.node_id, cluster_id=cluster_id, **how)
        assert formatted.meta.directory_id is not None
        return uuid_text(formatted.meta.directory_id)

    def wait_started(self) -> None:
        """Wait until it takes orders."""
        self.wait_for_line(READY)

    def orders_port(self) -> int:
        """Return where it takes orders."""
        line = next(line for line in self.log_text().splitlines() if line.startswith(READY))
        return int(json.loads(line.removeprefix(READY))["port"])

    def ask(self, name: str, argument: object = True, *, timeout_s: float = PATIENCE_S) -> Any:
        """Give an order and return the answer. Raises: RefusedError with what the replica said."""
        try:
            with socket.create_connection(("127.0.0.1", self.orders_port()), timeout=timeout_s) as connection:
                connection.sendall(json.dumps({"id": 1, name: argument}).encode() + b"\n")
                answer = json.loads(connection.makefile("rb").readline())
        except TimeoutError:
            self.signal(signal.SIGUSR1)  # its log then tells where it hangs
            raise
        if name not in answer:
            raise RefusedError(f"{answer.get('error')}: {answer.get('message')}")
        return answer[name]

    def replica_status(self) -> dict[str, Any]:
        """Return what it says of itself and its quorum."""
        status: dict[str, Any] = self.ask("status")
        return status


class Carrier(OurReplica):
    """`kraftlib run --no-store`: a voter as an operator starts it beside Kafka's controllers."""

    def __init__(self, node_id: int, **how: Any) -> None:
        super().__init__(node_id, **how)
        self.command = [sys.executable, "-m", "kraftlib.cli", "run", "--no-store", "-c", str(self.config_file)]

    def wait_started(self) -> None:
        """Wait until it says where it is asked."""
        self.wait_for_line(CLIENTS)

    def orders_port(self) -> int:
        """Return where it is asked for its status."""
        return int(self.log_text().partition(CLIENTS)[2].partition(";")[0].rpartition(":")[2])

    def ask(self, name: str, argument: object = True, *, timeout_s: float = PATIENCE_S) -> Any:
        """As above; what it has heard of leaders, in all of its lives, stands in what it has printed."""
        if name == "leaders":
            found = re.findall(r"^epoch (\d+): replica (\d+)", self.log.read_text(), re.MULTILINE)
            return [(int(epoch), int(leader)) for epoch, leader in found]
        return super().ask(name, argument, timeout_s=timeout_s)


class RefusedError(Exception):
    """The replica did not do what it was asked for."""
