"""The core of the protocol: (state, event, now) to actions."""

from __future__ import annotations
