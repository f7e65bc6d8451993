"""Snapshots on disk: whole ones, those on their way, increments, and what becomes of damaged ones."""

from __future__ import annotations
