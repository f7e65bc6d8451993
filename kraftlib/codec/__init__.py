"""Bounded bytes to declared attrs classes and back: Kafka's flexible encoding."""

from __future__ import annotations
