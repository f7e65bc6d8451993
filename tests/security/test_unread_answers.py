"""Row 22 of the security checklist: answers that nobody reads cost no more memory than a replica spends on them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from uuid import UUID

from kraftlib.runtime.net.framing import framed
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.fetch import FetchRequest
from tests.security.replica_process import LIMITS

LOG_MEBIBYTES = 8
PEERS = 96
METADATA_TOPIC = UUID(int=1)


class Child:
    """The replica in its process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._line())

    def resident_bytes(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def replica() -> Iterator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.security.replica_process", str(LOG_MEBIBYTES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        with suppress(BrokenPipeError):
            process.communicate(timeout=30)


def fetch(correlation_id: int) -> bytes:
    """Return a Fetch for the whole log, of an observer without a number."""
    partition = FetchRequest.FetchPartition(
        partition=0, current_leader_epoch=1, fetch_offset=0, last_fetched_epoch=0, partition_max_bytes=2**31 - 1
    )
    topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC, partitions=(partition,))
    request = FetchRequest(cluster_id="test", max_wait_ms=0, max_bytes=2**31 - 1, topics=(topic,))
    return framed(encode_request(request, version=17, correlation_id=correlation_id, client_id="deaf"))


def answer_size(port: int) -> int:
    """Read one answer to its end, and return its size."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        one.sendall(fetch(1))
        size = left = int.from_bytes(one.recv(4, socket.MSG_WAITALL), "big")
        while left:
            left -= len(one.recv(min(left, 1 << 16)))
        return size


def test_row_22_unread_answers_of_many_peers_have_one_budget_and_the_memory_comes_back() -> None:
    """Each peer alone may leave 8 MiB unread; ninety-six of them took 0.8 GiB."""
    with replica() as child:
        size = answer_size(child.port)
        assert size > 900_000 * LOG_MEBIBYTES
        with ThreadPoolExecutor(8) as readers:  # memory is compared with that after honest work, as much at once
            assert len(set(readers.map(answer_size, [child.port] * 24))) == 1
        before = child.resident_bytes()
        deaf, most = [], before
        for number in range(PEERS):
            one = socket.create_connection(("127.0.0.1", child.port), timeout=30)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.sendall(fetch(number) * 4)
            deaf.append(one)
            most = max(most, child.resident_bytes())
        assert most - before < 2 * LIMITS.answers_max_bytes

        for one in deaf:
            one.close()
        deadline = time.monotonic() + 30
        # The C library keeps what two answers take, once it has freed one of that size (M_MMAP_THRESHOLD is dynamic).
        while (after := child.resident_bytes()) > 1.2 * before + 2 * size:
            assert time.monotonic() < deadline, f"{after} bytes are resident, and {before} were before"
            time.sleep(0.05)
        assert answer_size(child.port) > 0
