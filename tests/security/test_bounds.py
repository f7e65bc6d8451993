"""Rows 20 and 26 of the security checklist: endpoints that no voter has, and work that grows with the bytes."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

import kraftlib
from kraftlib.consensus.actions import SendRequest
from kraftlib.consensus.voter_changes import LISTENERS_MAX
from kraftlib.runtime.net.framing import FrameReader, framed
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest
from tests.consensus.build import ask, tell
from tests.consensus.test_voter_changes import add_request, dynamic_leader

PACKAGE = Path(kraftlib.__file__).parent


def listener(name: str = "CONTROLLER", host: str = "replica-4", port: int = 9_093) -> AddRaftVoterRequest.Listener:
    return AddRaftVoterRequest.Listener(name=name, host=host, port=port)


@pytest.mark.parametrize(
    "listeners",
    [
        (),
        (listener(port=0),),
        (listener(host=""),),
        (listener(host="h." * 127 + "hh"),),
        (listener(host="evil.example\nforged"),),
        (listener(host="2130706433"),),
        (listener(), listener(name="forged\nline")),
        (listener(), listener(name="L" * 256)),
        (listener(), *(listener(name=f"L{number}") for number in range(LISTENERS_MAX))),
        tuple(listener() for _ in range(10_000)),
        (listener(), listener(name="OTHER", port=0)),
    ],
    ids=["none", "port 0", "no host", "a huge host", "two lines", "a number", "a name of two lines", "a huge name",
         "one too many", "ten thousand", "a bad one beside a good one"],
)  # fmt: skip
def test_row_20_a_voter_with_hostile_endpoints_is_refused_and_not_connected_to(listeners: Any) -> None:
    core = dynamic_leader()
    request = attrs.evolve(add_request(), listeners=listeners)

    assert ask(core, request).error_code == ErrorCode.INVALID_REQUEST
    assert [action for action in tell(core, request) if isinstance(action, SendRequest)] == []


def calls_for(count: int, piece: int) -> int:
    """How many function calls it takes to cut so many frames out of pieces of this size."""
    stream = b"".join(framed(b"x" * 40) for _ in range(count))
    calls = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    reader, found = FrameReader(1_000), 0
    sys.setprofile(counting)
    try:
        for start in range(0, len(stream), piece):
            reader.feed(stream[start : start + piece])
            while reader.next_frame() is not None:
                found += 1
    finally:
        sys.setprofile(None)
    assert found == count
    return calls


@pytest.mark.parametrize("piece", [1, 7, 44, 5_000, 10**9])
def test_row_26_twice_the_frames_cost_twice_the_calls(piece: int) -> None:
    assert calls_for(2_000, piece) <= 2.2 * calls_for(1_000, piece)


def test_row_26_no_regular_expression_looks_at_what_came_over_the_wire() -> None:
    """Where bytes of peers are read; `declarations` and `versions` read what the library itself declares."""
    looked_at = [*(PACKAGE / "wire").rglob("*.py"), *(PACKAGE / "records").glob("*.py"), PACKAGE / "codec/reader.py"]
    looked_at += [PACKAGE / f"codec/{name}.py" for name in ("struct_codec", "generated", "varint")]
    looked_at += [PACKAGE / "runtime/net/framing.py"]
    found = [
        str(path)
        for path in looked_at
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Import) and any(alias.name == "re" for alias in node.names)
    ]
    assert len(looked_at) > 20
    assert found == []
