"""Bugs in replication: what counts as flushed and as committed, where logs part, and what is cut off then."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "acknowledged-before-flushed",
        "a follower fetches on before its disk has what it fetched (L8)",
        (
            Edit(
                "consensus.fetch_follower.fetch_from_leader",
                "if not may_fetch(state):",
                "if state.filling is not None and state.filling.is_writing:",
            ),
        ),
    ),
    Mutant(
        "looks-for-a-leader-before-flushed",
        "a replica without a leader vouches for what is not flushed (KAFKA-17332)",
        (Edit("consensus.fetch_follower.find_leader", " or not may_fetch(state)", ""),),
        slow=True,
    ),
    Mutant(
        "old-flush-vouches",
        "a flush from before a truncation vouches for what came after",
        (
            Edit(
                "consensus.log_view.LogView.flushed",
                "if log_version == self.log_version and end_offset > self.flushed_offset:",
                "if end_offset > self.flushed_offset:",
            ),
        ),
        equivalent="a follower asks for what could make it truncate only once all that it has is flushed",
    ),
    Mutant(
        "flushed-beyond-truncation",
        "a truncation leaves the flushed end where it was",
        (Edit("consensus.log_view.LogView.truncate", "min(self.flushed_offset, end_offset)", "self.flushed_offset"),),
    ),
    Mutant(
        "leader-counts-what-is-not-flushed",
        "the leader's own copy counts before it is flushed (L9)",
        (
            Edit(
                "consensus.fetch_leader.update_high_watermark",
                "offsets = [state.log.flushed_offset]",
                "offsets = [state.log.end_offset]",
            ),
        ),
    ),
    Mutant(
        "old-epoch-commit",
        "records of an older epoch are committed by counting (L4)",
        (
            Edit(
                "consensus.fetch_leader.update_high_watermark",
                "offset <= role.epoch_start_offset or ",
                "",
            ),
        ),
    ),
    Mutant(
        "epoch-start-off-by-one",
        "the epoch counts as begun one record too early (KAFKA-12619)",
        (
            Edit(
                "consensus.fetch_leader.update_high_watermark",
                "offset <= role.epoch_start_offset",
                "offset < role.epoch_start_offset",
            ),
        ),
    ),
    Mutant(
        "half-is-enough-to-commit",
        "half of an even number of voters commits",
        (Edit("consensus.voters.majority_offset", "len(ordered) // 2", "(len(ordered) - 1) // 2"),),
    ),
    Mutant(
        "one-less-is-enough-to-commit",
        "one voter less than a majority commits",
        (Edit("consensus.voters.majority_offset", "len(ordered) // 2", "max(0, len(ordered) // 2 - 1)"),),
    ),
    Mutant(
        "high-watermark-of-a-leader-falls",
        "a leader takes its high watermark back when a voter fetches from further down",
        (
            Edit(
                "consensus.fetch_leader.update_high_watermark",
                " or (known is not None and offset <= known)",
                "",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "high-watermark-of-a-follower-falls",
        "a follower believes whatever high watermark comes, be it none (L6)",
        (
            Edit(
                "consensus.fetch_follower._append",
                "high_watermark >= state.committed_offset and"
                " (known is None or high_watermark > known or before < known)",
                "high_watermark != known",
            ),
        ),
    ),
    Mutant(
        "high-watermark-beyond-the-log",
        "a follower takes over a high watermark beyond its own log",
        (
            Edit(
                "consensus.fetch_follower._append",
                "min(partition.high_watermark, state.log.end_offset)",
                "partition.high_watermark",
            ),
            Edit("consensus.fetch_leader.advance_high_watermark", "offset <= state.log.end_offset", "True"),
        ),
    ),
    Mutant(
        "truncates-to-the-leaders-word",
        "a follower truncates to the leader's end of an epoch that it does not even have (L2)",
        (
            Edit(
                "consensus.fetch_follower._truncate",
                "min(own_end.offset, leader_end.offset) if own_end.epoch == leader_end.epoch else own_end.offset",
                "min(state.log.end_offset, leader_end.offset)",
            ),
        ),
        profiles=("network",),
    ),
    Mutant(
        "truncates-to-its-own-end",
        "a follower keeps all it has of the epoch that the leader names (L2)",
        (
            Edit(
                "consensus.fetch_follower._truncate",
                "min(own_end.offset, leader_end.offset) if own_end.epoch == leader_end.epoch else own_end.offset",
                "own_end.offset",
            ),
        ),
    ),
    Mutant(
        "wrong-end-of-an-epoch",
        "the leader names the start of an epoch as its end",
        (Edit("consensus.log_view.LogView.end_for", "starts[place].start_offset", "starts[place - 1].start_offset"),),
    ),
    Mutant(
        "epochs-survive-truncation",
        "a truncated log still claims the epochs that it lost (L16)",
        (
            Edit(
                "consensus.log_view.LogView.truncate",
                "while self.epoch_starts and self.epoch_starts[-1].start_offset >= end_offset:",
                "while False:",
            ),
        ),
    ),
    Mutant(
        "longer-logs-are-valid",
        "a follower with a longer log of the same epoch counts as being in line",
        (Edit("consensus.log_view.LogView.validate", " or end.offset < offset", ""),),
    ),
    Mutant(
        "every-log-is-valid",
        "the leader does not compare logs at all",
        (
            Edit(
                "consensus.log_view.LogView.validate",
                "return Diverging(end) if end.epoch != epoch or end.offset < offset else VALID",
                "return VALID if offset <= self.end_offset else Diverging(end)",
            ),
        ),
    ),
    Mutant(
        "observers-commit",
        "the Fetch of an observer counts for the voter whose place it takes in the table",
        (
            Edit("consensus.fetch_leader.record_progress", "if key in state.log.voters.latest:", "if True:"),
            Edit(
                "consensus.fetch_leader.record_progress",
                "progress = role.progress.get(key.id)",
                "progress = role.progress.get(key.id) or next(iter(role.progress.values()))",
            ),
        ),
    ),
    Mutant(
        "flush-comes-before-the-append",
        "a follower asks for the flush before the append",
        (
            Edit(
                "consensus.fetch_follower._append",
                "[AppendToLog(batches), FlushLog(state.log.log_version)]",
                "[FlushLog(state.log.log_version), AppendToLog(batches)]",
            ),
        ),
    ),
    Mutant(
        "follower-never-flushes",
        "a follower appends and does not flush",
        (
            Edit(
                "consensus.fetch_follower._append",
                "[AppendToLog(batches), FlushLog(state.log.log_version)]",
                "[AppendToLog(batches)]",
            ),
        ),
    ),
    Mutant(
        "leader-keeps-the-high-watermark",
        "a new leader goes on with the high watermark that it knew as a follower (C2, M1)",
        (Edit("consensus.transitions.become_leader", "state.high_watermark = None", "pass"),),
        profiles=("membership", "swarm"),
    ),
    Mutant(
        "fetch-names-the-own-epoch",
        "a Fetch names the epoch that its sender is in, and not that of its last record",
        (
            Edit(
                "consensus.fetch_follower._fetch_request",
                "last_fetched_epoch=position.epoch",
                "last_fetched_epoch=state.epoch if position.offset else 0",
            ),
        ),
    ),
    Mutant(
        "divergence-names-the-end-of-the-log",
        "a leader that finds a log diverging names the end of its own log",
        (
            Edit(
                "consensus.log_view.LogView.end_for",
                "result = OffsetAndEpoch(epoch=starts[place - 1].epoch, offset=starts[place].start_offset)",
                "result = self.end",
            ),
        ),
    ),
    Mutant(
        "empty-log-forgets-its-epoch",
        "a log that begins and ends at a snapshot has no epoch",
        (Edit("consensus.log_view.LogView.last_epoch", "return next(", "return 0 and next("),),
        profiles=(
            "membership",
            "swarm",
        ),
    ),
    Mutant(
        "new-leader-thinks-all-have-all",
        "a new leader takes everybody to have the first record of its epoch",
        (
            Edit(
                "consensus.transitions.become_leader",
                "Progress(key=voter.key)",
                "Progress(key=voter.key, end_offset=start_offset + 1)",
            ),
        ),
    ),
    Mutant(
        "leader-counts-itself-twice",
        "the leader's own copy counts twice",
        (
            Edit(
                "consensus.fetch_leader.update_high_watermark",
                "offsets = [state.log.flushed_offset]",
                "offsets = [state.log.flushed_offset] * 2",
            ),
        ),
    ),
    Mutant(
        "epochs-at-the-cut-survive",
        "a truncation leaves the epoch that began where it cuts (L16)",
        (
            Edit(
                "consensus.log_view.LogView.truncate",
                "self.epoch_starts[-1].start_offset >= end_offset:",
                "self.epoch_starts[-1].start_offset > end_offset:",
            ),
        ),
    ),
)
