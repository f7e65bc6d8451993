"""Damage of the log: finding records that are missing although they were durable once, and replacing them.

A **hole** is a range of offsets whose records were in the log and cannot be read any more.

`scan` finds the holes of a log and notes them in a `recovered_log`; `salvage` finds whole batches behind bad bytes.
`judgement` decides which holes are damage and which are a torn tail. `recovery` acts on that at a start; `missing`
handles whole files that are gone. `repair` stores the batches that another replica has sent for a hole; `damaged_log`
puts them into the log, and `damaged_segments` into its files. `scrub` reads all stored files at intervals.
"""

from __future__ import annotations
