"""Row 26 of the security checklist: no frame of a stranger costs a replica more than a moment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from kraftlib.wire.apis import APIS, PrivateApiKey
from tools.fuzz.dear_frames import dear_frames, is_refused

CALLS_MAX: Final = 60_000
"""Function calls of some 20 ms."""


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of function calls that `work` takes."""
    calls = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("api", [APIS[key] for key in (*APIS, *PrivateApiKey)], ids=lambda api: api.key.name)
def test_row_26_the_dearest_frame_of_an_api_costs_a_bounded_number_of_calls(api: Any) -> None:
    version = api.versions.last
    is_refused(next(iter(dear_frames(api.request, version)), ("", b""))[1])  # builds the codec
    for name, frame in dear_frames(api.request, version):
        assert calls_of(lambda frame=frame: is_refused(frame)) < CALLS_MAX, name  # type: ignore[misc]
