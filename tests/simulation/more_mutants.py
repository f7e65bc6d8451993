"""Bugs that show in how a quorum works, and in what it refuses: see `mutants`."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

WORK: Final = (
    Mutant(
        "leader-keeps-the-high-watermark",
        "a new leader goes on with the high watermark that it knew as a follower (C2, M1)",
        (Edit("consensus.transitions.become_leader", "state.high_watermark = None", "pass"),),
        profiles=("membership", "swarm"),
        slow=True,
    ),
    Mutant(
        "first-epoch-lacks-the-voters",
        "the first leader does not write the voters of the bootstrap checkpoint into the log (M12)",
        (
            Edit(
                "consensus.transitions._first_records",
                "records += [KRaftVersionRecord(kraft_version=kraft_version), current.to_record()]",
                "pass",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "granting-voters-are-invented",
        "the first record of an epoch says that everybody voted",
        (Edit("consensus.transitions._first_records", "for voter_id in sorted(granting))", "for voter_id in ())"),),
    ),
    Mutant(
        "log-start-stays",
        "the core goes on with the old beginning of its log after retention",
        (
            Edit(
                "consensus.log_view.LogView.delete_before",
                "self.start_offset = max(self.start_offset, snapshot_id.offset)",
                "pass",
            ),
        ),
        profiles=("membership", "swarm"),
        slow=True,
    ),
    Mutant(
        "what-lies-before-the-log-is-valid",
        "a follower whose log ends before the leader's begins is told that all is well (L15)",
        (
            Edit("consensus.log_view.LogView.validate", "offset < self.start_offset", "False"),
            Edit("consensus.log_view.LogView.validate", "epoch < earliest.epoch", "False"),
            Edit(
                "consensus.log_view.LogView.validate",
                "return Diverging(end) if end.epoch != epoch or end.offset < offset else Valid()",
                "return Diverging(end) if end.offset < offset else Valid()",
            ),
        ),
        profiles=("membership", "swarm"),
        slow=True,
    ),
    Mutant(
        "upgrade-forgets-a-voter",
        "the voters of the first dynamic set are not all of the static one",
        (
            Edit(
                "consensus.upgrading.handle_update_features",
                "for voter in state.voters)",
                "for voter in list(state.voters)[:2])",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "news-travel-slowly",
        "who waits with a parked Fetch hears of a commit when his time is up (KIP-1166)",
        (
            Edit(
                "consensus.replication.update_high_watermark",
                "for parked in role.parked.values():",
                "for parked in ():",
            ),
        ),
    ),
    Mutant(
        "dead-leaders-are-waited-for",
        "a leader that refuses connections is waited for until the fetch timeout",
        (Edit("consensus.replication.handle_connection_lost", "role.refused = True", "return []"),),
        profiles=("crashes", "swarm"),
    ),
    Mutant(
        "transfer-goes-anywhere",
        "a leader that hands over prefers whoever has the most, and not the one that was named",
        (Edit("consensus.obligations.preferred_successors", "replica_id != wanted", "False"),),
        slow=True,
    ),
    Mutant(
        "anybody-fetches",
        "a Fetch of another cluster counts (I17)",
        (Edit("consensus.replication.handle_fetch", "if error is not ErrorCode.NONE:", "if False:"),),
        profiles=("network", "swarm"),
        slow=True,
    ),
    Mutant(
        "misdirected-votes-are-answered",
        "a Vote that was meant for another disk is answered as if it were for this one (E16)",
        (
            Edit(
                "consensus.election.handle_vote",
                "voter_key_error(state, request.voter_id, partition.voter_directory_id)",
                "ErrorCode.NONE",
            ),
        ),
        profiles=("network", "membership"),
        slow=True,
    ),
    Mutant(
        "old-leaders-are-heard",
        "what only voters ask is heard from an epoch that is over (E19)",
        (Edit("consensus.checks.voter_only_error", "epoch < state.epoch", "False"),),
        profiles=("network", "swarm"),
        slow=True,
    ),
    Mutant(
        "leaders-of-another-epoch-answer",
        "a Fetch of a newer epoch is answered (rpcs: UNKNOWN_LEADER_EPOCH)",
        (Edit("consensus.checks.leader_only_error", "epoch > state.epoch", "False"),),
        profiles=("network", "swarm"),
        slow=True,
    ),
    Mutant(
        "epochs-may-jump",
        "any epoch is believed (E17)",
        (Edit("consensus.checks.epoch_jumps", "<= state.config.epoch_jump_max", "<= 1 << 40"),),
        profiles=("network", "swarm"),
    ),
    Mutant(
        "log-longer-than-it-is",
        "a candidate says that its log is longer than it is (E5)",
        (
            Edit(
                "consensus.election.ask_for_votes",
                "last_offset=state.log.end_offset",
                "last_offset=state.log.end_offset + 100",
            ),
        ),
        slow=True,
    ),
)
