"""The speed of the machine itself, measured in the same run, so that a figure is a ratio and not a boast.

A commit with one record under way costs at least: the record to a follower, an fdatasync there, the next Fetch back.
That is one loopback round trip and one fdatasync; the leader's own fdatasync runs meanwhile. `limit_per_s` says how
many commits a second that makes for N callers if every round carried all of them.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
SYNCS: Final = 300
APPEND_BYTES: Final = 4_096
ROUND_TRIPS: Final = 3_000
MESSAGE_BYTES: Final = 200
CONNECT_TIMEOUT_S: Final = 10.0


@attrs.frozen
class Machine:
    """Medians, in microseconds."""

    fdatasync_us: float
    """Append 4 KiB to a growing file and fdatasync it."""
    round_trip_us: float
    """200 bytes to another process over loopback and back, blocking sockets."""

    def limit_per_s(self, callers: int) -> float:
        """Return how many commits a second the machine allows with so many callers, each with one record under way."""
        return callers * 1e6 / (self.fdatasync_us + self.round_trip_us)


def median_of(machines: Sequence[Machine]) -> Machine:
    """Return the median of several measurements."""
    return Machine(
        statistics.median(machine.fdatasync_us for machine in machines),
        statistics.median(machine.round_trip_us for machine in machines),
    )


def measure(directory: Path) -> Machine:
    """Measure the disk of `directory`, and loopback."""
    return Machine(measure_fdatasync_us(directory), measure_round_trip_us())


def measure_fdatasync_us(directory: Path, *, count: int = SYNCS) -> float:
    """Return the median of appending 4 KiB and making them durable."""
    data, times = os.urandom(APPEND_BYTES), []
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter_ns()
            file.write(data)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1_000


def measure_round_trip_us(*, count: int = ROUND_TRIPS) -> float:
    """Return the median of sending 200 bytes to another process and getting them back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(CONNECT_TIMEOUT_S)
        port = str(server.getsockname()[1])
        with subprocess.Popen([sys.executable, "-m", __name__, port], cwd=ROOT, stdin=subprocess.DEVNULL) as other:
            try:
                connection, _ = server.accept()
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return _median_round_trip_us(connection, count)
            finally:
                other.kill()


def _median_round_trip_us(connection: socket.socket, count: int) -> float:
    message, times = bytes(MESSAGE_BYTES), []
    for _ in range(count):
        began = time.perf_counter_ns()
        connection.sendall(message)
        connection.recv(MESSAGE_BYTES, socket.MSG_WAITALL)
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1_000


def echo(port: int) -> None:
    """Be the other process: send back what comes, until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=CONNECT_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(MESSAGE_BYTES, socket.MSG_WAITALL):
            connection.sendall(data)


if __name__ == "__main__":
    echo(int(sys.argv[1]))


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
