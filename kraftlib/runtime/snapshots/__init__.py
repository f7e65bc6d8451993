"""Snapshots of a running replica: writing, checks, transfer, and the retention of the log that they replace."""

from __future__ import annotations
