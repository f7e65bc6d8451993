"""The dearest frames of each API: the cost of one frame of a stranger for a replica, in ms.

    python -m tools.fuzz.dear_frames

For each version of each request there are frames that go to the bounds of its arrays and tags, and frames of 1 MiB that
go beyond them. Each is read as a replica reads it; the table has the dearest frame of each API, the ms of the fastest
of three tries, and whether the frame was refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import attrs

from kraftlib.codec.declarations import Declaration, Message, Struct, declared_fields
from kraftlib.errors import RemoteProtocolError
from kraftlib.types import ZERO_UUID
from kraftlib.wire.apis import APIS, PrivateApiKey
from kraftlib.wire.bounds import REQUEST_ELEMENTS
from kraftlib.wire.frames import decode_request, encode_request

FRAME_BYTES: Final = 1024 * 1024
"""The largest frame of a connection that has not shown itself yet (`TcpLimits.newcomer_frame_max_bytes`)."""

ELEMENT_BYTES: Final = 8
"""About the size of the smallest element: as many are sent beyond the bounds as fit into the frame."""


@attrs.frozen
class Cost:
    """The time that one frame took."""

    api: str
    frame: str
    size: int
    ms: float
    refused: bool


def dear_frames(request: type[Message], version: int, *, beyond: bool = True) -> Iterator[tuple[str, bytes]]:
    """Yield frames of one version of a request, each with a name that says what is many in it.

    `beyond`: also frames with more than is read.
    """
    for name, declaration, _ in declared_fields(request):
        if version in declaration.versions and declaration.type.startswith("[]"):
            for what, count in (("at its bound", None), ("beyond it", FRAME_BYTES // ELEMENT_BYTES))[: 1 + beyond]:
                values = _array(declaration, request, version, count=count)
                yield f"{name} {what}", _frame(request(**{name: values}), version)
    if version in request.flexible_versions:
        tags = tuple((1_000 + number, b"") for number in range(1_024))
        yield "tags", _frame(request(unknown_tagged_fields=tags), version)


def _frame(message: Message, version: int) -> bytes:
    return encode_request(message, version=version, correlation_id=1, client_id="stranger")[:FRAME_BYTES]


def _array(declaration: Declaration, owner: type[Message], version: int, *, count: int | None) -> tuple[Any, ...]:
    """Return the elements of one array: `count`, or as many as are read, with arrays within them."""
    wanted = min(declaration.most, REQUEST_ELEMENTS) if count is None else count
    name = declaration.type.removeprefix("[]")
    element: Any
    if not hasattr(owner, name):
        element = _plain(name)
    elif count is None and wanted < REQUEST_ELEMENTS:
        element = _struct(getattr(owner, name), owner, version)
    else:
        element = getattr(owner, name)()
    return (element,) * wanted


def _struct(cls: type[Struct], owner: type[Message], version: int) -> Struct:
    arrays = {
        name: _array(declaration, owner, version, count=None)
        for name, declaration, _ in declared_fields(cls)
        if version in declaration.versions and declaration.type.startswith("[]")
    }
    return cls(**arrays)


def _plain(name: str) -> Any:
    return {"uuid": ZERO_UUID, "string": "", "bytes": b""}.get(name, 0)


def is_refused(frame: bytes) -> bool:
    """Read `frame` as a replica does; return whether it is refused."""
    try:
        decode_request(frame)
    except RemoteProtocolError:
        return True
    return False


def costs() -> Iterator[Cost]:
    """Measure all frames of all APIs."""
    for entry in (APIS[key] for key in (*APIS, *PrivateApiKey)):
        for version in entry.versions:
            for name, frame in dear_frames(entry.request, version):
                times = []
                for _ in range(3):
                    began = time.perf_counter()
                    refused = is_refused(frame)
                    times.append(time.perf_counter() - began)
                title = f"version {version}, {name}"
                yield Cost(entry.key.name, title, len(frame), min(times) * 1_000, refused)


def main() -> None:
    """Print the dearest frame of each API."""
    dearest: dict[str, Cost] = {}
    for cost in costs():
        if cost.api not in dearest or cost.ms > dearest[cost.api].ms:
            dearest[cost.api] = cost
    for cost in sorted(dearest.values(), key=lambda cost: -cost.ms):
        outcome = "refused" if cost.refused else "read"
        print(f"{cost.ms:8.2f} ms  {cost.size:>9,} bytes  {outcome:7}  {cost.api}: {cost.frame}")


if __name__ == "__main__":
    main()
