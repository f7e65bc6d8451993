"""Kafka's KRaft as an embeddable library: consensus inside your own process."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
