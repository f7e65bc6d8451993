"""The whole history of a metadata log, in files: the committed records of a quorum, ours or Kafka's, and nothing else.

A replica forgets: snapshots replace its log. An archive follows the same quorum as an observer, writes every committed
batch byte for byte into segments of its own, keeps every checkpoint that it is sent, and deletes nothing. It has no
vote. Since only committed batches are written, nothing in it is ever truncated, and a reader of its files needs to
know nothing of the quorum.

    directory  where it lies, whose it is, and what a kill -9 leaves: `ArchiveDirectory`
    writer     the segments: the only code that changes them
    log        what the replica sees: `ArchiveLog`, whose uncommitted end is in memory only
    follower   `follow`: a replica with such a log, and the loop that writes what becomes committed
    report     what is there: ranges, gaps, checkpoints, and whether every byte is as it was
"""

from __future__ import annotations

from kraftlib.archive.directory import ArchiveDirectory, find_archives, open_archive
from kraftlib.archive.follower import Progress, follow
from kraftlib.archive.report import Description, Findings, Range, describe, verify

__all__ = [
    "follow",
    "Progress",
    "open_archive",
    "find_archives",
    "ArchiveDirectory",
    "describe",
    "Description",
    "Range",
    "verify",
    "Findings",
]
