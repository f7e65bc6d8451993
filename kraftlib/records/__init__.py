"""Record batches: checksum, compression, control records, accumulator, snapshots, serdes."""

from __future__ import annotations
