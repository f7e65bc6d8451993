"""The frames that the fuzzer begins from beside its samples: each reaches a line of kraftlib that no other one does.

`dev.py fuzz --keep` adds what it has found. A file in the form of `json.dumps({target: [hex, ...]})`, compressed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).with_name("corpus.json.gz")

FRAME_MAX_BYTES: Final = 2 * 1024
"""A longer frame is not kept: most of it says nothing."""

FILE_MAX_BYTES: Final = 256 * 1024


def read(path: Path = PATH) -> dict[str, list[bytes]]:
    """Return the frames of each target by its name."""
    if not path.exists():
        return {}
    found: dict[str, list[str]] = json.loads(gzip.decompress(path.read_bytes()))
    return {name: [bytes.fromhex(frame) for frame in frames] for name, frames in found.items()}


def write(frames: Mapping[str, Sequence[bytes]], path: Path = PATH) -> None:
    """Write the frames. The same frames make the same bytes. Raises: ValueError, if the file would be too large."""
    text = json.dumps({name: [frame.hex() for frame in frames[name]] for name in sorted(frames)}, indent=0)
    data = gzip.compress(text.encode(), mtime=0)
    if len(data) > FILE_MAX_BYTES:
        raise ValueError(f"{path} would have {len(data)} bytes, where {FILE_MAX_BYTES} are allowed")
    path.write_bytes(data)


def candidates(frames: Iterable[bytes]) -> list[bytes]:
    """Return the frames that may be kept, the short ones first."""
    return sorted({frame for frame in frames if len(frame) <= FRAME_MAX_BYTES}, key=lambda frame: (len(frame), frame))
