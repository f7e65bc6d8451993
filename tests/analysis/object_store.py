"""As much of an object store's protocol as a reader needs: listing, sizes and ranges of bytes, from a directory."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "archive"


@contextmanager
def object_store(directory: Path, *, before: Callable[[], object] = lambda: None) -> Iterator[tuple[str, list[str]]]:
    """Serve the files below `directory` as objects of one bucket; yield `host:port` and the ranges asked for.

    `before` is called before a range is answered, by the thread that answers it.
    """
    ranges: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body in one piece: sent apart, the second waits for the first to be acknowledged, 40 ms.
        wbufsize = 1 << 16

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
            if bucket == BUCKET and key:
                self.send_object(directory / key)
            else:
                self.answer(200, listing(directory, parse_qs(parts.query)), "application/xml")

        do_HEAD = do_GET  # noqa: N815

        def send_object(self, path: Path) -> None:
            if not path.is_file():
                self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
                return
            data = path.read_bytes()
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if match is None:
                self.answer(200, data, "binary/octet-stream")
                return
            first, last = int(match[1]), min(int(match[2]), len(data) - 1)
            ranges.append(f"{path.name} {first}-{last}")
            before()
            self.answer(206, data[first : last + 1], "binary/octet-stream", f"bytes {first}-{last}/{len(data)}")

        def answer(self, status: int, body: bytes, kind: str, content_range: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")
            self.send_header("ETag", '"0"')
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Be quiet of clients that are gone: some are killed."""
            if not isinstance(sys.exc_info()[1], ConnectionError):
                raise

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", ranges
    finally:
        server.shutdown()
        thread.join(timeout=30)
        server.server_close()


def listing(directory: Path, query: dict[str, list[str]]) -> bytes:
    """Return what a bucket says of its keys."""
    prefix = query.get("prefix", [""])[0]
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    rows = []
    for path in found:
        key = path.relative_to(directory).as_posix()
        if key.startswith(prefix):
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>"
                "<LastModified>2026-11-21T10:00:00.000Z</LastModified></Contents>"
            )
    return (
        f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(rows)}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
    ).encode()
