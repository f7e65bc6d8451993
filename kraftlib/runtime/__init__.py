"""Where decisions meet deeds: executor, applier, transports, clients."""

from __future__ import annotations
