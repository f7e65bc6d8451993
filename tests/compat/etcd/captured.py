"""A snapshot of etcd 3.6, and all keys as etcd itself had them then (tests/data/etcd)."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parents[2] / "data" / "etcd"

SNAPSHOT: Final = gzip.decompress((HERE / "snapshot.db.gz").read_bytes())
DATABASE: Final = SNAPSHOT[:-32]
"""Without the checksum behind it."""

RANGE: Final = [
    (base64.b64decode(key), base64.b64decode(value), has_lease)
    for key, value, has_lease in json.loads((HERE / "range.json").read_text())
]
"""Key, value, and whether it has a lease."""


def lasting(prefix: bytes) -> dict[str, bytes]:
    """Return the keys without a lease that begin so."""
    return {key.decode(): value for key, value, has_lease in RANGE if key.startswith(prefix) and not has_lease}
