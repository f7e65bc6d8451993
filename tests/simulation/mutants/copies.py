"""Bugs that show where an older copy of a directory is put back, or a list of static voters is edited."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "going-back-is-not-said",
        "a leader does not say that a voter has less than it had: an older copy of its disk is there (S14)",
        (Edit("consensus.fetch_leader.record_progress", "if offset < progress.end_offset:", "if False:"),),
        profiles=("disks",),
    ),
    Mutant(
        "shorter-copy-opens",
        "a log that ends between two batches, before the note of what was durable, opens as if it were whole (S1)",
        (
            Edit(
                "storage.damage.judgement._note_missing_end",
                "if note is None or note.mark.end_offset <= log.end_offset:",
                "if note is None or note.mark.end_offset <= log.end_offset or not log.holes:",
            ),
        ),
        profiles=("disks",),
    ),
    Mutant(
        "edited-list-starts",
        "a replica that has run starts with another list of static voters (I16)",
        (Edit("runtime.opening.check_static_voters", "not before or before == now", "True"),),
    ),
    Mutant(
        "lists-are-not-compared",
        "a replica answers who counts other static voters as if it were one of its own quorum (I16)",
        (
            Edit(
                "consensus.extensions.misconfiguration.look_at_asker",
                "return ErrorCode.INCONSISTENT_VOTER_SET",
                "return ErrorCode.NONE",
            ),
        ),
    ),
)
