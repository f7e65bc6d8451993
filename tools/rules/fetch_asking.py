"""The Fetch of a follower: its contents, and its time (KIP-595, Fetch; KIP-853; KIP-1166).

| id | rule |
|---|---|
| RF20 | a Fetch leaves only where all that the log has is durable: no flush, truncation or repair is under way |
| RF21 | a Fetch asks from the end of the log, or for what is missing in it, with the epoch before and what it knows |
| RF22 | it has no replica id exactly if it must acknowledge nothing |
| RF23 | a follower that may ask its leader does; one without a leader asks one other replica at a time |
"""

from __future__ import annotations

import struct
from typing import Any

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Unattached
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import ZERO_UUID, Endpoint, Epoch, OffsetAndEpoch, ReplicaId
from kraftlib.wire.messages.fetch import FetchRequest
from tools.rules.positions import end_of
from tools.rules.repair import Repair
from tools.rules.scene import OTHERS
from tools.rules.upstreams import MARK, awake, is_marked, source

DOUBTS_AFTER = 2
"""A leader that has failed so often in a row may not be one any more."""


@attrs.define
class Question:
    """The contents of a Fetch to the leader."""

    leader_id: ReplicaId
    epoch: Epoch
    position: OffsetAndEpoch
    log_version: int
    is_anonymous: bool
    fills: bool


class Asking:
    """The Fetches of one replica, in one life."""

    def __init__(self, core: Replica, repair: Repair) -> None:
        self.state = core.state
        self.repair = repair
        self.is_truncating = False
        """Where the log ends is not known yet."""

    def question(self, role: Follower) -> Question:
        """Return what a Fetch of the leader asks now."""
        state = self.state
        filled = self.repair.now(state.epoch) if state.log.holes else None
        return Question(
            leader_id=role.leader_id,
            epoch=state.epoch,
            position=end_of(state.log) if filled is None else filled.position,
            log_version=state.log.log_version,
            is_anonymous=state.amnesia is not None or (bool(state.log.holes) and filled is None),
            fills=filled is not None,
        )

    def is_durable(self) -> bool:
        """Whether the disk has done all that a Fetch vouches for."""
        state = self.state
        filled = self.repair.now(state.epoch)
        is_writing = filled is not None and filled.is_writing
        return state.log.flushed_offset == state.log.end_offset and not self.is_truncating and not is_writing

    def look_at_fetch(self, action: act.SendRequest[Any]) -> Question | None:
        """RF20 to RF23: return what a Fetch asks the leader; None, if it only asks who that is."""
        state, request = self.state, action.request
        role = state.role_state
        question = None
        if isinstance(role, Follower) and (action.destination == role.leader_id or is_marked(request)):
            question = self.question(role)
        if not self.is_durable():
            text = (
                f"a Fetch to {action.destination} leaves, {state.log.flushed_offset} of {state.log.end_offset} flushed"
            )
            raise BrokenRuleError("RF20", f"{text}, truncating: {self.is_truncating}")
        partition = request.topics[0].partitions[0]
        position = question.position if question is not None else end_of(state.log)
        is_anonymous = question is None or question.is_anonymous
        name = (-1, ZERO_UUID) if is_anonymous else (state.key.id, state.key.directory_id or ZERO_UUID)
        if (request.replica_state.replica_id, partition.replica_directory_id) != name or request.replica_id >= 0:
            raise BrokenRuleError("RF22", f"a Fetch from {position} is in the name of {request.replica_state}: {name}")
        known = -1 if state.high_watermark is None else state.high_watermark
        wanted = (position.offset, position.epoch, state.epoch, known, state.cluster_id)
        asks = (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch)
        theirs = (*asks, partition.high_watermark, request.cluster_id)
        if theirs != wanted:
            raise BrokenRuleError("RF21", f"a Fetch to {action.destination} asks {theirs}, must ask {wanted}")
        if (request.max_wait_ms, request.max_bytes) != self._limits(question):
            limits = f"{request.max_bytes} bytes within {request.max_wait_ms} ms"
            raise BrokenRuleError(
                "RF21", f"a Fetch to {action.destination} asks for {limits}: {self._limits(question)}"
            )
        self._look_at_introduction(request, role)
        if question is None and (action.destination, action.endpoint) not in self._servers():
            self._look_at_stranger(action)
        return question

    def _look_at_stranger(self, action: act.SendRequest[Any]) -> None:
        """While its vote is forgotten, a replica also asks the other voters in which epoch they are."""
        state = self.state
        voter = state.voters.get(action.destination)
        if state.amnesia is None or (voter is not None and action.endpoint not in voter.endpoints.values()):
            servers = self._servers()
            raise BrokenRuleError("RF23", f"{action.destination} at {action.endpoint} is asked who leads: {servers}")

    def _limits(self, question: Question | None) -> tuple[int, int]:
        """Return how long an answer may be waited for, and how large it may be."""
        state = self.state
        seeks_end = state.amnesia is not None and state.amnesia.leader_epoch != state.epoch
        begins_repair = bool(state.log.holes) and question is not None and not question.fills
        at_once = question is None or seeks_end or begins_repair
        limits = [state.config.fetch_max_bytes]
        if state.config.disk_reserve_bytes:
            limits.append(state.config.disk_reserve_bytes // 2)
        max_bytes = 1 if state.disk_full else max(min(limits), 2)
        return 0 if at_once else state.config.fetch_max_wait_ms, max_bytes

    def _look_at_introduction(self, request: FetchRequest, role: object) -> None:
        state = self.state
        said = dict(request.unknown_tagged_fields)
        is_known = isinstance(role, Follower) and role.has_fetched
        ids = sorted(voter.key.id for voter in state.voters) if state.log.voters.latest_offset is None else []
        wanted = {} if is_known else {10_000: struct.pack(f">{len(ids)}i", *ids)}
        if is_marked(request):  # where it may be marked is RF43's matter
            wanted = {MARK: b""}
        if said != wanted:
            raise BrokenRuleError("RF21", f"a Fetch introduces itself with {said}, must with {wanted}")

    def look_at_silence(self, role: Follower | Unattached) -> None:
        """RF23: a follower that may send a Fetch does."""
        state = self.state
        connections = state.connections
        if isinstance(role, Follower):
            upstream = source(state)
            asked = role.leader_id if upstream is None else upstream
            is_ready = connections.is_ready(asked, state.now_ms) and role.download is None
            has_place = upstream is not None or state.config.listener_name.upper() in state.leader_endpoints
            if is_ready and has_place and self.is_durable():
                raise BrokenRuleError("RF23", f"{asked} is not asked, from {end_of(state.log)}")
            if connections.failures(role.leader_id) < DOUBTS_AFTER:
                return
        is_asking = any(request.destination > OTHERS for request in connections.requests.values())
        if is_asking or not self.is_durable():
            return
        silent = [number for number, _ in self._servers() if connections.is_ready(number, state.now_ms)]
        if silent:
            raise BrokenRuleError("RF23", f"no one is asked who leads, though {silent} could be")

    def _servers(self) -> list[tuple[int, Endpoint]]:
        """Return whom to ask for the leader, by number: upstreams, the configured servers, else the voters."""
        state = self.state
        listener = state.config.listener_name.upper()
        known = {
            voter.endpoints[listener]: voter.key.id
            for voter in state.voters
            if voter.key.id != state.key.id and listener in voter.endpoints
        }
        leader_id, place = state.leader_id, state.leader_endpoints.get(listener)
        if leader_id not in (None, state.key.id) and place is not None:
            known = {at: number for at, number in known.items() if number != leader_id} | {place: leader_id}
        servers = [(known.get(at, -2 - place), at) for place, at in enumerate(state.config.bootstrap_servers)]
        if not servers:
            servers = [(number, at) for at, number in known.items()]
        follows = leader_id if isinstance(state.role_state, Follower) else None
        own = state.endpoints.get(listener)
        return [*awake(state), *((number, at) for number, at in servers if number != follows and at != own)]
