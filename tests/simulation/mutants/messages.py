"""Bugs in what a replica believes: messages of strangers, of other epochs, meant for others, damaged or come twice."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "strangers-are-believed",
        "nobody looks at the cluster id (I17)",
        (Edit("consensus.responses.cluster_error", "if cluster_id in (None, state.cluster_id)", "if True"),),
    ),
    Mutant(
        "anybody-fetches",
        "a Fetch of another cluster counts (I17)",
        (Edit("consensus.fetch_leader.handle_fetch", "if error is not ErrorCode.NONE:", "if False:"),),
        profiles=("network", "swarm"),
    ),
    Mutant(
        "misdirected-votes-are-answered",
        "a Vote that was meant for another disk is answered as if it were for this one (E16)",
        (
            Edit(
                "consensus.vote.handle_vote",
                "responses.voter_key_error(state, request.voter_id, partition.voter_directory_id)",
                "ErrorCode.NONE",
            ),
        ),
        profiles=("network", "membership"),
    ),
    Mutant(
        "old-leaders-are-heard",
        "what only voters ask is heard from an epoch that is over (E19)",
        (Edit("consensus.responses.voter_only_error", "epoch < state.epoch", "False"),),
        profiles=("network", "swarm"),
    ),
    Mutant(
        "leaders-of-another-epoch-answer",
        "a Fetch of a newer epoch is answered (rpcs: UNKNOWN_LEADER_EPOCH)",
        (Edit("consensus.responses.leader_only_error", "epoch > state.epoch", "False"),),
        profiles=("network", "swarm"),
    ),
    Mutant(
        "epochs-may-jump",
        "any epoch is believed (E17)",
        (Edit("consensus.extensions.epoch_budget.raises_too_far", "<= left", "<= 1 << 40"),),
        profiles=("network", "swarm"),
    ),
    Mutant(
        "answer-used-twice",
        "a Fetch answer that arrives twice is used twice (L1)",
        (
            Edit(
                "consensus.outstanding.OutstandingRequests.take",
                "self.requests.pop(correlation_id, None)",
                "self.requests.get(correlation_id)",
            ),
            Edit(
                "consensus.fetch_follower.handle_fetch_response",
                "not _is_still_asked(state, role, outstanding.question)",
                "outstanding.question is None",
            ),
        ),
    ),
    Mutant(
        "late-divergence-counts",
        "a divergence counts though the leader told it over another connection, of a log that was ours before",
        (
            Edit("consensus.requests.bootstrap_servers", "known.get(place, -2 - index)", "-2 - index"),
            Edit("consensus.fetch_follower.ask_who_leads", "anonymous=True", "anonymous=repair.is_anonymous(state)"),
            Edit(
                "consensus.fetch_follower.handle_fetch_response",
                "not _is_still_asked(state, role, outstanding.question)",
                "outstanding.request.topics[0].partitions[0].fetch_offset != repair.fetch_position(state).offset",
            ),
        ),
        profiles=("membership", "swarm"),
        slow=True,
    ),
    Mutant(
        "unmatched-answer-used",
        "an answer is taken for one to whatever is outstanding (L1)",
        (
            Edit(
                "consensus.outstanding.OutstandingRequests.take",
                "outstanding = self.requests.pop(correlation_id, None)",
                "outstanding = self.requests.pop(correlation_id, None) or next(\n"
                "        iter(self.requests.values()), None)",
            ),
        ),
    ),
    Mutant(
        "answer-of-an-older-epoch-counts",
        "a follower believes an answer from an epoch before its own",
        (Edit("consensus.requests.common_part", "answer.epoch < state.epoch or ", ""),),
        equivalent="only an answer to a Fetch can be from an older epoch, and it says UNKNOWN_LEADER_EPOCH",
    ),
    Mutant(
        "checksum-is-not-looked-at",
        "a follower appends whatever bytes come (L10)",
        (Edit("records.batch.read_batch", "if actual != crc:", "if False:"),),
    ),
)
