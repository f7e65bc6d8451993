"""The side that asks: appends here or through the leader, until the deadline, and says exactly what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RemoteProtocolError,
)
from kraftlib.frozen import define
from kraftlib.proposals.groups import Answer, Forwarded, Groups
from kraftlib.proposals.outcomes import ELSEWHERE, decode_results, error_of
from kraftlib.proposals.ports import LocalReplica, Proposed, UnansweredError
from kraftlib.records.serde import RecordSerde
from kraftlib.types import ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, PROPOSED_VALUES

PAUSE_S: Final = 0.02
"""Pause before the leader is looked for again, if no other leader becomes known meanwhile."""


@define
class _Attempts:
    """The attempts at one append so far."""

    replica: LocalReplica
    deadline: float
    """In s of the loop."""
    timeout_ms: int
    repeatable: bool
    in_doubt: bool = False
    """Whether one of them may have appended the values."""
    reason: KraftError | None = None
    """The last error of an attempt; None also where another replica leads, and was not reached or took nothing."""

    def outcome(self, end: object = None) -> KraftError:
        """Return the error at the deadline, or at another `end` of attempts that are in doubt."""
        if not self.in_doubt:
            return self.reason or self.replica.not_leader()
        because = "" if self.reason is None else f": {self.reason}"
        when = f"after {self.timeout_ms} ms" if end is None else f"({end})"
        text = f"the append was sent, and its outcome is not known {when}{because}"
        place = self.reason if isinstance(self.reason, OutcomeUnknownError) else OutcomeUnknownError("")
        return OutcomeUnknownError(text, base_offset=place.base_offset, epoch=place.epoch)


@define(eq=False)
class Begun:
    """A first attempt that is under way; `Proposals.begin` makes it."""

    values: Sequence[bytes]
    level: int
    attempts: _Attempts
    leader_changed: asyncio.Future[None]
    future: asyncio.Future[Any]
    """Done when it has ended."""
    leader_id: ReplicaId | None = None
    forwarded: Forwarded | None = None
    """None: it appends here."""
    has_gone: bool = False

    def cancel(self) -> None:
        """The caller goes."""
        self.has_gone = True
        self.future.cancel()


class Proposals:
    """Appends of this replica's application, wherever the leader is. All on the loop of the replica."""

    def __init__(self, replica: LocalReplica, *, serde: RecordSerde[Any]) -> None:
        self._replica: Final = replica
        self._serde: Final = serde
        self._loop: Final = asyncio.get_running_loop()
        self._groups: Final = Groups(replica)
        self._leader_changed: asyncio.Future[None] = self._loop.create_future()

    def leader_known(self) -> None:
        """Another leader became known, or none is known any more: attempts that wait go on."""
        changed, self._leader_changed = self._leader_changed, self._loop.create_future()
        changed.set_result(None)
        self._groups.leader_known()

    async def propose(
        self, values: Sequence[bytes], *, level: int, timeout_ms: int, repeatable: bool = False
    ) -> Proposed:
        """Append `values` atomically through whichever replica leads; return when they have come to `level`.

        `repeatable`: the state machine recognises a repetition, so values are proposed again after an unknown outcome.

        Raises, and then nothing was appended: NotLeaderError, if no leader took them within `timeout_ms`;
        BacklogFullError, RecordTooLargeError, ClosedError, ConfigError; ReplicaFailedError, if this replica has stopped
        itself. Raises OutcomeUnknownError, if an attempt may have appended them, whatever became of the later ones.
        """
        return await self._try(values, level, self._attempts(timeout_ms, repeatable), None)

    # --- a first attempt without a task ------------------------------------------------------------------------------

    def begin(self, values: Sequence[bytes], *, level: int, timeout_ms: int, repeatable: bool = False) -> Begun | None:
        """Begin a first attempt, which nearly always is the last one; `tell` takes it from there.

        None: it could not begin. Nothing was appended, and `propose` tries on or says why.
        """
        replica, attempts, changed = self._replica, self._attempts(timeout_ms, repeatable), self._leader_changed
        try:
            if not replica.follows(level):
                return Begun(values, level, attempts, changed, replica.append(values, level))
            leader, endpoint = replica.leader()
            if leader.leader_id in (None, replica.node_id) or endpoint is None:
                return None
            forwarded = self._forwarded(values, level, attempts)
        except Exception:  # noqa: BLE001 - `propose` meets it again, and raises it
            return None
        return Begun(values, level, attempts, changed, forwarded.future, leader.leader_id, forwarded)

    def tell(self, begun: Begun, outcome: Callable[[Proposed | None], None]) -> None:
        """Call `outcome` with what was proposed.

        With None, if the attempt was cancelled or has failed, or its time is over: then await `go_on`.
        """
        timer: asyncio.TimerHandle | None = None

        def ended(future: asyncio.Future[Any]) -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
                timer = None
                outcome(self._proposed(begun))

        def too_late() -> None:
            nonlocal timer
            if timer is not None:
                timer = None
                outcome(None)

        timer = self._loop.call_at(begun.attempts.deadline, too_late)
        begun.future.add_done_callback(ended)

    async def go_on(self, begun: Begun) -> Proposed:
        """Return or raise the outcome as `propose` does, be it that of the first attempt or of a later one."""
        if begun.has_gone and not begun.future.cancelled():
            raise asyncio.CancelledError  # it had ended before its caller went
        return await self._try(begun.values, begun.level, begun.attempts, begun)

    def _proposed(self, begun: Begun) -> Proposed | None:
        """Return what an attempt that has ended has proposed."""
        if begun.future.cancelled() or begun.future.exception() is not None:
            return None
        outcome = begun.future.result()
        if begun.forwarded is None:
            return Proposed(*outcome)
        if not isinstance(outcome, Answer) or outcome.error_code != ErrorCode.NONE:
            return None
        try:
            return self._done(outcome)
        except OutcomeUnknownError:
            return None

    # --- attempts ----------------------------------------------------------------------------------------------------

    def _attempts(self, timeout_ms: int, repeatable: bool) -> _Attempts:
        return _Attempts(self._replica, self._loop.time() + timeout_ms / 1_000, timeout_ms, repeatable)

    async def _try(self, values: Sequence[bytes], level: int, attempts: _Attempts, begun: Begun | None) -> Proposed:
        """Try until the deadline, beginning with the attempt that has `begun`."""
        try:
            async with asyncio.timeout_at(attempts.deadline):
                while True:
                    changed = self._leader_changed if begun is None else begun.leader_changed
                    proposed = await self._attempt(values, level, attempts, begun)
                    if proposed is not None:
                        return proposed
                    begun = None
                    await asyncio.wait((changed,), timeout=PAUSE_S)
        except TimeoutError:
            raise attempts.outcome() from None
        except asyncio.CancelledError:
            # By this replica, which ends; or by the caller, which does not wait for the outcome.
            if attempts.in_doubt and self._replica.has_ended:
                raise attempts.outcome("this replica ended meanwhile") from None
            raise
        except KraftError as error:
            if not attempts.in_doubt or isinstance(error, OutcomeUnknownError):
                raise
            raise attempts.outcome(error) from error

    async def _attempt(
        self, values: Sequence[bytes], level: int, attempts: _Attempts, begun: Begun | None
    ) -> Proposed | None:
        """Try once, or await what has `begun`; None, if a later attempt may do better."""
        if begun is not None and begun.forwarded is not None:
            return await self._await(begun.leader_id, begun.forwarded, attempts)
        if begun is not None or not self._replica.follows(level):
            was_in_doubt = attempts.in_doubt
            try:
                appending = self._replica.append(values, level) if begun is None else begun.future
                attempts.in_doubt = True
                return Proposed(*await appending)
            except NotLeaderError as error:  # also from `appending`: values that were not written were not appended
                attempts.in_doubt = was_in_doubt
                if not was_in_doubt:
                    attempts.reason = error
            except (BacklogFullError, ClosedError) as error:
                attempts.in_doubt = was_in_doubt
                if not was_in_doubt or isinstance(error, ClosedError):  # a replica that closes takes nothing more
                    raise
                return None
            except OutcomeUnknownError as error:
                if not attempts.repeatable:
                    raise
                attempts.reason = error
                return None
        leader, endpoint = self._replica.leader()
        if leader.leader_id in (None, self._replica.node_id) or endpoint is None:
            return None
        return await self._await(leader.leader_id, self._forwarded(values, level, attempts), attempts)

    def _forwarded(self, values: Sequence[bytes], level: int, attempts: _Attempts) -> Forwarded:
        check_values(values)
        return self._groups.forward(values, level, deadline=attempts.deadline, repeatable=attempts.repeatable)

    async def _await(self, leader_id: ReplicaId | None, forwarded: Forwarded, attempts: _Attempts) -> Proposed | None:
        was_in_doubt = attempts.in_doubt
        try:
            outcome = await forwarded.future
        except BaseException:
            _note_doubt(forwarded, attempts)
            raise
        if isinstance(outcome, Answer) and outcome.error_code == ErrorCode.NONE:
            return self._done(outcome)
        _note_doubt(forwarded, attempts)
        was_in_doubt |= forwarded.committed is not None  # an earlier request of this attempt appended the values
        if outcome is None:
            return None
        if isinstance(outcome, KraftError):
            raise attempts.outcome(outcome)
        if isinstance(outcome, UnansweredError):
            return self._unanswered(leader_id, outcome, was_in_doubt, attempts)
        return self._refused(outcome, was_in_doubt, attempts)

    @staticmethod
    def _unanswered(
        leader_id: ReplicaId | None, error: UnansweredError, was_in_doubt: bool, attempts: _Attempts
    ) -> Proposed | None:
        if not error.may_have_arrived:
            attempts.in_doubt = was_in_doubt
            if error.is_final and not was_in_doubt:
                raise attempts.outcome()
            return None
        attempts.reason = OutcomeUnknownError(
            f"replica {leader_id}, the leader, was asked to append, and then: {error}"
        )
        if not attempts.repeatable:
            raise attempts.reason
        return None

    @staticmethod
    def _refused(answer: Answer, was_in_doubt: bool, attempts: _Attempts) -> Proposed | None:
        error = error_of(answer.error_code, answer.error_message, base_offset=answer.base_offset, epoch=answer.epoch)
        if isinstance(error, OutcomeUnknownError):
            attempts.reason = error
            if not attempts.repeatable:
                raise error
            return None
        attempts.in_doubt = was_in_doubt
        if answer.error_code not in ELSEWHERE and not (attempts.repeatable and isinstance(error, BacklogFullError)):
            raise error
        return None

    def _done(self, answer: Answer) -> Proposed:
        try:
            results = decode_results(answer.results, self._serde)
        except RemoteProtocolError as error:
            text = f"the value at offset {answer.base_offset} is committed, and its result did not come here: {error}"
            raise OutcomeUnknownError(text, base_offset=answer.base_offset, epoch=answer.epoch) from None
        return Proposed(answer.base_offset, answer.last_offset, answer.epoch, results)


def _note_doubt(forwarded: Forwarded, attempts: _Attempts) -> None:
    """Note whether this attempt may have appended the values, and where."""
    attempts.in_doubt |= forwarded.is_in_doubt
    if forwarded.committed is not None:
        offset, epoch = forwarded.committed
        text = f"the value at offset {offset} is committed, but this replica has not applied it yet"
        attempts.reason = OutcomeUnknownError(text, base_offset=offset, epoch=epoch)


def check_values(values: Sequence[bytes]) -> None:
    """Raises: RecordTooLargeError, if a replica that does not lead cannot forward so much at once; ConfigError, if a
    value is empty, for which the leader would refuse the whole group.
    """
    if not all(values):
        raise ConfigError("a value must not be empty: Kafka's readers reject it; nothing was appended")
    size = sum(map(len, values))
    if len(values) > PROPOSED_VALUES or size > PROPOSED_BYTES:
        raise RecordTooLargeError(
            f"{len(values)} values of {size} bytes cannot be forwarded to the leader, nothing was appended: at most "
            f"{PROPOSED_VALUES} values of {PROPOSED_BYTES} bytes go at once; append them on the leader, or in parts"
        )
