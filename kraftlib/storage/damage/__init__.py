"""What is done where records are missing that were durable once.

`scan` finds the holes of a log, with `salvage` for what stands behind bad bytes; `judgement` says which of them are
damage, and `recovery` acts on that at a start, with `missing` for whole files that are gone. `repair` fills a hole with
what others have sent; `damaged_log` does so in the log, and `damaged_segments` in its files. The `scrub` reads all that
is stored, now and then.
"""

from __future__ import annotations
