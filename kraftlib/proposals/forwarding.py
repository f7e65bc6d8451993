"""The side that asks: appends here or through the leader, until the deadline, and says exactly what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import attrs

from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RemoteProtocolError,
)
from kraftlib.proposals.outcomes import ELSEWHERE, decode_results, error_of
from kraftlib.proposals.ports import APPLIED, LocalReplica, Proposed, UnansweredError
from kraftlib.records.serde import RecordSerde
from kraftlib.types import Endpoint, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, PROPOSED_VALUES
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse

PAUSE_S: Final = 0.02
"""Pause before the leader is looked for again, if no other leader becomes known meanwhile."""


@attrs.define
class _Attempts:
    """The attempts at one append so far."""

    deadline: float
    """In s of the loop."""
    timeout_ms: int
    repeatable: bool
    in_doubt: bool = False
    """Whether one of them may have appended the values."""
    reason: KraftError | None = None
    """The last error of an attempt."""

    def outcome(self, end: object = None) -> KraftError:
        """Return the error at the deadline, or at another `end` of attempts that are in doubt."""
        because = "" if self.reason is None else f": {self.reason}"
        if self.in_doubt:
            when = f"after {self.timeout_ms} ms" if end is None else f"({end})"
            text = f"the append was sent, and its outcome is not known {when}{because}"
            place = self.reason if isinstance(self.reason, OutcomeUnknownError) else OutcomeUnknownError("")
            return OutcomeUnknownError(text, base_offset=place.base_offset, epoch=place.epoch)
        if self.reason is not None:
            return self.reason
        return ClosedError(f"nothing was appended within {self.timeout_ms} ms")


class Proposals:
    """Appends of this replica's application, wherever the leader is. All on the loop of the replica."""

    def __init__(self, replica: LocalReplica, *, serde: RecordSerde[Any]) -> None:
        self._replica: Final = replica
        self._serde: Final = serde
        self._loop: Final = asyncio.get_running_loop()
        self._leader_changed: asyncio.Future[None] = self._loop.create_future()

    def leader_known(self) -> None:
        """Another leader became known, or none is known any more: attempts that wait go on."""
        changed, self._leader_changed = self._leader_changed, self._loop.create_future()
        changed.set_result(None)

    async def propose(
        self, values: Sequence[bytes], *, level: int, timeout_ms: int, repeatable: bool = False
    ) -> Proposed:
        """Append `values` atomically through whichever replica leads; return when they have come to `level`.

        `repeatable`: the state machine recognises a repetition, so values are proposed again after an unknown outcome.

        Raises, and then nothing was appended: NotLeaderError, if no leader took them within `timeout_ms`;
        BacklogFullError, RecordTooLargeError, ClosedError, ConfigError; ReplicaFailedError, if this replica has stopped
        itself. Raises OutcomeUnknownError, if an attempt may have appended them, whatever became of the later ones.
        """
        attempts = _Attempts(
            deadline=self._loop.time() + timeout_ms / 1_000, timeout_ms=timeout_ms, repeatable=repeatable
        )
        try:
            async with asyncio.timeout_at(attempts.deadline):
                while True:
                    changed = self._leader_changed
                    proposed = await self._attempt(values, level, attempts)
                    if proposed is not None:
                        return proposed
                    await asyncio.wait((changed,), timeout=PAUSE_S)
        except TimeoutError:
            raise attempts.outcome() from None
        except asyncio.CancelledError:
            # By this replica, which ends; or by the caller, who does not want to know.
            if attempts.in_doubt and self._replica.has_ended:
                raise attempts.outcome("this replica ended meanwhile") from None
            raise
        except KraftError as error:
            if not attempts.in_doubt or isinstance(error, OutcomeUnknownError):
                raise
            raise attempts.outcome(error) from error

    async def _attempt(self, values: Sequence[bytes], level: int, attempts: _Attempts) -> Proposed | None:
        """Try once; None, if a later attempt may do better."""
        was_in_doubt = attempts.in_doubt
        try:
            appending = self._replica.append(values, level)
            attempts.in_doubt = True
            return Proposed(*await appending)
        except NotLeaderError as error:  # also from `appending`: what was not written was not appended
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
        return await self._forward(leader.leader_id, endpoint, values, level, attempts)

    async def _forward(
        self, leader_id: ReplicaId, endpoint: Endpoint, values: Sequence[bytes], level: int, attempts: _Attempts
    ) -> Proposed | None:
        check_size(values)
        left_ms = max(0, round((attempts.deadline - self._loop.time()) * 1_000))
        request = ProposeRequest(
            cluster_id=self._replica.cluster_id, timeout_ms=left_ms, level=level, values=tuple(values)
        )
        was_in_doubt, attempts.in_doubt = attempts.in_doubt, True
        try:
            answer = await self._answer(self._replica.ask(leader_id, endpoint, request), attempts)
        except UnansweredError as error:
            return self._unanswered(leader_id, error, was_in_doubt, attempts)
        if answer is None:
            return None
        if answer.error_code != ErrorCode.NONE:
            return self._refused(answer, was_in_doubt, attempts)
        return await self._done(answer, level, attempts)

    async def _answer(self, asking: asyncio.Future[Any], attempts: _Attempts) -> ProposeResponse | None:
        """Return the answer; None, if another leader became known before and the values may be proposed to it."""
        if attempts.repeatable:
            try:
                await asyncio.wait((asking, self._leader_changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waits = not asking.done() and asking.cancel()
                if asking.done() and not asking.cancelled():
                    asking.exception()  # nobody else looks at it, if the caller leaves in the turn of the answer
            if waits:
                return None
        answer: ProposeResponse = await asking
        return answer

    @staticmethod
    def _unanswered(
        leader_id: ReplicaId, error: UnansweredError, was_in_doubt: bool, attempts: _Attempts
    ) -> Proposed | None:
        if not error.may_have_arrived:
            attempts.in_doubt = was_in_doubt
            if error.is_final and attempts.reason is not None and not was_in_doubt:
                raise attempts.reason
            return None
        attempts.reason = OutcomeUnknownError(
            f"replica {leader_id}, the leader, was asked to append, and then: {error}"
        )
        if not attempts.repeatable:
            raise attempts.reason
        return None

    @staticmethod
    def _refused(answer: ProposeResponse, was_in_doubt: bool, attempts: _Attempts) -> Proposed | None:
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

    async def _done(self, answer: ProposeResponse, level: int, attempts: _Attempts) -> Proposed:
        place = {"base_offset": answer.base_offset, "epoch": answer.epoch}
        try:
            results = decode_results(answer.results, self._serde)
        except RemoteProtocolError as error:
            text = f"the value at offset {answer.base_offset} is committed, and its result did not come here: {error}"
            raise OutcomeUnknownError(text, **place) from None
        if level == APPLIED:
            attempts.reason = OutcomeUnknownError(
                f"the value at offset {answer.base_offset} is committed, but this replica has not applied it yet",
                **place,
            )
            await self._replica.applied(answer.last_offset, answer.epoch)
        return Proposed(answer.base_offset, answer.last_offset, answer.epoch, results)


def check_size(values: Sequence[bytes]) -> None:
    """Raises: RecordTooLargeError, if a replica that does not lead cannot forward so much at once."""
    size = sum(map(len, values))
    if len(values) > PROPOSED_VALUES or size > PROPOSED_BYTES:
        raise RecordTooLargeError(
            f"{len(values)} values of {size} bytes cannot be forwarded to the leader, nothing was appended: at most "
            f"{PROPOSED_VALUES} values of {PROPOSED_BYTES} bytes go at once; append them on the leader, or in parts"
        )
