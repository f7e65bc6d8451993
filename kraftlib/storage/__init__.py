"""The log, the election state and the snapshots on disk."""

from __future__ import annotations
