"""A controller that answers from a table: what real Kafka once answered, or what a test makes up."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kraftlib.types import Endpoint
from kraftlib.wire.frames import RequestHead, decode_request_head

CAPTURED = Path(__file__).parents[1] / "data/kafka-4.3.1/wire.jsonl.gz"

Answer = Callable[[RequestHead], bytes | None]
"""Takes the head of a request; returns the frame that answers it, or None to close the connection."""


def captured(port: int) -> dict[tuple[int, int], bytes]:
    """Return the first answer that the controller on `port` gave to each kind of request, by API key and version."""
    found: dict[tuple[int, int], bytes] = {}
    with gzip.open(CAPTURED, "rt") as lines:
        for pair in map(json.loads, lines):
            if pair["port"] == port:
                found.setdefault((pair["api_key"], pair["api_version"]), bytes.fromhex(pair["response"]))
    return found


def from_table(table: Mapping[tuple[int, int], bytes]) -> Answer:
    """Answer from `table`, with the correlation id of the request."""

    def answer(head: RequestHead) -> bytes | None:
        frame = table.get((head.api_key, head.api_version))
        return None if frame is None else struct.pack(">i", head.correlation_id) + frame[4:]

    return answer


@contextmanager
def controller(answer: Answer) -> Iterator[Endpoint]:
    """Serve on a free port; connections one after the other."""
    with raw_server(lambda connection: _serve(connection, answer)) as endpoint:
        yield endpoint


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
    """Hand every connection to `serve`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # closed: the test is over
                with connection:
                    connection.settimeout(10)
                    serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield Endpoint(*server.getsockname()[:2])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)


def _serve(connection: socket.socket, answer: Answer) -> None:
    while head := connection.recv(4, socket.MSG_WAITALL):
        request = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
        frame = answer(decode_request_head(request))
        if frame is None:
            return
        connection.sendall(struct.pack(">i", len(frame)) + frame)
