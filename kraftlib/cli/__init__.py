"""The command kraftlib."""

from __future__ import annotations
