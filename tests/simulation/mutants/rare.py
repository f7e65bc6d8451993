"""Bugs of the core that show in rare situations alone.

The errands of the core fuzzer bring these about, or a rule of single steps had to be told what is wrong in them.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

CORE: Final = ("core", "core-votes", "core-disks", "core-voters", "core-downloads", "core-links", "core-lies")

MUTANTS: Final = (
    Mutant(
        "transfer-never-ends",
        "a transfer to a voter that does not catch up is never given up, and nothing is appended any more",
        (
            Edit(
                "consensus.poll._may_hand_over",
                "target is None or state.now_ms >= transfer.deadline_ms",
                "target is None",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "empty-answers-are-asked-again",
        "a leader that holds no Fetch is asked again as fast as it answers",
        (
            Edit(
                "consensus.fetch_follower.handle_fetch_response",
                "if not outcome and role.download is None:",
                "if outcome is None and role.download is None:",
            ),
        ),
        profiles=CORE,
    ),
    Mutant(
        "removal-counts-the-dead",
        "a removal is accepted though too few of the voters that it leaves live",
        (Edit("consensus.voter_changes._live", "at_ms is not None and at_ms >= earliest_ms", "at_ms is not None"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "late-fetch-gets-no-records",
        "a Fetch that waited for the commit of a change gets no records when its time is up",
        (
            Edit(
                "consensus.fetch_leader.expire_parked",
                "actions = answer_parked(state, role)",
                "actions: list[Action] = []",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "change-goes-to-the-new-disk",
        "a change that is not committed goes to whoever fetches under the id of a voter, whatever its disk",
        (
            Edit(
                "consensus.fetch_leader.may_send",
                "fetcher is None or fetcher in state.voters",
                "fetcher is None or fetcher.id in state.voters.ids",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "epoch-at-the-start-is-not-compared",
        "a log whose last record is of another epoch than the snapshot at the leader's start counts as being in line",
        (Edit("consensus.log_view.LogView.validate", "or at_start_of_another or", "or"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "removed-leader-confirms-itself",
        "a leader that has removed itself counts itself in favour of its reads (C2)",
        (Edit("consensus.extensions.read_index._advance_round", "confirmed + state.is_voter <", "confirmed + 1 <"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "handed-to-the-dead",
        "leadership is handed to a voter that has everything, and died in a quiet time",
        (Edit("consensus.extensions.priority.is_ready", "return _lives(state, progress) and", "return"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "strangers-take-a-place",
        "a Fetch that proves nothing takes the place of the observer whose id it gives, which cannot join then",
        (Edit("consensus.fetch_leader.record_progress", "if observer is not None and observer.is_proven", "if False"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "downloads-are-silence",
        "a voter amid a snapshot counts as dead: it is not relied on for a removal, and tools show it as silent",
        (Edit("consensus.roles.Progress.heard_ms", "max(self.last_fetch_ms, self.moved_ms)", "self.last_fetch_ms"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "refused-download-never-ends",
        "a download whose position is wrong is asked for again for ever",
        (Edit("consensus.fetch_snapshot._pause_download", "if download.refusals >= REFUSALS_MAX", "if False"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "cut-at-the-end-of-a-hole",
        "a truncation leaves a log whose last record is missing, and nobody knows of which epoch it was",
        (Edit("consensus.repair.truncated_end", "end_offset <= hole.end_offset", "end_offset < hole.end_offset"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "lost-commits-are-not-told-again",
        "a state machine that waits before a lost hole does not go on when its records are back",
        (Edit("consensus.fetch_follower._append", " or before < known", ""),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "once-full-always-full",
        "leadership is never handed to a voter whose disk was full once",
        (
            Edit(
                "consensus.fetch_leader.record_progress",
                "progress.has_space = has_space",
                "progress.has_space &= has_space",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "upgrade-without-support",
        "kraft.version 1 begins though a voter has said that it cannot follow",
        (Edit("consensus.kraft_version._upgrade_error", " or voter.max_kraft_version < 1", ""),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "question-before-the-log",
        "a leader that never answers an UpdateRaftVoter is asked that again, and gets no Fetch",
        (Edit("consensus.joining._place_to_ask", "None if has_failed else ", ""),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "change-is-given-up-late",
        "whoever asked for a change of the voters is told that its time is up when something else wakes the leader",
        (
            Edit(
                "consensus.poll._role_deadlines",
                "return times if role.change is None else [*times, role.change.deadline_ms]",
                "return times",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "two-new-voters-are-neighbours",
        "a follower takes a voter set that has two more voters than the last one",
        (
            Edit(
                "consensus.voters.VoterSet.is_neighbour_of",
                "len(ours - theirs) <= 1 and len(theirs - ours) <= 1",
                "len(ours ^ theirs) <= 2",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "resigned-shows-itself-as-leader",
        "the status of a leader that has resigned names it as leader",
        (Edit("consensus.status.status_of", "state.leader_and_epoch.leader_id", "state.leader_id"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "budget-rounds-down",
        "where the debt is full one more epoch is believed each millisecond, and not each 100 ms (E17)",
        (
            Edit(
                "consensus.extensions.epoch_budget.raises_too_far",
                "-(-state.epoch_debt_ms // EPOCH_COST_MS)",
                "state.epoch_debt_ms // EPOCH_COST_MS",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "older-difference-quarantines",
        "a state that agrees is quarantined for how it differed at an earlier offset",
        (Edit("consensus.extensions.state_digests.judge", "elif offset > digests.agreed_offset:", "else:"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "begun-anew-forgets-what-for",
        "a snapshot that fills a hole is not used for it once its download begins anew",
        (Edit("consensus.extensions.snapshot_hash._begin_anew", ", fills=download.fills", ""),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "retention-beyond-the-end",
        "a log whose end was cut off is told to begin behind it, at a snapshot that was written meanwhile",
        (
            Edit(
                "consensus.snapshots.handle_retention_due",
                "min(state.committed_offset, state.log.end_offset)",
                "state.committed_offset",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "last-epoch-of-the-budget",
        "the last epoch that peers may raise a replica to is not believed (E17)",
        (
            Edit(
                "consensus.extensions.epoch_budget.raises_too_far",
                "epoch - state.epoch <= left",
                "epoch - state.epoch < left",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "silence-need-not-be-in-a-row",
        "a voter that fetches now and then is removed after three silences in all (KIP-1186)",
        (
            Edit(
                "consensus.joining.handle_describe_response",
                "role.predecessor_silence + 1 if is_silent else 0",
                "role.predecessor_silence + 1 if is_silent else role.predecessor_silence",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "epochs-fall-in-an-answer",
        "within one answer the epoch of a batch may be below that of the one before it",
        (
            Edit(
                "consensus.received._leading_batches",
                "end_offset, last_epoch = batch.last_offset + 1, batch.epoch",
                "end_offset = batch.last_offset + 1",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "leader-of-others-is-followed",
        "what a leader appends that counts other voters than the configured ones is taken, with a warning",
        (Edit("consensus.received._counts_others", "return True", "pass"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "first-failure-waits-twice",
        "the pause after a failure is doubled from the first one in a row on",
        (Edit("consensus.outstanding.OutstandingRequests.failed", "(failures - 1)", "failures"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "new-voter-that-answers-still-fails",
        "a new voter that has said what it supports counts as failed as often as before",
        (
            Edit(
                "consensus.voter_changes.handle_probe_response",
                "state.connections.succeeded(outstanding.destination)",
                "pass",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "twin-is-not-counted",
        "that another replica with our id asks for votes is refused, and not counted",
        (Edit("consensus.vote.handle_vote", 'state.refuse("our own id", f"a Vote of replica {asker}")', "pass"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "upgrade-forgets-progress",
        "when the disks of static voters become known, the leader forgets how far they are",
        (
            Edit(
                "consensus.fetch_leader._progress_of",
                "key.matches(voter.key) or voter.key.matches(key)",
                "key.matches(voter.key) and voter.key.matches(key)",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "strange-headers-are-taken",
        "a follower appends a sound batch whose header no log of a quorum has",
        (Edit("consensus.received._leading_batches", "check_kraft_header(batch)", "pass"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "id-0-is-nobody",
        "a Vote that is meant for replica 0 is answered by whoever gets it",
        (Edit("consensus.responses.voter_key_error", "voter_id < 0", "voter_id <= 0"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "joins-when-something-else-wakes-it",
        "an observer whose disk is busy asks to be a voter when something else wakes it",
        (
            Edit(
                "consensus.joining.join_deadline_ms",
                "return None if _place_to_join(state, role) is None else",
                "return None if True else",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "warned-of-nobody",
        "of several replicas that make the same mistake an operator is warned once",
        (Edit("consensus.extensions.misconfiguration.claimed_id", "return claimed if claimed >= 0 else", "return"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "readers-keep-questions-back",
        "a question of a reader to replica 0 counts as one between replicas: no other replica is asked who leads",
        (Edit("consensus.outstanding.OutstandingRequests.idle", "<= FIRST_LANE", "< FIRST_LANE"),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "observers-never-rest",
        "a leader takes snapshots for observers as often as for voters",
        (
            Edit(
                "consensus.extensions.state_digests.handle_state_digest",
                "rest_ms = pause_ms(state) if is_voter else",
                "rest_ms = pause_ms(state) if True else",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "only-the-start-is-committed",
        "a replica that starts takes only the start of its log for committed, though it has a newer snapshot",
        (Edit("consensus.replica.Replica.__init__", "committed_offset=max([", "committed_offset=min(["),),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "describing-nothing-fails",
        "a DescribeQuorum that names no topic ends in an error",
        (
            Edit(
                "consensus.describe.handle_describe_quorum",
                "if request.topics else METADATA_TOPIC",
                "or METADATA_TOPIC",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
    Mutant(
        "least-version-is-forgotten",
        "the log says of each voter that it supports the oldest kraft.version",
        (
            Edit(
                "consensus.voters.VoterSet.to_record",
                "min_supported_version=voter.min_kraft_version",
                "min_supported_version=0",
            ),
        ),
        profiles=CORE,
        slow=True,
    ),
)
