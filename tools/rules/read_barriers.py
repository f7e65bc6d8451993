"""The offset from which a read misses nothing: the read index of the Raft thesis (6.4), as decision 0008 has it.

A leader passes a read once a majority of the voters has answered a BeginQuorumEpoch that left after the read came, and
then from the high watermark of that time, which it knows only once a record of its own epoch is committed.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Follower, Leader
from kraftlib.types import Offset, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest, ReadBarrierResponse
from tools.rules.election_requests import the_partition
from tools.rules.scene import OTHERS, Heard, Scene
from tools.rules.verdict import SceneRules, name_of

LONGEST_MS: Final = 600_000

COMING: Final = (ev.ReadBarrierRequested, ev.RequestReceived)
"""Events that may bring a read."""


@attrs.define
class Waiting:
    """A read that waits. `asked` is its round, or 1 while the leader is asked for it."""

    number: int
    deadline_ms: int
    is_remote: bool
    asked: int = 0


@attrs.define
class Outcome:
    """The outcome of a read in one event."""

    offset: Offset | None
    error: int


class ReadRules(SceneRules):
    """RC10 to RC13."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._reads: list[Waiting] = []
        self._rounds = self._rounds_before = 0
        self._round: tuple[int, Offset] | None = None
        self._left: dict[int, int] = {}
        """Of each BeginQuorumEpoch: the number of rounds that had begun when it left."""
        self._confirmed: dict[ReplicaKey, int] = {}
        """The newest round that each voter has confirmed."""
        self._unnamed: set[ReplicaId] = set()
        """The voters whose directories the log does not name."""
        self._introduction_due_ms = 0

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        scene = self.scene
        kind = type(event)
        outcomes = self._outcomes() if self._reads or kind in COMING else {}
        asked = None if scene.answered is None else type(scene.answered.request)
        if asked is ReadBarrierRequest:
            self._leader_has_answered(event, outcomes)
        if scene.role is not scene.role_before:
            self._forget()
        if self._unnamed or scene.voters_changed:
            self._follow_voters()
        came: Waiting | None = None
        if kind is ev.ReadBarrierRequested:
            came = Waiting(event.request, scene.now_ms + event.timeout_ms, False)
        elif kind is ev.RequestReceived and type(event.request) is ReadBarrierRequest:
            came = self._rc10_who_may_ask(event)
        elif kind is ev.ResponseReceived and asked is BeginQuorumEpochRequest:
            self._confirm(event)
        if came is not None:
            self._reads.append(came)
        if self._reads:
            self._judge(outcomes)
        if type(scene.role) is Leader:
            self._note_begins()

    # --- who asks -----------------------------------------------------------------------------------------------------

    def _rc10_who_may_ask(self, event: ev.RequestReceived[Any]) -> Waiting | None:
        scene, request = self.scene, event.request
        error = scene.cluster_error(request.cluster_id) or scene.leader_error()
        if not error:
            timeout_ms = min(max(0, request.timeout_ms), LONGEST_MS)
            return Waiting(event.request_id, scene.now_ms + timeout_ms, True)
        answer = scene.responses.get(event.request_id)
        if answer is None or answer.error_code != error:
            raise self.broken("RC10", f"a ReadBarrier is answered with {answer}, expected was {error.name}")
        return None

    def _outcomes(self) -> dict[int, Outcome]:
        """Return what became of reads, by their numbers; those of a caller are negative."""
        outcomes: dict[int, Outcome] = {}
        action: Any
        for action in self.scene.actions:
            kind = type(action)
            if kind is act.PassReadBarrier:
                outcomes[-1 - action.request] = Outcome(action.offset, 0)
            elif kind is act.RefuseReadBarrier:
                outcomes[-1 - action.request] = Outcome(None, action.error)
            elif kind is act.SendResponse:
                response = action.response
                if type(response) is ReadBarrierResponse:
                    error = response.error_code
                    self._rc10_the_epoch_is_told(response)
                    outcomes[action.request_id] = Outcome(None if error else response.offset, error)
        return outcomes

    def _rc10_the_epoch_is_told(self, response: ReadBarrierResponse) -> None:
        scene = self.scene
        if response.leader_epoch not in (scene.epoch_before, scene.state.epoch):
            raise self.broken("RC10", f"a read is answered with {response}, in epoch {scene.state.epoch}")

    # --- what becomes of it -------------------------------------------------------------------------------------------

    def _judge(self, outcomes: dict[int, Outcome]) -> None:
        role = self.scene.role
        self._rc11_time_is_up(outcomes)
        if type(role) is Leader:
            self._advance_round(outcomes)
        else:
            for read in [read for read in self._reads if read.is_remote]:
                self._refused(read, outcomes, ErrorCode.NOT_LEADER_OR_FOLLOWER, "this replica does not lead", "RC10")
        for read in self._reads:
            if (outcome := outcomes.get(_number(read))) is not None:
                text = f"read {read.number} gets {_shown(outcome)}, and must wait"
                raise self.broken("RC12", f"{text}: round {self._round}, confirmed {self._confirmed}")
        if self._reads:
            self.wakes_by("RC11", min(read.deadline_ms for read in self._reads), "a read is over")
            known = sorted(read.deadline_ms for read in self.scene.state.reads)
            if known != (until := sorted(read.deadline_ms for read in self._reads)):
                raise self.broken("RC11", f"reads wait until {known}, and must until {until}")
        if type(role) is Leader:
            self._rc13_voters_are_asked()
        elif type(role) is Follower:
            self._rc13_leader_is_asked(role)

    def _rc11_time_is_up(self, outcomes: dict[int, Outcome]) -> None:
        for read in [read for read in self._reads if read.deadline_ms <= self.scene.now_ms]:
            self._refused(read, outcomes, ErrorCode.REQUEST_TIMED_OUT, "its time is up", "RC11")

    def _refused(self, read: Waiting, outcomes: dict[int, Outcome], error: ErrorCode, why: str, rule: str) -> None:
        outcome = outcomes.get(_number(read))
        if outcome is None or outcome.error != error:
            raise self.broken(rule, f"read {read.number} gets {_shown(outcome)}, expected was {error.name}: {why}")
        self._reads.remove(read)

    def _passed(self, read: Waiting, outcomes: dict[int, Outcome], offset: Offset) -> None:
        outcome = outcomes.get(_number(read))
        if outcome is None or outcome.error or outcome.offset != offset:
            text = f"read {read.number} gets {_shown(outcome)}, expected was offset {offset}"
            raise self.broken("RC12", f"{text}: confirmed {self._confirmed}, rounds {self._rounds}")
        self._reads.remove(read)

    def _leader_has_answered(self, event: Any, outcomes: dict[int, Outcome]) -> None:
        asked = [read for read in self._reads if read.asked]
        if type(event) is ev.ResponseReceived:
            response: Any = event.response
            if not response.error_code and response.offset >= 0:
                for read in asked:
                    self._passed(read, outcomes, response.offset)
                return
        elif type(event) is ev.RequestFailed and event.failure is ev.Failure.UNSUPPORTED_VERSION:
            for read in asked:
                self._refused(
                    read, outcomes, ErrorCode.UNSUPPORTED_VERSION, "the leader knows no such question", "RC11"
                )
            return
        for read in asked:
            read.asked = 0

    def _advance_round(self, outcomes: dict[int, Outcome]) -> None:
        while self._reads:
            if self._round is None:
                known = self.scene.state.high_watermark
                if known is None:
                    return
                self._rounds += 1
                self._round = self._rounds, known
                for read in self._reads:
                    read.asked = self._rounds
            number, offset = self._round
            done = [read for read in self._reads if 0 < read.asked <= number]
            if self._confirmations(number) < self.scene.majority:
                return
            self._round = None
            for read in done:
                self._passed(read, outcomes, offset)

    def _confirmations(self, number: int) -> int:
        """Return how many voters have confirmed this round, this replica among them."""
        scene = self.scene
        others = [voter_id for voter_id in scene.voters.latest if voter_id != scene.key.id]
        return int(scene.is_voter) + sum(self._confirmed_round(voter_id) >= number for voter_id in others)

    def _confirmed_round(self, voter_id: ReplicaId) -> int:
        """Return the last round that a voter has confirmed."""
        return self._confirmed.get(self.scene.voter_key(voter_id), 0)

    def _follow_voters(self) -> None:
        """Rounds that a voter has confirmed count on when the log names its directory, not for a later directory."""
        keys = [self.scene.voter_key(voter_id) for voter_id in self.scene.voters.latest]
        for key in keys:
            if key.directory_id is not None and key.id in self._unnamed:
                unnamed = self._confirmed.pop(ReplicaKey(key.id), 0)
                self._confirmed[key] = max(unnamed, self._confirmed.get(key, 0))
        self._unnamed = {key.id for key in keys if key.directory_id is None}

    # --- RC13: voters are asked ---------------------------------------------------------------------------------------

    def _rc13_voters_are_asked(self) -> None:
        scene = self.scene
        if self._round is None or not self._reads:
            return
        for voter_id, seat in scene.voters.latest.items():
            if voter_id == scene.key.id or self._confirmed_round(voter_id) >= self._round[0]:
                continue
            place = scene.place_of(seat.places)
            if place is not None and not scene.awaits(voter_id) and not self._rests(voter_id):
                raise self.broken("RC13", f"reads wait for round {self._round[0]}, and voter {voter_id} is not asked")

    def _rc13_leader_is_asked(self, role: Follower) -> None:
        scene = self.scene
        asks = [request for request in scene.requests if type(request.request) is ReadBarrierRequest]
        lane = OTHERS - role.leader_id
        if not asks:
            place = role.leader_endpoints.get(scene.config.listener_name.upper())
            waits = self._reads and place is not None and not scene.awaits(lane) and not self._rests(lane)
            if waits:
                raise self.broken("RC13", f"reads wait, and leader {role.leader_id} is not asked")
            return
        if len(asks) > 1 or asks[0].destination != lane or not self._reads:
            raise self.broken("RC13", f"ReadBarriers go to {[ask.destination for ask in asks]}, expected is {lane}")
        longest_ms = max(read.deadline_ms for read in self._reads) - scene.now_ms
        request = asks[0].request
        said = request.cluster_id, request.replica_id, request.timeout_ms
        expected = scene.state.cluster_id, scene.key.id, min(longest_ms, scene.config.request_timeout_ms)
        if said != expected:
            raise self.broken("RC13", f"a ReadBarrier says {said}, expected was {expected}")
        for read in self._reads:
            read.asked = 1

    def _rests(self, destination: int) -> bool:
        return self.scene.state.connections.is_backing_off(destination, self.scene.now_ms)

    # --- confirmations ------------------------------------------------------------------------------------------------

    def _note_begins(self) -> None:
        """Take note of each BeginQuorumEpoch. The periodic ones leave before a new round begins in the same event."""
        scene = self.scene
        half_ms = scene.config.fetch_timeout_ms // 2
        is_periodic = scene.now_ms >= self._introduction_due_ms
        if is_periodic:
            self._introduction_due_ms = scene.now_ms + half_ms
        for request in scene.requests:
            if type(request.request) is BeginQuorumEpochRequest:
                fetched_ms = scene.heard.get(scene.voter_key(request.destination), Heard()).fetched_ms
                is_silent = fetched_ms is None or scene.now_ms - fetched_ms >= half_ms
                left_first = is_periodic and is_silent
                self._left[request.correlation_id] = self._rounds_before if left_first else self._rounds
        self._rounds_before = self._rounds

    def _confirm(self, event: ev.ResponseReceived[Any]) -> None:
        """A voter knows of no newer epoch, some time after the question left."""
        scene, asked = self.scene, self.scene.answered
        rounds = self._left.pop(event.correlation_id, 0)
        response = event.response
        partition = None if response.error_code else the_partition(response.topics)
        if asked is None or partition is None or not scene.leads_on:
            return
        says = partition.error_code, partition.leader_epoch
        if says != (0, scene.state.epoch) or partition.leader_id not in (-1, scene.key.id):
            return
        if asked.destination in scene.voters.latest:
            key = scene.voter_key(asked.destination)
            self._confirmed[key] = max(rounds, self._confirmed.get(key, 0))

    def _forget(self) -> None:
        """With another role every question is asked anew."""
        self._rounds = self._rounds_before = 0
        self._round, self._left, self._confirmed = None, {}, {}
        self._introduction_due_ms = self.scene.now_ms
        for read in self._reads:
            read.asked = 0


def _number(read: Waiting) -> int:
    return read.number if read.is_remote else -1 - read.number


def _shown(outcome: Outcome | None) -> str:
    if outcome is None:
        return "no answer"
    return name_of(outcome.error) if outcome.error else f"offset {outcome.offset}"
