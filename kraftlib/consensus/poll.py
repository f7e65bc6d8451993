"""The duties of a replica in its role, and until when it may sleep (KIP-595, Leader Progress Timeout).

`poll` is called after every event: everything that is due is done, a change of role included, until nothing more is
due. Nothing depends on being polled at an exact time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlib.consensus.actions import Action, ShutdownComplete
from kraftlib.consensus.deadlines import stall_deadline_ms, watch_commits
from kraftlib.consensus.extensions.downstream import answer_downstream
from kraftlib.consensus.extensions.failed_state_machine import hand_over_deadline_ms, handing_over_to
from kraftlib.consensus.extensions.priority import next_leader, next_leader_deadline_ms, priority_of, tell_leader
from kraftlib.consensus.extensions.read_index import advance_reads, read_deadline_ms
from kraftlib.consensus.extensions.state_digests import compare_deadline_ms, compare_states
from kraftlib.consensus.extensions.upstreams import pause_foreign_download
from kraftlib.consensus.fetch_follower import ask_who_leads, doubt_leader, fetch_from_leader, find_leader, may_fetch
from kraftlib.consensus.fetch_leader import expire_parked
from kraftlib.consensus.fetch_snapshot import download_deadline_ms, fetch_chunk
from kraftlib.consensus.joining import join_deadline_ms, maybe_join, maybe_update_voter, update_deadline_ms
from kraftlib.consensus.observer_rounds import answer_observers
from kraftlib.consensus.quorum_epoch import begin_quorum_epoch, end_quorum_epoch
from kraftlib.consensus.repair import maybe_recall, voters_to_ask
from kraftlib.consensus.roles import Candidate, Follower, Leader, Link, Progress, Prospective, Resigned, Unattached
from kraftlib.consensus.state import ReplicaState, logger
from kraftlib.consensus.transitions import become_prospective, become_resigned, become_unattached
from kraftlib.consensus.vote import ask_for_votes, give_up_pre_vote, stand, stand_not_before_ms
from kraftlib.consensus.voter_changes import advance_change
from kraftlib.errors import InvariantError
from kraftlib.types import ReplicaKey

FAILURES_TO_LEAVE: Final = 3
"""A voter that could not be reached so often in a row will not take over from one that shuts down."""

TURNS_MAX: Final = 16
"""More changes of role than this at one time are a bug: they would spin for ever."""


def poll(state: ReplicaState) -> list[Action]:
    """Do everything that is due now.

    It runs after every event, and hardly ever finds anything. So rare work is asked for here, where it costs a look at
    one field, and not in a function of its own.
    """
    log = state.log
    if log.flushed_offset == log.end_offset:
        state.flush_waiting_since_ms = None
    elif state.flush_waiting_since_ms is None:
        state.flush_waiting_since_ms = state.now_ms
    actions: list[Action] = _relearn(state) if state.amnesia is not None else []
    for _ in range(TURNS_MAX):
        role = state.role_state
        actions += POLLS[type(role)](state, role)
        if state.role_state is role:
            if state.reads:
                actions += advance_reads(state)
            if state.digests.ask_due_ms is not None:
                actions += compare_states(state)
            if state.downstream.fetches:
                actions += answer_downstream(state)
            return actions if state.shutdown_deadline_ms is None else actions + _maybe_complete_shutdown(state)
    raise InvariantError(f"{state.id_text} still changes its role after {TURNS_MAX} turns, now {state.role}")


def _relearn(state: ReplicaState) -> list[Action]:
    """Vote again, if that is safe now; else ask the voters that have not told their epoch."""
    recalled = maybe_recall(state)
    if recalled or state.shutting_down or not may_fetch(state):
        return recalled
    return [ask_who_leads(state, replica_id, place) for replica_id, place in voters_to_ask(state)]


def deadline_ms(state: ReplicaState) -> int | None:
    """When `poll` has something to do next, if nothing happens before; None: never."""
    times = [state.connections.deadline_ms(state.now_ms), *_role_deadlines(state)]
    if state.reads:
        times.append(read_deadline_ms(state))
    if state.digests.ask_due_ms is not None:
        times.append(compare_deadline_ms(state))
    if state.downstream.fetches:
        times += [state.downstream.deadline_ms, state.downstream.round_due_ms]
    if not state.shutdown_complete:
        times.append(state.shutdown_deadline_ms)
    return min([time for time in times if time is not None], default=None)


def _role_deadlines(state: ReplicaState) -> list[int | None]:
    role = state.role_state
    if isinstance(role, Leader):
        voters = state.log.voters.latest.voters
        times: list[int | None] = [role.begin_epoch_due_ms, role.parked_deadline_ms, stall_deadline_ms(state, role)]
        times += [role.waiting.deadline_ms, role.waiting.round_due_ms]
        if len(voters) > 1 or not state.is_voter:
            times.append(role.check_quorum_deadline_ms)
        if role.transfer is not None:
            times.append(role.transfer.deadline_ms)
        else:
            times += [next_leader_deadline_ms(state, role), hand_over_deadline_ms(state, role)]
        if state.flush_waiting_since_ms is not None and len(voters) > 1:
            times.append(state.flush_waiting_since_ms + state.config.fetch_timeout_ms)
        return times if role.change is None else [*times, role.change.deadline_ms]
    if state.shutting_down:
        # It stands no more, and sends no requests: only the end of the shutdown has a time.
        return []
    if isinstance(role, Follower):
        if not state.is_voter:
            return [join_deadline_ms(state, role), download_deadline_ms(state, role)]
        return [
            role.fetch_deadline_ms + state.reluctance_ms if _may_leave(state, role) else None,
            update_deadline_ms(state, role),
            download_deadline_ms(state, role),
        ]
    if isinstance(role, Prospective) and role.tally.won:
        return [stand_not_before_ms(state, role)]
    if isinstance(role, Unattached) and role.election_deadline_ms is not None:
        return [role.election_deadline_ms + state.reluctance_ms]
    return [role.election_deadline_ms]


def poll_unattached(state: ReplicaState, role: Unattached) -> list[Action]:
    """Look for a leader, and stand when the election timer has run out."""
    if not state.may_stand:
        role.election_deadline_ms = None
    elif role.election_deadline_ms is None:
        role.election_deadline_ms = state.random_election_deadline_ms()
    if state.shutting_down:
        return []
    if role.election_deadline_ms is not None and state.now_ms >= role.election_deadline_ms + state.reluctance_ms:
        return become_prospective(state, "election timeout")
    return find_leader(state)


def poll_prospective(state: ReplicaState, role: Prospective) -> list[Action]:
    """Ask for pre-votes until the election timer runs out."""
    if not state.is_voter:
        return give_up_pre_vote(state, role, "no voter any more")
    if state.now_ms >= role.election_deadline_ms and not state.shutting_down:
        return give_up_pre_vote(state, role, "pre-vote timeout")
    return stand(state, role) or ask_for_votes(state, role)


def poll_candidate(state: ReplicaState, role: Candidate) -> list[Action]:
    """Ask for votes until the election timer runs out; then ask whether another try makes sense."""
    if not state.is_voter:
        return become_unattached(state, state.epoch + 1, "no voter any more")
    if state.now_ms >= role.election_deadline_ms and not state.shutting_down:
        if not state.may_stand:
            return become_unattached(state, state.epoch + 1, "no epoch is left for another try")
        return become_prospective(state, "election timeout")
    return ask_for_votes(state, role)


def poll_follower(state: ReplicaState, role: Follower) -> list[Action]:
    """Fetch; stand when the leader has not been heard of for too long."""
    if state.shutdown_deadline_ms is not None:
        return []
    if state.now_ms >= role.fetch_deadline_ms + state.reluctance_ms and _may_leave(state, role):
        return become_prospective(state, "fetch timeout" if role.link is Link.WHOLE else "the leader is dead")
    if not state.is_voter:
        membership = maybe_join(state, role)
    else:
        is_due = not role.updated_voter and state.now_ms >= role.update_due_ms
        membership = maybe_update_voter(state, role) if is_due else []
    if membership:
        return membership
    telling = [] if role.told_priority or not state.config.election_priority else tell_leader(state, role)
    if state.config.upstreams:
        pause_foreign_download(state, role)
    if role.download is not None:
        return telling + (fetch_chunk(state, role, role.download) or doubt_leader(state, role))
    return telling + fetch_from_leader(state, role)


def _may_leave(state: ReplicaState, role: Follower) -> bool:
    """Whether it may give its leader up: not while a snapshot is being written, perhaps in place of the log."""
    return state.may_stand and not role.writing_chunk


def poll_leader(state: ReplicaState, role: Leader) -> list[Action]:
    """Introduce ourselves, answer who has waited long enough, give up where a leader must (BeginQuorumEpoch)."""
    if (role.stalled_since_ms is None) is not (state.high_watermark == state.log.end_offset):
        watch_commits(state, role)
    reason = _reason_to_resign(state, role)
    if reason is not None:
        return become_resigned(state, reason, preferred_successors(role))
    actions = advance_change(state, role) if role.change is not None or not state.is_voter else []
    is_anybody_wanted = role.transfer or role.preferred_voters or state.controllers or state.config.yield_to
    is_able = state.machine_failed_ms is None and not state.disk_full
    if (is_anybody_wanted or not is_able) and _may_hand_over(state, role):
        return actions + become_resigned(state, "handing leadership over", preferred_successors(role))
    if state.now_ms >= role.begin_epoch_due_ms:
        actions += begin_quorum_epoch(state, role)
    if role.parked_deadline_ms is not None and state.now_ms >= role.parked_deadline_ms:
        actions += expire_parked(state, role)
    if role.waiting.is_due(state.now_ms):
        actions += answer_observers(state, role.waiting, len(role.observers))
    return actions


def _reason_to_resign(state: ReplicaState, role: Leader) -> str | None:
    if state.shutdown_deadline_ms is not None and len(state.voters) > 1:
        return "shutting down"
    if role.resign_requested:
        return "asked to resign"
    waiting_ms = 0 if state.flush_waiting_since_ms is None else state.now_ms - state.flush_waiting_since_ms
    if waiting_ms >= state.config.fetch_timeout_ms and len(state.voters) > 1:
        # Its followers still hear from it, so no other replica would notice: it commits nothing of its own any more.
        return f"the disk has made nothing durable for {waiting_ms} ms"
    if state.now_ms >= role.check_quorum_deadline_ms and (len(state.voters) > 1 or not state.is_voter):
        return "no majority fetches"
    if role.stalled_since_ms is None or state.now_ms < role.stalled_since_ms + 2 * state.config.fetch_timeout_ms:
        return None  # the least that `stall_deadline_ms` allows
    stalled_ms = stall_deadline_ms(state, role)
    if stalled_ms is not None and state.now_ms >= stalled_ms:
        state.stalls += 1
        ends = {replica_id: progress.end_offset for replica_id, progress in role.progress.items()}
        logger.warning(
            "%s: resigning, for a majority fetches and none of it gets on: %s of %d", state.id_text, ends,
            state.log.end_offset,
        )  # fmt: skip
        return "a majority fetches and gets nowhere"
    return None


def _may_hand_over(state: ReplicaState, role: Leader) -> bool:
    """Whether the voter that is to lead has everything; after the deadline it is not waited for any longer."""
    if role.transfer is None:
        if state.machine_failed_ms is not None:
            role.transfer = handing_over_to(state, role, preferred_successors(role))
        else:
            role.transfer = next_leader(state, role)
    transfer = role.transfer
    if transfer is None:
        return False
    target = role.progress.get(transfer.target_id)
    if target is None or state.now_ms >= transfer.deadline_ms:
        role.transfer = None
        return False
    return target.end_offset == state.log.end_offset


def preferred_successors(role: Leader) -> tuple[ReplicaKey, ...]:
    """The remote voters: the one that shall lead first, then the most caught-up ones, and of these the most wanted
    ones."""
    wanted = role.transfer.target_id if role.transfer is not None else None

    def rank(progress: Progress) -> tuple[bool, int, int, int]:
        replica_id = progress.key.id
        return replica_id != wanted, -progress.end_offset, -priority_of(role, replica_id), replica_id

    return tuple(progress.key for progress in sorted(role.progress.values(), key=rank))


def poll_resigned(state: ReplicaState, role: Resigned) -> list[Action]:
    """Tell the voters; leave the epoch when the election timer runs out."""
    if state.now_ms >= role.election_deadline_ms and not state.shutting_down:
        return become_unattached(state, state.epoch + 1, "election timeout after resigning")
    return end_quorum_epoch(state, role)


def _maybe_complete_shutdown(state: ReplicaState) -> list[Action]:
    """A graceful end is reached when there is another leader, or no other voter could lead, or time is up."""
    if state.shutdown_deadline_ms is None or state.shutdown_complete:
        return []
    others = state.voters.others(state.key)
    alone = not state.is_voter or all(state.connections.failures(voter.key.id) >= FAILURES_TO_LEAVE for voter in others)
    is_over = alone or isinstance(state.role_state, Follower) or state.now_ms >= state.shutdown_deadline_ms
    state.shutdown_complete = is_over
    return [ShutdownComplete()] if is_over else []


POLLS: Final[dict[type, Callable[[ReplicaState, Any], list[Action]]]] = {
    Unattached: poll_unattached,
    Prospective: poll_prospective,
    Candidate: poll_candidate,
    Follower: poll_follower,
    Leader: poll_leader,
    Resigned: poll_resigned,
}
