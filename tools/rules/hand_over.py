"""The target of a hand-over, beyond Kafka: one that was asked for, is wanted more, has space or a state machine.

The target has everything and lives; a row of hand-overs to one voter is ever slower.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlib.types import Offset, ReplicaId
from tools.rules.election_life import Life
from tools.rules.election_parts import Known, Leading, majority_of
from tools.rules.leading import successors


def hands_over(life: Life, part: Leading, *, is_proved: bool, is_changing: bool, end: Offset) -> bool:
    """Whether it hands over now; keeps in mind to whom it is going to."""
    if part.transfer is None and not is_changing:
        target = _for_failed_machine(life, part, end) if life.machine_failed_ms is not None else None
        if life.machine_failed_ms is None and is_proved:
            target = _wanted(life, part, end)
        if target is not None:
            part.transfer = target, life.now_ms + life.config.request_timeout_ms
    if part.transfer is None:
        return False
    target_id, until_ms = part.transfer
    if target_id not in part.voters or life.now_ms >= until_ms:
        part.transfer = None
        return False
    return part.voters[target_id].end_offset == end


def next_due_ms(life: Life, part: Leading) -> list[int]:
    """Return when leadership may be handed to the voters for which it is too early now."""
    due = [due_ms for _, due_ms in _candidates(life, part)]
    if life.machine_failed_ms is not None:
        due = [_waits_until_ms(life, part)]
    return [due_ms for due_ms in due if due_ms > life.now_ms]


def _waits_until_ms(life: Life, part: Leading) -> int:
    """Until when one whose state machine has failed waits for all that live: twice as long each time it is elected."""
    timeout_ms = life.config.fetch_timeout_ms << min(max(0, life.last_resorts - 1), 6)
    return max(life.machine_failed_ms or 0, part.elected_ms) + timeout_ms


def _lives(life: Life, known: Known) -> bool:
    return known.fetched_ms is not None and life.now_ms - known.fetched_ms < life.config.fetch_timeout_ms


def _is_ready(life: Life, known: Known, end: Offset) -> bool:
    return _lives(life, known) and known.end_offset == end


def _for_failed_machine(life: Life, part: Leading, end: Offset) -> ReplicaId | None:
    """The successor of a leader whose state machine has failed; for a time it waits for every live voter."""
    timeout_ms = life.config.fetch_timeout_ms
    if life.now_ms < _waits_until_ms(life, part):
        for known in part.voters.values():
            heard = [at_ms for at_ms in (known.fetched_ms, known.moved_ms or None) if at_ms is not None]
            heard = heard or [max(life.machine_failed_ms or 0, part.elected_ms)]
            is_silent = life.now_ms - max(heard) >= timeout_ms
            if known.has_space and not is_silent and known.end_offset < end:
                return None
    return next((key.id for key in successors(part) if _is_ready(life, part.voters[key.id], end)), None)


def _wanted(life: Life, part: Leading, end: Offset) -> ReplicaId | None:
    """The voter that is to lead instead, because it is wanted, or has space."""
    for voter_id, due_ms in _candidates(life, part):
        known = part.voters.get(voter_id)
        if known is not None and known.has_space and life.now_ms >= due_ms and _is_ready(life, known, end):
            _note(life, voter_id)
            return voter_id
    return None


def _candidates(life: Life, part: Leading) -> list[tuple[ReplicaId, int]]:
    def rank(voter_id: ReplicaId) -> tuple[int, int]:
        return -part.priorities.get(voter_id, (0, 0))[0], voter_id

    if life.is_full:
        spacious = [known for known in part.voters.values() if known.has_space and _lives(life, known)]
        if len(spacious) < majority_of(life.voters):
            return []
        due_ms = life.full_since_ms + life.config.fetch_timeout_ms
        due_ms = max([due_ms, *(_next_ms(life, voter_id) for voter_id in part.voters)])
        return [(voter_id, due_ms) for voter_id in sorted(part.voters, key=rank)]
    if life.yields:
        named: Sequence[ReplicaId] | None = life.config.yield_to
        if named is None:
            named = [voter.key.id for voter in life.remote_voters if life.controllers & set(voter.endpoints.values())]
        return [(voter_id, _next_ms(life, voter_id)) for voter_id in named]
    if not part.priorities:
        return []
    stronger = [one for one, (priority, _) in part.priorities.items() if priority > life.config.election_priority]
    return [(one, max(part.priorities[one][1], _next_ms(life, one))) for one in sorted(stronger, key=rank)]


def _pause_ms(life: Life, count: int) -> int:
    return life.config.priority_takeover_ms << count


def _next_ms(life: Life, voter_id: ReplicaId) -> int:
    if voter_id not in life.hand_overs:
        return 0
    at_ms, count = life.hand_overs[voter_id]
    return at_ms + _pause_ms(life, count)


def _note(life: Life, voter_id: ReplicaId) -> None:
    count = 1
    if voter_id in life.hand_overs:
        at_ms, before = life.hand_overs[voter_id]
        pause_ms = _pause_ms(life, before) + life.config.fetch_timeout_ms + life.config.election_timeout_ms
        if life.now_ms < at_ms + 2 * pause_ms:
            count += before
    life.hand_overs[voter_id] = life.now_ms, count
