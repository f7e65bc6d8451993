"""Appends on their way to the leader: those of one turn of the loop go as one request, and each has its own answer.

    caller -> forward -> (end of the turn) -> Propose with the values of all -> each caller's part of the answer

The values of a group are one batch of the leader, so they are all appended or none is. Nothing else is shared: each
caller leaves at its own deadline and gets its own offsets and results. If the leader refuses values for what they are,
the group is halved until those that are refused stand alone; the rest may then be appended in another order. A result
that had no room beside the others is asked for alone, which only a value with an identity allows: other appends that
want results are never grouped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kraftlib.errors import KraftError
from kraftlib.frozen import define
from kraftlib.proposals.outcomes import is_result
from kraftlib.proposals.ports import APPLIED, LocalReplica, UnansweredError
from kraftlib.types import Epoch, Offset
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, PROPOSED_VALUES
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse

OF_A_VALUE: Final = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.MESSAGE_TOO_LARGE})
"""Refusals that may concern some of the values alone."""


TIMEOUT_MS_MAX: Final = 2**31 - 1
"""The largest timeout that a request can state; a caller may wait longer, and is then sent again."""


class Answer(NamedTuple):
    """The part of the leader's answer that concerns one append."""

    error_code: int
    error_message: str | None
    base_offset: Offset
    last_offset: Offset
    epoch: Epoch
    results: Sequence[bytes]


Outcome = Answer | UnansweredError | KraftError | None
"""The end of a forwarded append. A KraftError: this replica ends, or cannot apply. None: no leader was asked, or
another one became known, which may be asked in its place."""


@define(eq=False)
class Forwarded:
    """One append that is forwarded."""

    values: Sequence[bytes]
    level: int
    deadline: float
    """In s of the loop."""
    repeatable: bool
    future: asyncio.Future[Outcome]
    was_sent: bool = False
    committed: tuple[Offset, Epoch] | None = None
    """Where its first value stands, once the leader has said that it is committed; it may not be applied here yet."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether its values may be appended, unless an answer says otherwise."""
        return self.was_sent or self.committed is not None

    @property
    def can_be_grouped(self) -> bool:
        """Whether others may share its request. The leader tells an append without values what is wrong with it."""
        return len(self.values) > 0 and (self.repeatable or self.level != APPLIED)

    def settle(self, outcome: Outcome) -> None:
        """Tell the caller, unless it has gone."""
        if not self.future.done():
            self.future.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        """Tell the caller why there is no answer. Errors that many callers share are not raised here."""
        if isinstance(error, UnansweredError | KraftError):
            self.settle(error)
        elif not self.future.done():
            self.future.set_exception(error)


class Groups:
    """The appends that this replica forwards. All on the loop of the replica."""

    def __init__(self, replica: LocalReplica) -> None:
        self._replica: Final = replica
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: list[Forwarded] = []
        """The appends of this turn."""
        self._under_way: Final[dict[asyncio.Future[Any], Sequence[Forwarded]]] = {}
        """The groups that the leader was asked to append, by what waits for its answer."""

    def forward(self, values: Sequence[bytes], level: int, *, deadline: float, repeatable: bool) -> Forwarded:
        """Have `values` proposed to the leader at the end of this turn."""
        append = Forwarded(values, level, deadline, repeatable, self._loop.create_future())
        if not self._waiting:
            self._loop.call_soon(self._send_waiting)
        self._waiting.append(append)
        return append

    def leader_known(self) -> None:
        """Another leader became known, or none is known: appends that may be repeated do not wait for an answer."""
        for group in self._under_way.values():
            for append in group:
                if append.repeatable:
                    append.settle(None)

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for group in packed([append for append in waiting if not append.future.done()]):
            self._send(group)

    def _send(self, group: Sequence[Forwarded]) -> None:
        leader, endpoint = self._replica.leader()
        if leader.leader_id in (None, self._replica.node_id) or endpoint is None:
            for append in group:
                append.was_sent = False  # if it was before, it was refused
                append.settle(None)
            return
        left_s = max([append.deadline for append in group]) - self._loop.time()
        request = ProposeRequest(
            cluster_id=self._replica.cluster_id,
            timeout_ms=min(max(0, round(left_s * 1_000)), TIMEOUT_MS_MAX),
            level=group[0].level,
            values=tuple([value for append in group for value in append.values]),
        )
        for append in group:
            append.was_sent = True
        asking = self._replica.ask(leader.leader_id, endpoint, request)
        self._under_way[asking] = group
        asking.add_done_callback(self._answered)

    def _answered(self, asking: asyncio.Future[Any]) -> None:
        group = self._under_way.pop(asking)
        if asking.cancelled():
            for append in group:
                append.future.cancel()
        elif (error := asking.exception()) is None:
            self._take(group, asking.result())
        else:
            fail(group, error)

    def _take(self, group: Sequence[Forwarded], answer: ProposeResponse) -> None:
        if answer.error_code in OF_A_VALUE and len(group) > 1:
            self._halve(group)
        elif answer.error_code != ErrorCode.NONE:
            self._divide(group, answer)
        elif not _fits(answer, sum([len(append.values) for append in group])):
            fail(group, UnansweredError(f"its answer is to something else: {answer}", may_have_arrived=True))
        elif group[0].level == APPLIED:
            self._await_applied(group, answer)
        else:
            self._divide(group, answer)

    def _halve(self, group: Sequence[Forwarded]) -> None:
        """Ask for both halves of what was refused; callers that have gone are left out."""
        left = [append for append in group if not append.future.done()]
        middle = len(left) // 2
        for half in (left[:middle], left[middle:]):
            if half:
                self._send(half)

    def _await_applied(self, group: Sequence[Forwarded], answer: ProposeResponse) -> None:
        """Tell them once their values are applied here."""
        offset = answer.base_offset
        for append in group:
            append.committed = offset, answer.epoch
            offset += len(append.values)

        def done(applied: asyncio.Future[Any]) -> None:
            error = None if applied.cancelled() else applied.exception()
            if error is None:
                self._divide(group, answer)
            else:
                fail(group, error)

        try:
            applied = self._replica.applied(answer.last_offset, answer.epoch)
        except KraftError as error:
            fail(group, error)
            return
        waiting = len(group)

        def settled(_: object) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                applied.cancel()  # all callers have gone: nothing of this group is kept until its offset is applied

        applied.add_done_callback(done)
        for append in group:
            append.future.add_done_callback(settled)

    def _divide(self, group: Sequence[Forwarded], answer: ProposeResponse) -> None:
        """Tell each its part of the answer. One whose result had no room beside the others asks alone."""
        first = 0
        for append in group:
            end = first + len(append.values)
            results = answer.results[first:end]
            if append.future.done():
                pass  # its caller has gone
            elif len(group) > 1 and not all(map(is_result, results)):
                self._send([append])
            else:
                append.settle(_part(answer, first, end, results))
            first = end


def _fits(answer: ProposeResponse, values: int) -> bool:
    """Whether this can be the answer to so many values."""
    return answer.last_offset - answer.base_offset + 1 == values and len(answer.results) in (0, values)


def _part(answer: ProposeResponse, first: int, end: int, results: Sequence[bytes]) -> Answer:
    """Return what the answer says of the values from `first` to `end`. An answer in doubt may say where they stand."""
    is_placed = answer.base_offset >= 0
    return Answer(
        answer.error_code,
        answer.error_message,
        answer.base_offset + first if is_placed else answer.base_offset,
        answer.base_offset + end - 1 if is_placed else answer.last_offset,
        answer.epoch,
        results,
    )


def packed(appends: Sequence[Forwarded]) -> Iterator[Sequence[Forwarded]]:
    """Divide appends into requests that a leader takes, in their order."""
    group: list[Forwarded] = []
    values = size = 0
    for append in appends:
        own = sum(map(len, append.values))
        is_full = values + len(append.values) > PROPOSED_VALUES or size + own > PROPOSED_BYTES
        if group and (is_full or not _go_together(group[-1], append)):
            yield group
            group, values, size = [], 0, 0
        group.append(append)
        values += len(append.values)
        size += own
    if group:
        yield group


def _go_together(one: Forwarded, other: Forwarded) -> bool:
    return one.level == other.level and one.can_be_grouped and other.can_be_grouped


def fail(group: Sequence[Forwarded], error: BaseException) -> None:
    """Tell all of them why there is no answer."""
    for append in group:
        append.fail(error)
