"""Bugs that somebody could have written, each as a small edit. The simulator must find every one of them."""

from __future__ import annotations

from typing import Final

from tests.simulation.more_mutants import WORK
from tests.simulation.mutation import Edit, Mutant

VOTES: Final = (
    Mutant(
        "vote-is-not-written",
        "a vote is granted and never made durable (E1)",
        (Edit("consensus.election._cast_vote", "return persist(state)", "return []"),),
    ),
    Mutant(
        "vote-is-spoken-first",
        "the answer leaves before the vote is durable (E1)",
        (
            Edit(
                "consensus.election.handle_vote",
                "    return [*actions, SendResponse(event.request_id, response)]\n",
                "    return [SendResponse(event.request_id, response), *actions]\n",
            ),
        ),
    ),
    Mutant(
        "second-vote-in-an-epoch",
        "a voter that has voted votes again for whoever asks",
        (Edit("consensus.election.grants_vote", "return role.voted_key.matches(asker)", "return True"),),
    ),
    Mutant(
        "vote-is-forgotten-at-start",
        "a restart forgets the vote (E1)",
        (Edit("consensus.start.first_role", "voted = election.voted_key", "voted = None"),),
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
            Edit("consensus.election.grants_vote", " and asker_end >= state.log.end", ""),
            Edit("consensus.election.grants_pre_vote", "return asker_end >= state.log.end", "return True"),
        ),
    ),
    Mutant(
        "stale-log-wins-in-earnest",
        "the log is compared in the pre-vote, and not when it counts (E5)",
        (Edit("consensus.election.grants_vote", " and asker_end >= state.log.end", ""),),
        slow=True,
    ),
    Mutant(
        "longer-log-wins",
        "logs are compared by length only (E5)",
        (
            Edit(
                "consensus.election.grants_vote",
                "asker_end >= state.log.end",
                "asker_end.offset >= state.log.end.offset",
            ),
            Edit(
                "consensus.election.grants_pre_vote",
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
            Edit(
                "consensus.election.grants_vote", "asker_end >= state.log.end", "asker_end.epoch >= state.log.end.epoch"
            ),
            Edit(
                "consensus.election.grants_pre_vote",
                "asker_end >= state.log.end",
                "asker_end.epoch >= state.log.end.epoch",
            ),
        ),
    ),
    Mutant(
        "half-of-the-votes",
        "half of the voters elect a leader",
        (Edit("consensus.voters.VoterSet.majority", "len(self.voters) // 2 + 1", "(len(self.voters) + 1) // 2"),),
    ),
    Mutant(
        "less-than-half-of-the-votes",
        "the majority is one voter too small",
        (Edit("consensus.voters.VoterSet.majority", "len(self.voters) // 2 + 1", "max(1, len(self.voters) // 2)"),),
    ),
    Mutant(
        "answers-are-counted-not-voters",
        "a vote that arrives twice counts twice (E6)",
        (
            Edit(
                "consensus.connections.Connections.take",
                "self._outstanding.pop(correlation_id, None)",
                "self._outstanding.get(correlation_id)",
            ),
            Edit("consensus.quorum.Tally.record", ".add(voter_id)", ".add(voter_id + 1000 * len(self.granted))"),
        ),
    ),
    Mutant(
        "answer-of-an-earlier-election",
        "answers to an earlier election count in this one (E6)",
        (
            Edit("consensus.connections.Connections.forget", "self._outstanding.clear()", "pass"),
            Edit(
                "consensus.checks.common_part",
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
                "consensus.election.handle_vote_response",
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
            Edit("consensus.start.first_role", "if election.leader_id == state.key.id:", "if False:"),
            Edit(
                "consensus.start.first_role",
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
                "consensus.start.start",
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
            Edit("consensus.obligations.poll_prospective", "if not state.is_voter:", "if False:"),
            Edit("consensus.obligations.poll_candidate", "if not state.is_voter:", "if False:"),
        ),
    ),
    Mutant(
        "strangers-are-believed",
        "nobody looks at the cluster id (I17)",
        (Edit("consensus.checks.cluster_error", "if cluster_id in (None, state.cluster_id)", "if True"),),
    ),
)

REPLICATION: Final = (
    Mutant(
        "acknowledged-before-flushed",
        "a follower fetches on before its disk has what it fetched (L8)",
        (
            Edit(
                "consensus.replication.fetch_from_leader",
                "if state.log.flushed_offset != state.log.end_offset:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "looks-for-a-leader-before-flushed",
        "a replica without a leader vouches for what is not flushed (KAFKA-17332)",
        (Edit("consensus.replication.find_leader", " or state.log.flushed_offset != state.log.end_offset", ""),),
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
                "consensus.replication.update_high_watermark",
                "offsets.append(state.log.flushed_offset)",
                "offsets.append(state.log.end_offset)",
            ),
        ),
    ),
    Mutant(
        "old-epoch-commit",
        "records of an older epoch are committed by counting (L4)",
        (
            Edit(
                "consensus.replication.update_high_watermark",
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
                "consensus.replication.update_high_watermark",
                "offset <= role.epoch_start_offset",
                "offset < role.epoch_start_offset",
            ),
        ),
    ),
    Mutant(
        "half-is-enough-to-commit",
        "half of an even number of voters commits",
        (Edit("consensus.quorum.majority_offset", "len(ordered) // 2", "(len(ordered) - 1) // 2"),),
    ),
    Mutant(
        "one-less-is-enough-to-commit",
        "one voter less than a majority commits",
        (Edit("consensus.quorum.majority_offset", "len(ordered) // 2", "max(0, len(ordered) // 2 - 1)"),),
    ),
    Mutant(
        "high-watermark-of-a-leader-falls",
        "a leader takes its high watermark back when a voter fetches from further down",
        (
            Edit(
                "consensus.replication.update_high_watermark",
                " or (known is not None and offset <= known)",
                "",
            ),
        ),
    ),
    Mutant(
        "high-watermark-of-a-follower-falls",
        "a follower believes whatever high watermark comes, be it none (L6)",
        (
            Edit(
                "consensus.replication._append",
                "if high_watermark >= state.committed_offset and (known is None or high_watermark > known):",
                "if high_watermark != known:",
            ),
        ),
    ),
    Mutant(
        "high-watermark-beyond-the-log",
        "a follower takes over a high watermark beyond its own log",
        (
            Edit(
                "consensus.replication._append",
                "min(partition.high_watermark, state.log.end_offset)",
                "partition.high_watermark",
            ),
            Edit("consensus.replication.advance_high_watermark", "offset <= state.log.end_offset", "True"),
        ),
    ),
    Mutant(
        "truncates-to-the-leaders-word",
        "a follower truncates to the leader's end of an epoch that it does not even have (L2)",
        (
            Edit(
                "consensus.replication._truncate",
                "min(own_end.offset, leader_end.offset) if own_end.epoch == leader_end.epoch else own_end.offset",
                "min(state.log.end_offset, leader_end.offset)",
            ),
        ),
    ),
    Mutant(
        "truncates-to-its-own-end",
        "a follower keeps all it has of the epoch that the leader names (L2)",
        (
            Edit(
                "consensus.replication._truncate",
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
                "return Diverging(end) if end.epoch != epoch or end.offset < offset else Valid()",
                "return Valid() if offset <= self.end_offset else Diverging(end)",
            ),
        ),
    ),
    Mutant(
        "answer-used-twice",
        "a Fetch answer that arrives twice is used twice (L1)",
        (
            Edit(
                "consensus.connections.Connections.take",
                "self._outstanding.pop(correlation_id, None)",
                "self._outstanding.get(correlation_id)",
            ),
            Edit(
                "consensus.replication.handle_fetch_response",
                " or asked != (fetch_position(state).offset, is_anonymous(state))",
                "",
            ),
        ),
    ),
    Mutant(
        "unmatched-answer-used",
        "an answer is taken for one to whatever is outstanding (L1)",
        (
            Edit(
                "consensus.connections.Connections.take",
                "outstanding = self._outstanding.pop(correlation_id, None)",
                "outstanding = self._outstanding.pop(correlation_id, None) or next(\n"
                "        iter(self._outstanding.values()), None)",
            ),
        ),
    ),
    Mutant(
        "checksum-is-not-looked-at",
        "a follower appends whatever bytes come (L10)",
        (Edit("records.batch.read_batch", "if actual != crc:", "if False:"),),
    ),
    Mutant(
        "observers-commit",
        "the Fetch of an observer counts for the voter whose place it takes in the table",
        (
            Edit("consensus.replication.record_progress", "if key in state.voters:", "if True:"),
            Edit(
                "consensus.replication.record_progress",
                "progress = role.progress.get(key.id)",
                "progress = role.progress.get(key.id) or next(iter(role.progress.values()))",
            ),
        ),
    ),
    Mutant(
        "answer-of-an-older-epoch-counts",
        "a follower believes an answer from an epoch before its own",
        (Edit("consensus.checks.common_part", "answer.epoch < state.epoch or ", ""),),
        equivalent="only an answer to a Fetch can be from an older epoch, and it says UNKNOWN_LEADER_EPOCH",
    ),
    Mutant(
        "flush-comes-before-the-append",
        "a follower asks for the flush before the append",
        (
            Edit(
                "consensus.replication._append",
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
                "consensus.replication._append",
                "[AppendToLog(batches), FlushLog(state.log.log_version)]",
                "[AppendToLog(batches)]",
            ),
        ),
    ),
    Mutant(
        "parked-fetches-are-forgotten",
        "who ceases to lead leaves waiting Fetches without an answer (L14)",
        (Edit("consensus.transitions.close_leadership", "for parked in leader.parked.values()", "for parked in ()"),),
    ),
    Mutant(
        "log-is-read-at-start-without-its-epoch",
        "a replica does not notice at its start that its log is of a newer epoch than its election file",
        (Edit("consensus.start.start", "if election.epoch < log_epoch:", "if False:"),),
        equivalent="a log never holds a batch of an epoch that its replica has not written down before",
    ),
)

LIVENESS: Final = (
    Mutant(
        "leader-never-gives-up",
        "a leader that nobody fetches from stays leader (E7)",
        (
            Edit("consensus.transitions.become_leader", "fetch_timeout_ms * 3 // 2", "fetch_timeout_ms * 3000"),
            Edit("consensus.contact.note_contact", "fetch_timeout_ms * 3 // 2", "fetch_timeout_ms * 3000"),
            Edit("consensus.stalling.stall_deadline_ms", "2 * state.config", "3000 * state.config"),
        ),
    ),
    Mutant(
        "nobody-is-told-who-leads",
        "BeginQuorumEpoch is never sent (E20)",
        (Edit("consensus.transitions.become_leader", "begin_epoch_due_ms=state.now_ms", "begin_epoch_due_ms=10**18"),),
        equivalent="a voter without a leader asks the others for one, so it learns all the same, a little later",
    ),
    Mutant(
        "healthy-leader-is-deposed",
        "a follower that hears its leader grants pre-votes all the same (E9)",
        (Edit("consensus.election.grants_pre_vote", "isinstance(role, Follower) and role.has_fetched", "False"),),
    ),
    Mutant(
        "candidate-never-tries-again",
        "a candidate whose election was split waits for ever",
        (
            Edit(
                "consensus.obligations.poll_candidate",
                "state.now_ms >= role.election_deadline_ms and not state.shutting_down",
                "False",
            ),
        ),
    ),
    Mutant(
        "followers-wait-for-ever",
        "a follower does not notice that its leader is gone",
        (
            Edit(
                "consensus.obligations.poll_follower",
                "state.may_stand and state.now_ms >= role.fetch_deadline_ms",
                "False",
            ),
        ),
    ),
    Mutant(
        "requests-never-expire",
        "a request without an answer is waited for for ever",
        (Edit("consensus.connections.Connections.expire", "<= now_ms", "<= -1"),),
    ),
    Mutant(
        "parked-fetches-never-expire",
        "a Fetch that nothing answers is kept for ever",
        (Edit("consensus.replication.expire_parked", "state.now_ms < role.parked_deadline_ms", "True"),),
    ),
    Mutant(
        "no-pause-after-failures",
        "what has failed is tried again at once, over and over (I20)",
        (
            Edit(
                "consensus.connections.Connections.is_ready",
                "if self._backing_off.get(destination, now_ms) > now_ms:",
                "if False:",
            ),
        ),
    ),
)

RUNTIME: Final = (
    Mutant(
        "acknowledged-when-flushed",
        "callers are told that their records are committed when the leader has flushed them (I10)",
        (
            Edit(
                "runtime.appends.Appends.flushed",
                "self.waiters.flushed(end_offset)",
                "self.waiters.committed(end_offset)",
            ),
        ),
    ),
    Mutant(
        "written-is-refused",
        "when leadership is lost, callers hear that nothing was appended, though it was (I10)",
        (
            Edit(
                "runtime.waiters.Waiters.leadership_lost",
                "refusal() if waiter[1] >= written_end else unknown_outcome(waiter, reason)",
                "refusal()",
            ),
        ),
    ),
    Mutant(
        "nothing-waits-for-the-disk",
        "what follows the write of a vote does not wait for it",
        (Edit("runtime.executor.Executor._suspend_for", "self._suspended = True", "pass"),),
    ),
    Mutant(
        "flush-is-forgotten",
        "a flush that is asked for while one runs never comes",
        (
            Edit(
                "runtime.executor.Executor._flush_log",
                "self._next_flush_version = action.log_version",
                "pass",
            ),
        ),
    ),
    Mutant(
        "flush-vouches-for-what-came-later",
        "when a flush ends, everything appended meanwhile is taken for flushed",
        (
            Edit(
                "runtime.executor.Executor._flush_done",
                "ev.Flushed(end_offset, ",
                "ev.Flushed(self._log.end_offset, ",
            ),
        ),
    ),
    Mutant(
        "flush-has-the-wrong-version",
        "a flush comes back with the log version of its end",
        (
            Edit(
                "runtime.executor.Executor._flush_done",
                "ev.Flushed(end_offset, self._flush_version)",
                "ev.Flushed(end_offset, self.core._replica.state.log.log_version)",
            ),
        ),
        equivalent="the disk does one thing at a time, so a flush ends before the truncation that would void it begins",
    ),
    Mutant(
        "listener-misses-a-slice",
        "a listener is not given what was committed while it was behind",
        (
            Edit(
                "runtime.applier.Applier._give",
                "feed.next_offset = batches[-1].last_offset + 1",
                "feed.next_offset = high_watermark",
            ),
        ),
    ),
)

MEMBERSHIP: Final = (
    Mutant(
        "second-change-at-once",
        "voters change again while the last change is not committed (M2)",
        (
            Edit("consensus.reconfiguration._change_error", "if role.change is not None:", "if False:"),
            Edit("consensus.reconfiguration._change_error", " or offset >= state.high_watermark", ""),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "change-before-own-commit",
        "voters change before the leader has committed in its epoch (M1; Ongaro, 2015)",
        (
            Edit("consensus.reconfiguration._change_error", "if state.high_watermark is None:", "if False:"),
            Edit(
                "consensus.reconfiguration._change_error",
                "offset is None or offset >= state.high_watermark",
                "offset is None",
            ),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "voters-survive-truncation",
        "a truncated log still names the voters that it lost (M3)",
        (Edit("consensus.log_view.LogView.truncate", "self.voters.truncate(end_offset)", "pass"),),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "voters-are-read-when-committed",
        "a follower learns of voters only from what it reads at its start",
        (
            Edit(
                "consensus.log_view.LogView._observe_control",
                "self.voters.add(offset",
                "self.voters.at(offset) if self.end_offset else self.voters.add(offset",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "removed-leader-counts-itself",
        "a leader that is no voter any more counts its own copy (M4)",
        (Edit("consensus.replication.update_high_watermark", "if state.is_voter:", "if True:"),),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "removed-leader-stays",
        "a leader that has committed its own removal goes on to lead (M5)",
        (Edit("consensus.reconfiguration.advance_change", "role.resign_requested = True", "pass"),),
        profiles=("membership",),
    ),
    Mutant(
        "a-new-disk-is-the-old-voter",
        "a voter that lost its disk counts as the same (M7)",
        (
            Edit(
                "types.ReplicaKey.matches",
                "self.id == other.id and (self.directory_id is None or self.directory_id == other.directory_id)",
                "self.id == other.id",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "progress-does-not-follow-the-voters",
        "a leader keeps counting the voters of before",
        (Edit("consensus.replication.handle_records", "follow_voters(state, role)", "pass"),),
        profiles=("membership",),
    ),
    Mutant(
        "removed-twice",
        "the removal of a voter removes whoever has its place",
        (
            Edit(
                "consensus.voters.VoterSet.without",
                "voter for voter in self.voters if voter.key != key",
                "voter for voter in self.voters[1:]",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "observers-count-when-they-catch-up",
        "an observer that fetches joins the table of voters",
        (
            Edit(
                "consensus.replication.record_progress",
                "observer = role.observers[key] = Progress(key=key)",
                "observer = role.observers[key] = role.progress.get(key.id) or Progress(key=key)",
            ),
        ),
        profiles=("membership",),
    ),
)

SNAPSHOTS: Final = (
    Mutant(
        "snapshot-names-the-wrong-epoch",
        "a snapshot bears the epoch of its leader, not of its last record",
        (Edit("runtime.snapshots.plan_snapshot", "epoch=last.epoch", "epoch=view.last_epoch"),),
        profiles=("membership", "crashes"),
    ),
    Mutant(
        "snapshot-forgets-the-voters",
        "a snapshot of a dynamic quorum names the first voters for ever (N12)",
        (
            Edit(
                "runtime.snapshots.plan_snapshot",
                "view.voters.at(offset - 1).to_record()",
                "view.voters.at(-1).to_record()",
            ),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "snapshot-lacks-the-records",
        "a snapshot holds the state of the beginning, whatever it says that it covers (I14)",
        (
            Edit(
                "testing.process.Process.take_snapshot",
                "for value in self.machine.snapshot()]",
                "for value in self._world.subject.machine().snapshot()]",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "download-is-not-verified",
        "a downloaded snapshot is believed, whatever is in it, as soon as some of it is there",
        (
            Edit("consensus.snapshotting.handle_chunk_written", "if event.size != role.download.size:", "if False:"),
            Edit(
                "runtime.snapshot_transfer.LogSnapshots.write",
                "self.drop()\n        return ev.SnapshotRefused(action.snapshot_id, str(error))",
                "pass",
            ),
            Edit(
                "runtime.snapshot_transfer.LogSnapshots.install",
                "self.drop()\n        return ev.SnapshotRefused(snapshot_id, str(error))",
                "pass",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "installed-snapshot-keeps-the-log",
        "the core goes on with the old end of its log after a snapshot was installed",
        (
            Edit(
                "consensus.log_view.LogView.install",
                "self.start_offset = self.end_offset = self.flushed_offset = snapshot_id.offset",
                "self.start_offset = snapshot_id.offset",
            ),
        ),
        profiles=("membership",),
    ),
)

READS: Final = (
    Mutant(
        "reads-ask-nobody",
        "a leader answers a read without asking whether it still leads (C2)",
        (
            Edit(
                "consensus.reading._advance_round",
                "if confirmed + state.is_voter < state.voters.majority:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "reads-take-an-old-confirmation",
        "who has confirmed an earlier round counts for this one (C2)",
        (
            Edit(
                "consensus.reading._advance_round",
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
            Edit("consensus.reading._advance_round", "if 0 < read.asked <= current.number]", "]"),
            Edit("consensus.reading._advance_round", "if not 0 < read.asked <= current.number]", "if False]"),
        ),
    ),
    Mutant(
        "late-reads-join-a-question",
        "a read that comes while the leader is asked for others is answered with them (C2)",
        (
            Edit("consensus.reading.handle_read_barrier_response", "if read.asked]", "]"),
            Edit("consensus.reading.handle_read_barrier_response", "if not read.asked]", "if False]"),
        ),
    ),
    Mutant(
        "reads-before-the-own-commit",
        "a new leader reads before it has committed anything: earlier epochs may have acknowledged more (C2)",
        (
            Edit("consensus.reading._advance_round", "if state.high_watermark is None:", "if False:"),
            Edit(
                "consensus.reading._advance_round",
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

LOSSES: Final = (
    Mutant(
        "amnesiac-votes",
        "whoever has lost its election file votes as if it had never voted (E3)",
        (
            Edit("consensus.election.grants_vote", "state.amnesia is not None or ", ""),
            Edit("consensus.election.grants_pre_vote", "state.amnesia is not None or ", ""),
        ),
        profiles=("disks",),
        slow=True,
    ),
    Mutant(
        "amnesia-ends-with-a-majority",
        "whoever has lost its election file votes again once some have told their epoch (E3)",
        (Edit("consensus.amnesia.maybe_recall", " or unreported(state)", ""),),
        profiles=("disks",),
        slow=True,
    ),
    Mutant(
        "damaged-log-stands",
        "a replica that has lost records stands for election all the same (S1)",
        (Edit("consensus.state.ReplicaState.may_stand", " and not self.log.holes", ""),),
        profiles=("disks",),
    ),
)

MUTANTS: Final = (*VOTES, *REPLICATION, *LIVENESS, *RUNTIME, *MEMBERSHIP, *SNAPSHOTS, *READS, *LOSSES, *WORK)
