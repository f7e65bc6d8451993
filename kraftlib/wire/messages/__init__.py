"""One module per API: its request and its response, declared. Nothing here does anything."""

from __future__ import annotations
