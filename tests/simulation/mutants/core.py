"""Bugs of the core that take a rare schedule: late answers, lost votes and records, changes of the voters amid crashes.

The first ones stood in the code once. The core fuzzer looks for all of them (`tools.core_fuzz`).
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

EVERYWHERE: Final = ("core", "core-votes", "core-disks", "core-voters", "core-downloads")

MUTANTS: Final = (
    Mutant(
        "late-divergence-cuts",
        "a follower asks one leader twice at once, and an answer counts at the same offset (L3)",
        (
            Edit(
                "consensus.fetch_follower.ask_who_leads",
                "_fetch_request(state, state.log.end, anonymous=True, max_wait_ms=0)",
                "_fetch_request(state, repair.fetch_position(state), anonymous=repair.is_anonymous(state),"
                " max_wait_ms=state.config.fetch_max_wait_ms)",
            ),
            Edit("consensus.requests.bootstrap_servers", "known.get(place, -2 - index)", "-2 - index"),
            Edit(
                "consensus.fetch_follower.handle_fetch_response",
                "not _is_still_asked(state, role, outstanding.question)",
                "(outstanding.request.topics[0].partitions[0].fetch_offset,"
                " outstanding.request.replica_state.replica_id < 0)"
                " != (repair.fetch_position(state).offset, repair.is_anonymous(state))",
            ),
        ),
        profiles=EVERYWHERE,
    ),
    Mutant(
        "voters-before-the-log-are-forgotten",
        "the voters in force where the log begins are forgotten when a record changes them right there (M4)",
        (Edit("consensus.voters.History.forget_before", "[0] < start_offset", "[0] <= start_offset"),),
        profiles=EVERYWHERE,
        slow=True,
    ),
    Mutant(
        "amnesia-ends-at-the-high-watermark",
        "a forgotten vote comes back before the leader's end is reached, with voters that it has not read of (E3)",
        (
            Edit(
                "consensus.fetch_follower._append",
                "if not partition.records:",
                "if state.log.end_offset >= partition.high_watermark:",
            ),
        ),
        profiles=("core-votes", "core-voters"),
        slow=True,
    ),
    Mutant(
        "amnesia-ends-with-any-leader",
        "a forgotten vote comes back under a leader of another epoch than the one whose end was reached (E3)",
        (Edit("consensus.repair.maybe_recall", "amnesia.leader_epoch != state.epoch", "amnesia.leader_epoch < 0"),),
        profiles=("core-votes", "core-voters"),
        slow=True,
    ),
    Mutant(
        "lost-snapshot-forgets-the-epoch",
        "a log that was one snapshot ends at epoch 0 when that is lost, and votes for less than it had (S1)",
        (
            Edit("consensus.log_view.LogView.lose_snapshot", "if not self.epoch_starts and", "if False and"),
            Edit(
                "storage.damage.missing.keep_last_epoch",
                "if epochs.latest_epoch < 0",
                "if False and epochs.latest_epoch < 0",
            ),
            Edit("consensus.transitions.start", "election.amnesiac or state.log.lacks_last_epoch", "election.amnesiac"),
        ),
        profiles=("core-disks", "core-downloads"),
        slow=True,
    ),
    Mutant(
        "truncated-hole-is-forgotten",
        "a truncation that drops missing records leaves a vote that does not know of them (S1)",
        (Edit("consensus.fetch_follower._cut", "if not drops_hole:", "if True:"),),
        profiles=("core-disks",),
        slow=True,
    ),
    Mutant(
        "removed-one-hears-first",
        "a voter that is removed is sent the record before it is committed (M7)",
        (Edit("consensus.fetch_leader.may_send", "return state.are_voters_committed or", "return True or"),),
        profiles=("core-voters",),
    ),
    Mutant(
        "hand-over-in-vain-does-not-fade",
        "a voter that cannot lead is handed the leadership after the same pause for ever",
        (
            Edit(
                "consensus.extensions.priority._note_hand_over", "count += last.count if", "count += 0 * last.count if"
            ),
        ),
        profiles=("core-links",),
    ),
    Mutant(
        "hand-overs-are-forgotten",
        "a new leadership knows nothing of the hand-overs of the one before",
        (
            Edit(
                "consensus.transitions.become_leader",
                "state.high_watermark = None",
                "state.high_watermark = None; state.hand_overs.clear()",
            ),
        ),
        profiles=("core-links",),
    ),
    Mutant(
        "elected-in-vain",
        "a voter of priority that was elected, and has committed nothing, is wanted as before",
        (
            Edit(
                "consensus.transitions.become_leader",
                "state.high_watermark = None",
                "state.high_watermark = None; state.setbacks = 0",
            ),
        ),
        profiles=("core-links",),
        slow=True,
    ),
    Mutant(
        "refused-link-storm",
        "a voter that the leader's link refuses asks for pre-votes as fast as they are lost",
        (Edit("consensus.fetch_follower._pause_ms", "return min(", "return 0 * min("),),
        profiles=("core-links",),
    ),
)
