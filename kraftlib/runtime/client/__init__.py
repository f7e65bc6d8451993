"""The client that an application holds, the engine with its event loop, and the node that runs on it."""

from __future__ import annotations
