"""The side that asks: appends here or through the leader, until the deadline, and says exactly what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import attrs

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
from kraftlib.proposals.groups import Answer, Forwarded, Groups
from kraftlib.proposals.outcomes import ELSEWHERE, decode_results, error_of
from kraftlib.proposals.ports import LocalReplica, Proposed, UnansweredError
from kraftlib.records.serde import RecordSerde
from kraftlib.types import ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, PROPOSED_VALUES

PAUSE_S: Final = 0.02
"""Pause before the leader is looked for again, if no other leader becomes known meanwhile."""


@attrs.define
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
        deadline = self._loop.time() + timeout_ms / 1_000
        attempts = _Attempts(self._replica, deadline, timeout_ms, repeatable)
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    changed = self._leader_changed
                    proposed = await self._attempt(values, level, attempts)
                    if proposed is not None:
                        return proposed
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

    async def _attempt(self, values: Sequence[bytes], level: int, attempts: _Attempts) -> Proposed | None:
        """Try once; None, if a later attempt may do better."""
        if not self._replica.follows(level):
            was_in_doubt = attempts.in_doubt
            try:
                appending = self._replica.append(values, level)
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
        return await self._forward(leader.leader_id, values, level, attempts)

    async def _forward(
        self, leader_id: ReplicaId | None, values: Sequence[bytes], level: int, attempts: _Attempts
    ) -> Proposed | None:
        check_values(values)
        forwarded = self._groups.forward(values, level, deadline=attempts.deadline, repeatable=attempts.repeatable)
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
