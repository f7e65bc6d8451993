"""Kafka's metadata records, declared: names, ids, versions, and no behaviour."""

from __future__ import annotations
