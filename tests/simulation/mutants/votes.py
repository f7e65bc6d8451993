"""Bugs in elections: who gets a vote, what must be durable before, what follows from it after a restart."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "vote-is-not-written",
        "a vote is granted and never made durable (E1)",
        (Edit("consensus.vote._cast_vote", "return persist(state)", "return []"),),
    ),
    Mutant(
        "vote-is-spoken-first",
        "the answer leaves before the vote is durable (E1)",
        (
            Edit(
                "consensus.vote.handle_vote",
                "return [*actions, responses.election(state, event, ErrorCode.NONE, vote_granted=granted)]",
                "return [responses.election(state, event, ErrorCode.NONE, vote_granted=granted), *actions]",
            ),
        ),
    ),
    Mutant(
        "second-vote-in-an-epoch",
        "a voter that has voted votes again for whoever asks",
        (Edit("consensus.vote.grants_vote", "return role.voted_key.matches(asker)", "return True"),),
    ),
    Mutant(
        "vote-is-forgotten-at-start",
        "a restart forgets the vote (E1)",
        (Edit("consensus.transitions.first_role", "voted = election.voted_key", "voted = None"),),
    ),
    Mutant(
        "vote-is-forgotten-when-following",
        "whoever follows a leader forgets whom he voted for in that epoch",
        (
            Edit(
                "consensus.transitions.become_follower",
                "state.election.voted_key if epoch == state.epoch else None",
                "None",
            ),
        ),
    ),
    Mutant(
        "candidacy-is-not-written",
        "a candidate does not write its own vote",
        (
            Edit(
                "consensus.transitions.enter",
                "actions = persist(state)",
                "actions = [] if isinstance(role_state, Candidate) else persist(state)",
            ),
        ),
    ),
    Mutant(
        "leadership-is-not-written",
        "who becomes leader does not write it, and knows nothing of it after a restart (E4)",
        (
            Edit(
                "consensus.transitions.enter",
                "actions = persist(state)",
                "actions = [] if isinstance(role_state, Leader) else persist(state)",
            ),
        ),
    ),
    Mutant(
        "epoch-is-not-written",
        "a newer epoch is taken over in memory only",
        (
            Edit(
                "consensus.transitions.enter",
                "actions = persist(state)",
                "actions = [] if isinstance(role_state, Unattached) else persist(state)",
            ),
        ),
    ),
    Mutant(
        "stale-log-wins",
        "nobody compares the candidate's log with the own one (E5)",
        (
            Edit("consensus.vote.grants_vote", " and asker_end >= state.log.end", ""),
            Edit("consensus.vote.grants_pre_vote", "return asker_end >= state.log.end", "return True"),
        ),
    ),
    Mutant(
        "stale-log-wins-in-earnest",
        "the log is compared in the pre-vote, and not when it counts (E5)",
        (Edit("consensus.vote.grants_vote", " and asker_end >= state.log.end", ""),),
    ),
    Mutant(
        "longer-log-wins",
        "logs are compared by length only (E5)",
        (
            Edit(
                "consensus.vote.grants_vote",
                "asker_end >= state.log.end",
                "asker_end.offset >= state.log.end.offset",
            ),
            Edit(
                "consensus.vote.grants_pre_vote",
                "asker_end >= state.log.end",
                "asker_end.offset >= state.log.end.offset",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "newer-epoch-wins",
        "logs are compared by their last epoch only (E5)",
        (
            Edit("consensus.vote.grants_vote", "asker_end >= state.log.end", "asker_end.epoch >= state.log.end.epoch"),
            Edit(
                "consensus.vote.grants_pre_vote",
                "asker_end >= state.log.end",
                "asker_end.epoch >= state.log.end.epoch",
            ),
        ),
    ),
    Mutant(
        "half-of-the-votes",
        "half of the voters elect a leader",
        (Edit("consensus.voters.VoterSet.__attrs_post_init__", "len(by_id) // 2 + 1", "(len(by_id) + 1) // 2"),),
    ),
    Mutant(
        "less-than-half-of-the-votes",
        "the majority is one voter too small",
        (Edit("consensus.voters.VoterSet.__attrs_post_init__", "len(by_id) // 2 + 1", "max(1, len(by_id) // 2)"),),
    ),
    Mutant(
        "answers-are-counted-not-voters",
        "a vote that arrives twice counts twice (E6)",
        (
            Edit(
                "consensus.outstanding.OutstandingRequests.take",
                "self.requests.pop(correlation_id, None)",
                "self.requests.get(correlation_id)",
            ),
            Edit("consensus.voters.Tally.record", ".add(voter_id)", ".add(voter_id + 1000 * len(self.granted))"),
        ),
    ),
    Mutant(
        "answer-of-an-earlier-election",
        "answers to an earlier election count in this one (E6)",
        (
            Edit("consensus.outstanding.OutstandingRequests.forget", "self.requests.clear()", "pass"),
            Edit(
                "consensus.requests.common_part",
                "answer.epoch < state.epoch or ",
                "(answer.epoch < state.epoch and name != 'VoteRequest') or ",
            ),
        ),
    ),
    Mutant(
        "pre-votes-elect",
        "who is granted pre-votes leads at once",
        (
            Edit(
                "consensus.vote.handle_vote_response",
                "stand(state, role) if isinstance(role, Prospective) else become_leader(state)",
                "become_candidate(state, 'pre-votes') + become_leader(state)"
                " if isinstance(role, Prospective) else become_leader(state)",
            ),
            Edit(
                "consensus.transitions.become_leader",
                "isinstance(before, Candidate) and before.tally.won",
                "True",
            ),
        ),
    ),
    Mutant(
        "leader-resumes",
        "a leader that restarts stands for its own epoch again (E4)",
        (
            Edit("consensus.transitions.first_role", "if election.leader_id == state.key.id:", "if False:"),
            Edit(
                "consensus.transitions.first_role",
                "voted = election.voted_key",
                "voted = state.key if election.leader_id == state.key.id else election.voted_key",
            ),
        ),
    ),
    Mutant(
        "leader-resumes-at-once",
        "a leader that restarts goes on to lead its epoch (E4)",
        (
            Edit(
                "consensus.transitions.start",
                "if state.may_stand and len(state.voters) == 1:",
                "if election.leader_id == state.key.id:\n"
                "        tally = Tally(state.voters)\n"
                "        tally.granted.update(state.voters.ids)\n"
                "        state.role_state = Candidate(election_deadline_ms=state.now_ms, tally=tally)\n"
                "        actions += become_leader(state)\n"
                "    elif state.may_stand and len(state.voters) == 1:",
            ),
        ),
    ),
    Mutant(
        "observers-stand",
        "an observer becomes a candidate (E13)",
        (
            Edit("consensus.state.ReplicaState.may_stand", "self.is_voter and self.amnesia is None", "True"),
            Edit("consensus.poll.poll_prospective", "if not state.is_voter:", "if False:"),
            Edit("consensus.poll.poll_candidate", "if not state.is_voter:", "if False:"),
        ),
    ),
    Mutant(
        "log-longer-than-it-is",
        "a candidate says that its log is longer than it is (E5)",
        (
            Edit(
                "consensus.vote.ask_for_votes",
                "last_offset=state.log.end_offset",
                "last_offset=state.log.end_offset + 100",
            ),
        ),
    ),
    Mutant(
        "granting-voters-are-invented",
        "the first record of an epoch says that everybody voted",
        (Edit("consensus.transitions._first_records", "for voter_id in sorted(granting))", "for voter_id in ())"),),
    ),
    Mutant(
        "log-is-read-at-start-without-its-epoch",
        "a replica does not notice at its start that its log is of a newer epoch than its election file",
        (Edit("consensus.transitions.start", "if election.epoch < log_epoch:", "if False:"),),
        equivalent="a log never holds a batch of an epoch that its replica has not written down before",
    ),
    Mutant(
        "leader-grants-pre-votes",
        "a leader grants pre-votes to whoever has as much as it has (E9)",
        (Edit("consensus.vote.grants_pre_vote", " or isinstance(role, Leader)", ""),),
        slow=True,
    ),
    Mutant(
        "vote-is-forgotten-after-a-lost-pre-vote",
        "whoever gives up a pre-vote forgets whom he voted for in that epoch",
        (
            Edit(
                "consensus.transitions.become_unattached",
                "voted_key = before.voted_key if isinstance(before, Prospective) and epoch == state.epoch else None",
                "voted_key = None",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "vote-is-forgotten-when-asking",
        "whoever asks for pre-votes forgets whom he voted for in that epoch",
        (Edit("consensus.transitions.become_prospective", "voted_key=state.election.voted_key", "voted_key=None"),),
    ),
    Mutant(
        "candidate-votes-for-another",
        "a candidate votes for another one in its own epoch",
        (
            Edit(
                "consensus.vote.grants_vote",
                "role = state.role_state",
                "role = state.role_state\n"
                "    if isinstance(role, Candidate):\n        return asker_end >= state.log.end",
            ),
        ),
    ),
    Mutant(
        "candidacy-without-a-new-epoch",
        "a candidate stands in the epoch that it is in",
        (Edit("consensus.transitions.become_candidate", "state.epoch + 1, reason", "max(state.epoch, 1), reason"),),
    ),
)
