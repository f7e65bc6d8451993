"""What only a real kernel can do: refuse writes, descriptors and memory, and keep a dead connection open.

The ids are those of `docs/contributing/scenarios.md`.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftlib.storage.directory import format_directory
from tests.cli.processes import TIMEOUT_S
from tests.ports import free_port
from tests.reliability.relay import relayed_quorum

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """The process of `child.py`."""

    def __init__(self, directory: Path, port: int) -> None:
        command = [sys.executable, "-m", "tests.reliability.child", str(directory), str(port)]
        self.port = port
        self.popen = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.end = self.answer()["end"]

    def answer(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            _, errors = self.popen.communicate(timeout=TIMEOUT_S)
            raise AssertionError(f"it has ended: {errors}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def do(self, what: str, **more: Any) -> dict[str, Any]:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.popen.stdin.flush()
        return self.answer()


@contextmanager
def child(directory: Path) -> Iterator[Child]:
    """A running child; killed at the end."""
    if not directory.exists():
        format_directory(directory, node_id=1, cluster_id="blue")
    made = Child(directory, free_port())
    try:
        yield made
    finally:
        made.popen.kill()
        made.popen.communicate(timeout=TIMEOUT_S)


def test_s9_writes_are_refused_in_mid_run(tmp_path: Path) -> None:
    """As a file system that has become read-only: the replica stops, says so, and nothing acknowledged is lost."""
    with child(tmp_path / "data") as first:
        end = first.do("append", name="before", count=20)["end"]
        first.do("limit", kind="file size", more=0)
        refused = first.do("append", name="refused", count=1)
        closed = first.do("closed")
    with child(tmp_path / "data") as second:
        again = second.end

    assert refused["error"] in ("ReplicaFailedError", "OutcomeUnknownError"), refused
    assert closed["error"] == "ReplicaFailedError", closed
    assert "File too large" in closed["what"]
    assert again >= end


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_p6_descriptors_are_exhausted(tmp_path: Path) -> None:
    """Log and election file are open already: accepting pauses, appending does not, and later it accepts again."""
    with child(tmp_path / "data") as process:
        process.do("limit", kind="descriptors", more=8)
        strangers = [socket.create_connection(("127.0.0.1", process.port), timeout=TIMEOUT_S) for _ in range(40)]
        assert "error" not in process.do("append", name="exhausted", count=50)
        for stranger in strangers:
            stranger.close()
        assert "error" not in process.do("append", name="after", count=5)
        assert versions_are_told(process.port)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_p7_memory_is_scarce(tmp_path: Path) -> None:
    """A hundred strangers announce a frame of 100 MiB each, where there are 64 MiB left: others are served."""
    with child(tmp_path / "data") as process:
        process.do("limit", kind="memory", more=64 << 20)
        strangers = []
        for _ in range(50):
            stranger = socket.create_connection(("127.0.0.1", process.port), timeout=TIMEOUT_S)
            stranger.sendall(struct.pack(">i", 100 << 20) + bytes(64))
            strangers.append(stranger)
        assert "error" not in process.do("append", name="scarce", count=50)
        assert versions_are_told(process.port)
        for stranger in strangers:
            stranger.close()


def versions_are_told(port: int) -> bool:
    """Ask for API versions, version 0, as any Kafka client does."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(8)
    return len(answer) == 8 and struct.unpack(">ii", answer)[1] == 7


@pytest.mark.parametrize("scenario", [pytest.param("E5", marks=pytest.mark.slow), "L10"])
def test_p11_nothing_is_switched_off_by_optimization(scenario: str) -> None:
    """`python -O` strips `assert`: the same story takes the same course, and a planted violation is still found."""
    command = ["-m", "tools.simulate", "--scenario", scenario, "--seeds", "0:2", "--output", "json"]
    told = [
        subprocess.run(
            [sys.executable, *flags, *command], cwd=ROOT, capture_output=True, timeout=120, check=True
        ).stdout
        for flags in ([], ["-O"])
    ]
    assert told[0] == told[1] != b""
    planted = (
        "from kraftlib.errors import InvariantError, ensure\n"
        "try:\n    ensure(False, 'planted')\nexcept InvariantError:\n    print('found')\n"
    )
    found = subprocess.run([sys.executable, "-O", "-c", planted], cwd=ROOT, capture_output=True, timeout=60, check=True)
    assert found.stdout == b"found\n"


async def test_p3_a_peer_is_gone_without_a_word() -> None:
    """Its kernel goes on taking bytes: only the absence of answers tells. Another replica leads before long."""
    async with relayed_quorum() as quorum:
        leader = await quorum.leader()
        before = await leader.append_one(b"before")
        relay = quorum.relays[leader.node_id]
        relay.freeze()
        connected = relay.open_connections
        successor = await quorum.leader(not_id=leader.node_id)
        after = await successor.append_one(b"after")

        assert connected > 0
        assert after.epoch > before.epoch
