"""Duties at the end of each step: timers that expire, roles that end, memory that comes back (KIP-595, KIP-996).

A time that chance decides leaves a choice: then the core's own role says what it was, and the `Span` is narrowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus.roles import Role
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from tools.rules import leading
from tools.rules.election_answers import stand, stands_at_ms, take
from tools.rules.election_life import Life
from tools.rules.election_parts import Asking, Following, Leading, Resigned, Span, Unattached
from tools.rules.hand_over import hands_over

TURNS_MAX = 16


def poll(life: Life, actions: Sequence[act.Action], *, is_new_role: bool) -> int:
    """Do all that is due; return how many actions at the front were asked for in an earlier role."""
    if life.sent:
        _expire(life)
    if _is_flushed(life, actions):
        life.flush_waits_since_ms = None
    elif life.flush_waits_since_ms is None:
        life.flush_waits_since_ms = life.now_ms
    if life.forgotten is not None:
        _recall(life)
    for _ in range(TURNS_MAX):
        part = life.part
        TURNS[type(part)](life, part, is_new_role and not life.entered)
        if life.part is part:
            break
    if not life.entered:
        return 0
    marks = (act.PersistElection, act.AnnounceLeader, act.RefuseAppends)
    return max((number + 1 for number, action in enumerate(actions) if isinstance(action, marks)), default=0)


def _expire(life: Life) -> None:
    """Give up what has no answer in time, in the order of asking."""
    late_ms = life.now_ms - life.config.request_timeout_ms
    if next(iter(life.sent.values())).at_ms > late_ms:
        return
    for number, sent in list(life.sent.items()):
        if sent.at_ms > late_ms:
            break
        take(life, number)
        if not isinstance(sent.request, ReadBarrierRequest | SnapshotHashRequest):
            life.fail(sent.destination)


def _is_flushed(life: Life, actions: Sequence[act.Action]) -> bool:
    log = life.state.log
    if type(life.part) is not Leading and life.state.role_state.role is Role.LEADER:
        begins = [action.start_offset for action in actions if isinstance(action, act.BeginEpoch)]
        return bool(begins) and log.flushed_offset == begins[-1]
    return log.flushed_offset == log.end_offset


def _recall(life: Life) -> None:
    """A forgotten vote is free again once no candidate can have had it (the proof stands in `consensus.repair`)."""
    forgotten, part, state = life.forgotten, life.part, life.state
    if forgotten is None or not isinstance(part, Following) or not life.remote_voters or life.holes:
        return
    others = life.other_voters()
    download = getattr(state.role_state, "download", None)
    offset = state.log.voters.latest_offset
    if not life.is_voter and offset is not None and offset >= state.committed_offset:
        return  # the change that removes it came to it because it has no vote to refuse
    if others <= forgotten.reported and download is None and life.epoch == forgotten.reached_epoch:
        life.forgotten = None
        life.write()


def _is_elsewhere(life: Life, is_new_role: bool) -> bool:
    state = life.state
    return (state.role, state.epoch) != (life.part.role, life.epoch) or (is_new_role and not life.entered)


def _is_due(life: Life, timer: Span, is_new_role: bool, *, later_ms: int = 0) -> bool:
    now_ms = life.now_ms - later_ms
    if now_ms < timer.low:
        return False
    if now_ms >= timer.high:
        return True
    if _is_elsewhere(life, is_new_role):
        timer.high = now_ms
        return True
    timer.low = now_ms + 1
    return False


def _wait(life: Life, part: Unattached, is_new_role: bool) -> None:
    if not life.may_stand:
        part.timer = None
    elif part.timer is None:
        part.timer = life.election_timer()
    if life.shutdown_ms is not None or part.timer is None:
        return
    if _is_due(life, part.timer, is_new_role, later_ms=life.waits_longer_ms):
        life.prospective()


def _follow(life: Life, part: Following, is_new_role: bool) -> None:
    if life.now_ms < part.timer.low or life.shutdown_ms is not None or not life.may_stand:
        return
    writing = getattr(life.state.role_state, "writing_chunk", False)
    if not writing and _is_due(life, part.timer, is_new_role, later_ms=life.waits_longer_ms):
        life.prospective()


def _leave(life: Life, part: Resigned, is_new_role: bool) -> None:
    if life.shutdown_ms is None and _is_due(life, part.timer, is_new_role):
        life.unattached(life.epoch + 1)


def _asking(life: Life, part: Asking, is_new_role: bool) -> None:
    is_prospective = part.role is Role.PROSPECTIVE
    if not life.is_voter:
        if is_prospective:
            life.give_up()
        else:
            life.unattached(life.epoch + 1)
        return
    may_stand_now = is_prospective and part.won and life.now_ms >= stands_at_ms(life, part)
    if may_stand_now and life.state.epoch > life.epoch and life.now_ms < part.timer.high:
        stand(life, part)
    elif life.shutdown_ms is None and _is_due(life, part.timer, is_new_role):
        if is_prospective:
            life.give_up()
        elif life.may_stand:
            life.prospective()
        else:
            life.unattached(life.epoch + 1)
    elif may_stand_now:
        stand(life, part)


def _lead(life: Life, part: Leading, is_new_role: bool) -> None:
    state = life.state
    end, high_watermark = state.log.end_offset, state.high_watermark
    if high_watermark == end:
        part.stalled_since_ms = None
    elif part.stalled_since_ms is None:
        part.stalled_since_ms = life.now_ms
    if why := leading.must_resign(life, part):
        if why == leading.STALLED:
            life.stalls += 1
        life.resigned(leading.successors(part))
        return
    latest = state.log.voters.latest_offset or 0
    if not life.is_voter and high_watermark is not None and latest < high_watermark:
        part.resign_requested = True
    is_changing = getattr(life.leading_role, "change", None) is not None
    if hands_over(life, part, is_proved=high_watermark is not None, is_changing=is_changing, end=end):
        life.resigned(leading.successors(part))


TURNS: Final[Mapping[type, Callable[[Life, Any, bool], None]]] = {
    Unattached: _wait, Asking: _asking, Following: _follow, Resigned: _leave, Leading: _lead,
}  # fmt: skip
"""The effect of time on each part."""
