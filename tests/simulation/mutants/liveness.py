"""Bugs by which a quorum does its work late, never, or over and over."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "leader-never-gives-up",
        "a leader that nobody fetches from stays leader (E7)",
        (
            Edit("consensus.deadlines.check_quorum_timeout_ms", "fetch_timeout_ms * 3 // 2", "fetch_timeout_ms * 3000"),
            Edit("consensus.deadlines.stall_deadline_ms", "2 * state.config", "3000 * state.config"),
        ),
    ),
    Mutant(
        "stalled-leader-stays",
        "a leader that is fetched from and commits nothing stays leader (E8)",
        (Edit("consensus.deadlines.stall_deadline_ms", "if others_needed <= 0:", "if True:"),),
        profiles=("network",),
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
        (Edit("consensus.vote.grants_pre_vote", "isinstance(role, Follower) and role.has_fetched", "False"),),
        slow=True,
    ),
    Mutant(
        "everybody-stands-at-once",
        "of two that ask each other nobody lets the other stand first (decision 0010)",
        (Edit("consensus.vote._let_go_first", "role.gave_way_ms = state.now_ms", "pass"),),
        slow=True,
    ),
    Mutant(
        "candidate-never-tries-again",
        "a candidate whose election was split waits for ever",
        (
            Edit(
                "consensus.poll.poll_candidate",
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
                "consensus.poll.poll_follower",
                "state.now_ms >= role.fetch_deadline_ms + state.reluctance_ms and _may_leave(state, role)",
                "False",
            ),
        ),
    ),
    Mutant(
        "requests-never-expire",
        "a request without an answer is waited for for ever",
        (Edit("consensus.outstanding.OutstandingRequests.expire", "<= now_ms", "<= -1"),),
    ),
    Mutant(
        "parked-fetches-never-expire",
        "a Fetch that nothing answers is kept for ever",
        (Edit("consensus.poll.poll_leader", "state.now_ms >= role.parked_deadline_ms", "False"),),
    ),
    Mutant(
        "wakes-for-what-it-may-not-do",
        "who may not tell the leader where it is yet is called for that over and over (I20)",
        (
            Edit(
                "consensus.joining.update_deadline_ms",
                "None if _place_to_update(state, role) is None else role.update_due_ms",
                "None if _place_to_ask(state, role) is None or role.updated_voter else role.update_due_ms",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "wakes-for-a-download-that-is-due",
        "who waits for its disk in the midst of a snapshot is called for the next bytes over and over (I20)",
        (Edit("consensus.fetch_snapshot.download_deadline_ms", "download.not_before_ms > state.now_ms", "True"),),
    ),
    Mutant(
        "no-pause-after-failures",
        "what has failed is tried again at once, over and over (I20)",
        (
            Edit(
                "consensus.outstanding.OutstandingRequests.is_ready",
                "if self._backing_off.get(destination, now_ms) > now_ms:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "parked-fetches-are-forgotten",
        "who ceases to lead leaves waiting Fetches without an answer (L14)",
        (
            Edit(
                "consensus.transitions.close_leadership",
                "for parked in (*leader.parked.values(), *leader.waiting.fetches.values())",
                "for parked in ()",
            ),
        ),
    ),
    Mutant(
        "news-travel-slowly",
        "who waits with a parked Fetch hears of a commit when his time is up (KIP-1166)",
        (
            Edit(
                "consensus.fetch_leader.update_high_watermark",
                "for parked in role.parked.values():",
                "for parked in ():",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "dead-leaders-are-waited-for",
        "a leader that refuses connections is waited for until the fetch timeout",
        (Edit("consensus.fetch_follower.handle_connection_lost", "role.link = Link.REFUSED", "return []"),),
        profiles=("crashes", "swarm"),
        slow=True,
    ),
    Mutant(
        "transfer-goes-anywhere",
        "a leader that hands over prefers whoever has the most, and not the one that was named",
        (Edit("consensus.poll.preferred_successors", "replica_id != wanted", "False"),),
        slow=True,
    ),
    Mutant(
        "everybody-waits-alike",
        "nobody's election timer has a random part",
        (
            Edit(
                "consensus.state.ReplicaState.random_election_deadline_ms",
                "self.random.randrange(spread) if spread else 0",
                "0",
            ),
        ),
    ),
    Mutant(
        "successors-wait-for-the-timeout",
        "whoever is named first by a leader that leaves waits for the fetch timeout all the same",
        (
            Edit(
                "consensus.quorum_epoch.handle_end_quorum_epoch",
                "stand_after(state, role, backoff_ms)",
                "pass",
            ),
        ),
    ),
    Mutant(
        "one-voter-keeps-the-leader",
        "one voter that fetches is enough for a leader of many to stay (E7)",
        (
            Edit(
                "consensus.deadlines.note_voter",
                "needed = state.log.voters.latest.majority - (1 if state.is_voter else 0)",
                "needed = 1",
            ),
        ),
        slow=True,
    ),
    Mutant(
        "check-quorum-is-never-reset",
        "a leader gives up although a majority fetches from it",
        (
            Edit(
                "consensus.deadlines.restart_check_quorum",
                "role.check_quorum_deadline_ms = state.now_ms + check_quorum_timeout_ms(state)",
                "pass",
            ),
        ),
    ),
    Mutant(
        "fetch-timeout-is-not-reset",
        "a follower stands although its leader answers",
        (
            Edit(
                "consensus.deadlines.note_sign_of_life",
                "role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms",
                "pass",
            ),
        ),
    ),
    Mutant(
        "asking-counts-as-hearing",
        "a follower takes its own questions for signs of life of its leader",
        (
            Edit(
                "consensus.fetch_follower.fetch_from_leader",
                "destination, place = source_of(state, role)",
                "destination, place = source_of(state, role)\n"
                "    role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms",
            ),
        ),
    ),
    Mutant(
        "resigned-leader-tells-nobody",
        "a leader that leaves says good-bye to nobody",
        (
            Edit(
                "consensus.quorum_epoch.end_quorum_epoch",
                "for voter in state.voters.others(state.key):",
                "for voter in ():",
            ),
        ),
    ),
    Mutant(
        "full-disk-takes-more",
        "a follower appends although its disk is full (S6)",
        (
            Edit(
                "consensus.fetch_follower._follow_log",
                "if state.disk_full and partition.records:",
                "if False:",
            ),
        ),
        profiles=(
            "disks",
            "swarm",
        ),
    ),
)
