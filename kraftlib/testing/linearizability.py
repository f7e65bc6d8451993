"""Whether a history of calls could have come from a single copy of a thing, one call after the other (I21).

    register = Model(initial=0, step=lambda value, call: (call, None) if call is not None else (value, value))
    verdict = check_history([Call(action=1, began=0, ended=9), Call(action=None, result=1, began=3, ended=4)], register)

A call takes effect at one moment between its beginning and its end; one without an end (its caller was told "unknown",
or nothing) at any moment after its beginning, or never. A history is linearizable if there are such moments that a
`Model`, given the calls in their order, answers what the callers were told.

`check_history` searches as Wing and Gong do, with Lowe's memory of where it has been ("Testing for linearizability",
2017): any model, but the time may grow fast with the number of calls that overlap. `check_each` splits a history by a
key first, for things that do not depend on each other. A log whose calls say *where* they took effect needs no search:
`contradiction_in_log` looks at each once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError

STEPS_MAX: Final = 1_000_000
"""Number of attempts after which a search gives up: some seconds."""


@attrs.frozen(kw_only=True)
class Call:
    """One call: its action, its times and its result. All times are of one clock, in any unit."""

    action: Any
    """The action, as the model understands it."""

    result: Any = None
    """The result; it has no meaning if `ended` is None."""

    began: int
    ended: int | None = None
    """None: no answer, or an unknown outcome. The call may have taken effect since `began`, or not at all."""

    caller: str = ""
    """For people."""

    def __str__(self) -> str:
        who = f"{self.caller}: " if self.caller else ""
        if self.ended is None:
            return f"{who}{self.action!r} from {self.began} on, outcome unknown"
        return f"{who}{self.action!r} -> {self.result!r} in [{self.began}, {self.ended}]"


@attrs.frozen(kw_only=True)
class Model:
    """The sequential behaviour of the service. States are compared and hashed, so they are values."""

    initial: Hashable

    step: Callable[[Any, Any], tuple[Hashable, Any]]
    """Given a state and an action, returns the next state and the result. Depends on nothing else."""


@attrs.frozen(kw_only=True)
class Verdict:
    """The result of a search."""

    linearizable: bool | None
    """None: given up after `STEPS_MAX` attempts."""

    order: tuple[Call, ...]
    """The calls as they may have taken effect: all that must have, or the most that any order could explain."""

    unexplained: Call | None = None
    """A call that no order gets past."""

    def __str__(self) -> str:
        if self.linearizable:
            return f"linearizable: {len(self.order)} calls in order"
        if self.linearizable is None:
            return f"given up: {len(self.order)} calls explained at most"
        known = "".join(f"\n  {call}" for call in self.order[-8:])
        return f"not linearizable: nothing explains {self.unexplained}; {len(self.order)} calls are explained:{known}"


class _Event:
    """The beginning or the end of a call, in a list that calls are taken out of and put back into."""

    __slots__ = ("after", "before", "call", "end", "number")

    def __init__(self, number: int, call: Call) -> None:
        self.number = number
        self.call = call
        self.end: _Event | None = None
        """The end that belongs to this beginning; None if there is none, or if this is an end."""
        self.before: _Event | None = None
        self.after: _Event | None = None


def check_history(calls: Iterable[Call], model: Model, *, steps_max: int = STEPS_MAX) -> Verdict:
    """Look for an order of `calls` that explains their results. Raises: ConfigError, if a call ends before it begins.

    A call that ends at the time at which another begins counts as overlapping it: clocks are coarse.
    """
    return _Search(list(calls), model).run(steps_max)


def check_each(
    calls: Iterable[Call], model: Model, key: Callable[[Call], Hashable], *, steps_max: int = STEPS_MAX
) -> Verdict:
    """As `check_history`, for every `key` on its own: keys of a map, names of locks. Returns the worst verdict."""
    parts: dict[Hashable, list[Call]] = {}
    for call in calls:
        parts.setdefault(key(call), []).append(call)
    verdicts = [check_history(part, model, steps_max=steps_max) for part in parts.values()]
    for wanted in (False, None):
        for verdict in verdicts:
            if verdict.linearizable is wanted:
                return verdict
    return Verdict(linearizable=True, order=tuple(call for verdict in verdicts for call in verdict.order))


class _Search:
    """Takes calls out of the list of unexplained ones, and puts them back where that leads nowhere.

    From the left, every beginning up to the first end may be next: that end's call, and those that overlap it.
    """

    def __init__(self, calls: Sequence[Call], model: Model) -> None:
        self._model = model
        self._head = _Event(-1, Call(action=None, began=0))
        self._open_ends = 0
        # At one time, calls that begin come before calls that end.
        events: list[tuple[int, int, _Event]] = []
        for number, call in enumerate(calls):
            begin = _Event(number, call)
            events.append((call.began, 0, begin))
            if call.ended is not None:
                if call.ended < call.began:
                    raise ConfigError(f"a call ends before it begins: {call}")
                begin.end = _Event(number, call)
                events.append((call.ended, 1, begin.end))
                self._open_ends += 1
        self._begins = {event.number: event for _, is_end, event in events if not is_end}
        last = self._head
        for _, _, event in sorted(events, key=lambda row: row[:2]):
            last.after, event.before = event, last
            last = event

    def run(self, steps_max: int) -> Verdict:
        """Search depth first, without recursion: histories are long."""
        state, explained = self._model.initial, 0
        taken: list[tuple[_Event, Hashable]] = []
        seen: set[tuple[int, Hashable]] = set()
        most: list[Call] = []
        unexplained: Call | None = None
        event = self._head.after
        while self._open_ends:
            if event is not None and self._begins[event.number] is event:
                call = event.call
                steps_max -= 1
                if steps_max < 0:
                    return Verdict(linearizable=None, order=tuple(most), unexplained=unexplained)
                after, result = self._model.step(state, call.action)
                mark = explained | 1 << event.number
                if (call.ended is None or result == call.result) and (mark, after) not in seen:
                    seen.add((mark, after))
                    taken.append((event, state))
                    state, explained = after, mark
                    self._take(event)
                    event = self._head.after
                    continue
                event = event.after
                continue
            # An end whose call is not explained, or nothing left to try: the last one taken was wrong.
            if unexplained is None or len(taken) > len(most):
                most = [begin.call for begin, _ in taken]
                unexplained = event.call if event is not None else unexplained
            if not taken:
                return Verdict(linearizable=False, order=tuple(most), unexplained=unexplained)
            begin, state = taken.pop()
            explained &= ~(1 << begin.number)
            self._put_back(begin)
            event = begin.after
        return Verdict(linearizable=True, order=tuple(begin.call for begin, _ in taken))

    def _take(self, begin: _Event) -> None:
        for event in (begin, begin.end):
            if event is not None and event.before is not None:
                event.before.after = event.after
                if event.after is not None:
                    event.after.before = event.before
        self._open_ends -= begin.end is not None

    def _put_back(self, begin: _Event) -> None:
        for event in (begin.end, begin):  # in the opposite order, so that neighbours find each other
            if event is not None and event.before is not None:
                event.before.after = event
                if event.after is not None:
                    event.after.before = event
        self._open_ends += begin.end is not None


# --- a log, whose calls say where they took effect ------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class LogCall:
    """An append that is known to stand in the log, or a read of the log up to some offset."""

    reads: bool
    end_offset: int
    """One past the last record that was appended, or seen."""

    began: int
    ended: int | None = None
    """None: its caller knows nothing. A call that is not in the log is not in the history either."""

    what: str = ""
    """For people."""

    def __str__(self) -> str:
        verb = "saw the log" if self.reads else "stands"
        end = "never answered" if self.ended is None else f"answered at {self.ended}"
        return f"{self.what or 'a call'} (asked at {self.began}, {end}) {verb} up to {self.end_offset}"


def contradiction_in_log(calls: Iterable[LogCall]) -> tuple[LogCall, LogCall] | None:
    """Return two calls of which the first was over before the second began, and yet comes after it in the log.

    None: the history is linearizable. The offsets say the only order there can be, so each call is looked at once.
    """
    # An append comes before the reads that saw it; reads up to one offset come in any order.
    ordered = sorted(calls, key=lambda call: (call.end_offset, call.reads, call.began), reverse=True)
    first: LogCall | None = None
    """Of the calls further back in the log, the one that was over first."""
    for call in ordered:
        if first is not None and first.ended is not None and first.ended < call.began:
            return first, call
        if call.ended is not None and (first is None or first.ended is None or call.ended < first.ended):
            first = call
    return None
