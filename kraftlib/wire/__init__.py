"""What goes over a connection: messages and frames."""

from __future__ import annotations
