"""Snapshots of a running replica: written, checked, sent and received, and what the log may forget because of them."""

from __future__ import annotations
