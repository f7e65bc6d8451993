"""Observers are told in rounds where they are many: the load that they cause is bounded, and so is their delay.

Each answer to an observer brings its next Fetch, so a leader with 500 observers that told each of them of every record
at once, and of its commit once more, would do little else. With more than `observers_at_once` observers

* an observer that has kept up waits for a round, also for records that are there; one that is far behind does not,
* a round answers those that have waited longest, a share of all of them: with one every `ROUND_PAUSE_MS` each observer
  has its turn within `observer_round_ms`,
* a leader that is late with a round is busy, and puts the next one off by as much,
* the first round comes `COMMIT_WAIT_MS` after a record, or as soon as it is committed, so that one answer says both.

Voters never wait for any of it: they are answered where the record is taken, and rounds are `poll`'s. Decision 0019.
A replica that serves observers though it does not lead (`extensions.downstream`) tells them in rounds, too, and only
what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action, AnswerObservers
from kraftlib.consensus.fetch_leader import answer_max_bytes, may_send
from kraftlib.consensus.roles import Leader, ParkedFetch, WaitingObservers
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import Offset

ROUND_PAUSE_MS = 2
"""Between two rounds. Meanwhile the Fetches of the last one arrive, and those of voters are not behind all of them."""


def answer_observers(state: ReplicaState, waiting: WaitingObservers, observers: int) -> list[Action]:
    """Answer the observers whose time is up, and a share of all `observers` that there is news for if a round is due.

    Those that stand at one offset have one answer, which is made once.
    """
    end_offset = None if isinstance(state.role_state, Leader) else state.high_watermark
    chosen = [*_late(state, waiting), *_next_round(state, waiting, observers)]
    answers: dict[tuple[int, Offset | None, int], list[int]] = {}
    for parked in chosen:
        if waiting.fetches.pop(parked.request_id, None) is not None:
            is_there = _is_behind(state, parked) and parked.fetch_offset >= state.log.start_offset  # else: a snapshot
            start_offset = parked.fetch_offset if is_there else None
            key = parked.version, start_offset, answer_max_bytes(parked.request)
            answers.setdefault(key, []).append(parked.request_id)
    answer = partial(responses.fetch, state)
    return [
        AnswerObservers(tuple(request_ids), answer(version=version), start_offset, max_bytes, end_offset)
        for (version, start_offset, max_bytes), request_ids in answers.items()
    ]


def _late(state: ReplicaState, waiting: WaitingObservers) -> list[ParkedFetch]:
    if waiting.deadline_ms is None or state.now_ms < waiting.deadline_ms:
        return []
    late: list[ParkedFetch] = []
    others: list[int] = []
    for parked in waiting.fetches.values():
        if parked.deadline_ms <= state.now_ms:
            late.append(parked)
        else:
            others.append(parked.deadline_ms)
    waiting.deadline_ms = min(others, default=None)
    return late


def _next_round(state: ReplicaState, waiting: WaitingObservers, observers: int) -> list[ParkedFetch]:
    due_ms, now_ms = waiting.round_due_ms, state.now_ms
    if due_ms is None or now_ms < due_ms:
        return []
    config = state.config
    share = max(config.observers_at_once, -(-observers * ROUND_PAUSE_MS // config.observer_round_ms), 1)
    chosen = list(islice(_with_news(state, waiting), share))
    late_ms = min(now_ms - due_ms, config.observer_round_ms)
    pause_ms = ROUND_PAUSE_MS if late_ms <= ROUND_PAUSE_MS else ROUND_PAUSE_MS + late_ms
    if chosen:
        waiting.rest_until_ms = now_ms + pause_ms
    waiting.round_due_ms = waiting.rest_until_ms if len(chosen) == share else None
    return chosen


def _with_news(state: ReplicaState, waiting: WaitingObservers) -> Iterator[ParkedFetch]:
    """Yield the observers that have something new to fetch, in the order in which they began to wait."""
    high_watermark = -1 if state.high_watermark is None else state.high_watermark
    for parked in waiting.fetches.values():
        if parked.high_watermark < high_watermark or _is_behind(state, parked):
            yield parked


def _is_behind(state: ReplicaState, parked: ParkedFetch) -> bool:
    if not isinstance(state.role_state, Leader):
        return state.high_watermark is not None and parked.fetch_offset < state.high_watermark
    return parked.fetch_offset < state.log.end_offset and may_send(state, parked.fetcher)
