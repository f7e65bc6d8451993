"""Snapshots on disk: whole ones, those on their way, increments, and what becomes of damaged ones.

`in_memory` keeps them without a disk; `stored` lists them, and `standing_in` lets them take the place of the log.
"""

from __future__ import annotations
