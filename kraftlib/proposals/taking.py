"""The leader's side: takes Propose of other replicas, appends, and answers once the values have come far enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kraftlib.codec.declarations import Message
from kraftlib.errors import InvariantError, OutcomeUnknownError
from kraftlib.proposals.outcomes import code_of, encode_results, text_of
from kraftlib.proposals.ports import APPLIED, LocalReplica
from kraftlib.records.serde import RecordSerde
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse


class ProposalServer:
    """Answers Propose. `respond` sends an answer; no answer takes longer than `timeout_max_ms`.

    An answer in time keeps the sender from taking a quorum without a majority for a dead connection.
    """

    def __init__(
        self,
        replica: LocalReplica,
        *,
        respond: Callable[[int, Message | None], None],
        serde: RecordSerde[Any],
        has_machine: bool,
        timeout_max_ms: int,
    ) -> None:
        self._replica: Final = replica
        self._respond: Final = respond
        self._serde: Final = serde
        self._has_machine: Final = has_machine
        self._timeout_max_ms: Final = timeout_max_ms
        self._loop: Final = asyncio.get_running_loop()

    def take(self, request_id: int, request: ProposeRequest, _: object) -> None:
        """Append the values of a request."""
        if (refusal := self._refusal(request)) is not None:
            self._respond(request_id, refusal)
            return
        if self._replica.follows(request.level):
            self._respond(request_id, self._failed(self._replica.not_leader(), nothing_appended=True))
            return
        try:
            appending = self._replica.append(request.values, request.level)
        except Exception as error:  # noqa: BLE001 - it is the sender's; nothing was appended
            self._respond(request_id, self._failed(error, nothing_appended=True))
            return
        timeout_ms = min(max(request.timeout_ms, 0), self._timeout_max_ms)
        timer = self._loop.call_later(timeout_ms / 1_000, self._too_late, appending, timeout_ms)

        def done(future: asyncio.Future[Any]) -> None:
            timer.cancel()
            self._respond(request_id, self._answer(future))

        appending.add_done_callback(done)

    def _refusal(self, request: ProposeRequest) -> ProposeResponse | None:
        ours, theirs = self._replica.cluster_id, request.cluster_id
        if theirs != ours and None not in (ours, theirs):
            text = f"this replica is of cluster {ours}"
            return ProposeResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=text)
        if not 0 <= request.level <= APPLIED:
            text = f"level={request.level} must be 0 to {APPLIED}"
            return ProposeResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
        if request.level == APPLIED and not self._has_machine:
            text = "the leader has no state machine that could have results"
            return ProposeResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
        return None

    @staticmethod
    def _too_late(appending: asyncio.Future[Any], timeout_ms: int) -> None:
        if not appending.done():
            appending.set_exception(
                OutcomeUnknownError(f"the values were appended, and not committed in {timeout_ms} ms")
            )

    def _answer(self, future: asyncio.Future[Any]) -> ProposeResponse:
        if future.cancelled():
            raise InvariantError("the append of another replica is never cancelled")
        error = future.exception()
        if error is not None:
            return self._failed(error, nothing_appended=False)
        base_offset, last_offset, epoch, results = future.result()
        return ProposeResponse(
            base_offset=base_offset,
            last_offset=last_offset,
            epoch=epoch,
            results=encode_results(results, self._serde),
        )

    def _failed(self, error: BaseException, *, nothing_appended: bool) -> ProposeResponse:
        code = code_of(error)
        if nothing_appended and code is ErrorCode.UNKNOWN_SERVER_ERROR:
            code = ErrorCode.BROKER_NOT_AVAILABLE  # this replica has failed, and the next leader may do it
        leader, endpoint = self._replica.leader()
        return ProposeResponse(
            error_code=code,
            error_message=text_of(error),
            current_leader=ProposeResponse.LeaderIdAndEpoch(
                leader_id=-1 if leader.leader_id is None else leader.leader_id,
                leader_epoch=leader.epoch,
                host="" if endpoint is None else endpoint.host,
                port=0 if endpoint is None else endpoint.port,
            ),
            base_offset=getattr(error, "base_offset", -1),
            epoch=getattr(error, "epoch", -1),
        )
