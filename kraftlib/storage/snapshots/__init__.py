"""Snapshots on disk: whole ones, unfinished ones, increments, and the handling of damaged ones.

`in_memory` keeps them without a disk; `stored` lists them, and `standing_in` lets them take the place of the log.
"""

from __future__ import annotations
