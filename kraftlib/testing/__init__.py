"""The simulator and the kits with which logs, transports and state machines are tested."""

from __future__ import annotations
