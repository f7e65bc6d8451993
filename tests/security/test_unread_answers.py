"""Row 22 of the security checklist: answers that nobody reads cost no more memory than a replica spends on them."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest

from kraftlib.runtime.net.framing import framed
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.fetch import FetchRequest
from tests.security.authority import Authority
from tests.security.replica_process import LIMITS, OBSERVER

LOG_MEBIBYTES = 8
PEERS = 96
METADATA_TOPIC = UUID(int=1)
PEAK_BUDGETS = {False: 3, True: 6}
"""The peak of memory over what it was before, in budgets, in plaintext and with TLS: beside the answers that wait there
is the one that is made, and those of peers that are just closed. TLS breaks up the heap until it is trimmed."""


class Child:
    """The replica in its process. `tls` is what its peers connect with, None: plaintext."""

    def __init__(self, process: subprocess.Popen[str], tls: ssl.SSLContext | None) -> None:
        self._process = process
        self._tls = tls
        self._port = int(self._line())

    def connect(self, receive_bytes: int | None = None) -> socket.socket:
        """Open a connection with this size of the receive buffer."""
        plain = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        if receive_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        return plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def answer_size(self, _number: int = 0) -> int:
        """Read one answer to its end, and return its size."""
        with self.connect() as one:
            one.sendall(fetch(1))
            stream = one.makefile("rb", buffering=0)
            size = left = int.from_bytes(stream.read(4) or b"", "big")
            while left:
                part = stream.read(min(left, 1 << 16))
                assert part, f"closed when {left} of {size} bytes were left"
                left -= len(part)
            return size

    def resident_bytes(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    @contextmanager
    def peak(self) -> Iterator[list[int]]:
        """Yield a list that has, once the body is over, the most bytes that were resident meanwhile."""
        proc, found = Path(f"/proc/{self._process.pid}"), list[int]()
        (proc / "clear_refs").write_text("5")  # the peak begins anew
        yield found
        (line,) = [line for line in (proc / "status").read_text().splitlines() if line.startswith("VmHWM:")]
        found.append(int(line.split()[1]) * 1_024)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def replica(authority: Authority | None) -> Iterator[Child]:
    """Start a replica, with certificates of `authority` if there is one."""
    files, tls = [], None
    if authority is not None:
        authority.files("replica", authority.issue("kraft://test/1"))
        files = [str(authority.directory / "replica")]
        tls = authority.contexts(OBSERVER)["client_ssl"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.security.replica_process", str(LOG_MEBIBYTES), *files],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Child(process, tls)
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


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_row_22_unread_answers_of_many_peers_have_one_budget_and_the_memory_comes_back(
    is_encrypted: bool, tmp_path: Path
) -> None:
    """Each peer alone may leave 8 MiB unread; ninety-six of them took 0.8 GiB, over TLS too."""
    with replica(Authority(tmp_path) if is_encrypted else None) as child:
        size = child.answer_size()
        assert size > 900_000 * LOG_MEBIBYTES
        with ThreadPoolExecutor(4) as readers:  # memory is compared with that after honest work, as much at once
            assert len(set(readers.map(child.answer_size, range(24)))) == 1
        before = child.resident_bytes()
        deaf = []
        with child.peak() as peak:
            for number in range(PEERS):
                one = child.connect(receive_bytes=4_096)
                one.sendall(fetch(number) * 4)
                deaf.append(one)
                child.resident_bytes()  # it has had a turn
        assert peak[0] - before < PEAK_BUDGETS[is_encrypted] * LIMITS.answers_max_bytes

        for one in deaf:
            one.close()
        deadline = time.monotonic() + 30
        # The C library keeps what two answers take, once it has freed one of that size (M_MMAP_THRESHOLD is dynamic).
        while (after := child.resident_bytes()) > 1.2 * before + 2 * size:
            assert time.monotonic() < deadline, f"{after} bytes are resident, and {before} were before"
            time.sleep(0.05)
        assert child.answer_size() > 0
