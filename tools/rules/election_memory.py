"""RV19: the counts and timers that a replica remembers between two events are those that its events have made.

A wrong count matters much later, if ever: a leader that forgets to forget its stalls is patient for too long years
after. So each count and timer is compared when it is written. Where chance decides a timer, it must be in its `Span`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlib.consensus.roles import Heard, Link
from kraftlib.testing.judge import BrokenRuleError
from tools.rules.election_life import Life
from tools.rules.election_parts import Asking, Following, Leading, Resigned, Span, Unattached


def judge_memory(life: Life) -> None:
    """Compare. Raises: BrokenRuleError."""
    state, part = life.state, life.part
    role = state.role_state
    if role.role is not part.role:
        return  # RV9 says so
    _same(
        life,
        "flush waiting since, stalls, setbacks, last resorts",
        (state.flush_waiting_since_ms, state.stalls, state.setbacks, state.last_resorts),
        (life.flush_waits_since_ms, life.stalls, life.setbacks, life.last_resorts),
    )
    amnesia, forgotten = state.amnesia, life.forgotten
    if amnesia is not None and forgotten is not None:
        said = amnesia.reported, amnesia.leader_epoch
        _same(life, "replicas that told their epoch, epoch of the reached end", said,
              (forgotten.reported, forgotten.reached_epoch))  # fmt: skip
    MEMORIES[type(part)](life, part, role)


def _same(life: Life, what: str, said: tuple[object, ...], due: tuple[object, ...]) -> None:
    if said != due:
        raise BrokenRuleError("RV19", f"{life.state.id_text} at {life.now_ms}: {what} are {said}, and must be {due}")


def _in_span(life: Life, what: str, said: int | None, span: Span | None) -> None:
    if (said is None) is not (span is None) or (said is not None and span and not span.low <= said <= span.high):
        raise BrokenRuleError("RV19", f"{life.state.id_text} at {life.now_ms}: {what} is {said}, and must be in {span}")


def _unattached(life: Life, part: Unattached, role: Any) -> None:
    _in_span(life, "the election timer", role.election_deadline_ms, part.timer)
    _same(life, "leader, vote", (role.leader_id, role.voted_key), (part.leader_id, part.voted))


def _asking(life: Life, part: Asking, role: Any) -> None:
    _in_span(life, "the election timer", role.election_deadline_ms, part.timer)
    votes = role.tally
    _same(life, "votes granted, rejected", (votes.granted, votes.rejected), (part.granted, part.rejected))
    if hasattr(role, "left_ms"):
        _same(
            life,
            "good-bye, giving way, round trip, vote",
            (role.left_ms, role.gave_way_ms, role.round_trip_ms, role.voted_key),
            (part.left_ms, part.gave_way_ms, part.round_trip_ms, part.voted),
        )
        _in_span(life, "the number of lost pre-votes", role.pre_votes_lost, part.lost_before)
        if part.leader_refused is not None:
            _same(life, "refusals of the leader", (role.leader_refused,), (part.leader_refused,))


def _following(life: Life, part: Following, role: Any) -> None:
    _in_span(life, "the fetch timer", role.fetch_deadline_ms, part.timer)
    _in_span(life, "the number of lost pre-votes", role.pre_votes_lost, part.lost_before)
    _same(life, "leader, vote", (role.leader_id, role.voted_key), (part.leader_id, part.voted))
    if part.lost_connection is not None and part.refused is not None:
        link = Link.REFUSED if part.refused else Link.BROKEN if part.lost_connection else Link.WHOLE
        _same(life, "losses of the connection", (role.link,), (link,))
    if part.said_good_bye:
        due = Heard.GOOD_BYE_TO_US if part.is_successor else Heard.GOOD_BYE
        _same(life, "words of the leader", (role.heard,), (due,))
    elif part.has_fetched is not None:
        _same(life, "answers of the leader", (role.heard,), (Heard.ANSWER if part.has_fetched else Heard.NOTHING,))


def _leading(life: Life, part: Leading, role: Any) -> None:
    transfer = None if role.transfer is None else (role.transfer.target_id, role.transfer.deadline_ms)
    _same(
        life,
        "elected, check quorum, heard voters, next introduction, stalled since, transfer",
        (
            role.elected_ms, role.check_quorum_deadline_ms, role.fetched_voters, role.begin_epoch_due_ms,
            role.stalled_since_ms, transfer,
        ),
        (
            part.elected_ms, part.quorum_until_ms, part.contacts, part.begin_due_ms, part.stalled_since_ms,
            part.transfer,
        ),
    )  # fmt: skip
    wanted = {voter_id: (one.priority, one.due_ms) for voter_id, one in role.preferred_voters.items()}
    _same(life, "priorities of voters", (wanted,), (part.priorities,))


def _resigned(life: Life, part: Resigned, role: Any) -> None:
    _in_span(life, "the election timer", role.election_deadline_ms, part.timer)
    _same(
        life,
        "voters to tell, successors, voters that were told again",
        (role.unacknowledged, role.preferred, role.told_again),
        (part.unacknowledged, part.preferred, part.told_again),
    )


MEMORIES: Final[Mapping[type, Callable[[Life, Any, Any], None]]] = {
    Unattached: _unattached, Asking: _asking, Following: _following, Leading: _leading, Resigned: _resigned,
}  # fmt: skip
