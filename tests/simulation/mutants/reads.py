"""Bugs in linearizable reads."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "reads-ask-nobody",
        "a leader answers a read without asking whether it still leads (C2)",
        (
            Edit(
                "consensus.extensions.read_index._advance_round",
                "if confirmed + state.is_voter < state.voters.majority:",
                "if False:",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "reads-take-an-old-confirmation",
        "who has confirmed an earlier round counts for this one (C2)",
        (
            Edit(
                "consensus.extensions.read_index._advance_round",
                "sum(progress.confirmed_round >= current.number for",
                "sum(progress.confirmed_round > 0 for",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "late-reads-join-a-round",
        "a read that comes while a round is under way is answered with it, as of its beginning (C2)",
        (
            Edit("consensus.extensions.read_index._advance_round", "if 0 < read.asked <= current.number]", "]"),
            Edit(
                "consensus.extensions.read_index._advance_round",
                "if not 0 < read.asked <= current.number]",
                "if False]",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "reads-where-the-log-is",
        "a replica whose leader has told it from where to read does not wait until its own log is there (C2)",
        (
            Edit(
                "consensus.extensions.read_index.handle_read_barrier_response",
                "done, response.offset)",
                "done, min(response.offset, state.high_watermark or 0))",
            ),
        ),
        profiles=("network",),
    ),
    Mutant(
        "learned-commit-is-of-any-record",
        "a follower is told that a record is committed, and does not look whether its log has this one there (L1)",
        (
            Edit(
                "consensus.extensions.commit_news.follow_learned_commit",
                " or state.log.epoch_before(end.offset) != end.epoch",
                "",
            ),
        ),
        profiles=("core", "core-votes", "core-voters"),
    ),
    Mutant(
        "late-reads-join-a-question",
        "a read that comes while the leader is asked for others is answered with them (C2)",
        (
            Edit("consensus.extensions.read_index.handle_read_barrier_response", "if read.asked]", "]"),
            Edit("consensus.extensions.read_index.handle_read_barrier_response", "if not read.asked]", "if False]"),
        ),
    ),
    Mutant(
        "reads-before-the-own-commit",
        "a new leader reads before it has committed anything: earlier epochs may have acknowledged more (C2)",
        (
            Edit("consensus.extensions.read_index._advance_round", "if state.high_watermark is None:", "if False:"),
            Edit(
                "consensus.extensions.read_index._advance_round",
                "offset=state.high_watermark)",
                "offset=state.high_watermark or state.committed_offset)",
            ),
        ),
    ),
    Mutant(
        "reads-do-not-wait-until-applied",
        "a read goes ahead before its replica has applied what the leader named",
        (
            Edit(
                "runtime.barriers.Barriers.passed",
                "self._listeners.wait_for(offset - 1, promise)",
                "self._listeners.wait_for(-1, promise)",
            ),
        ),
    ),
)
