"""A follower's reports to its leader, and their times: its endpoints, its wish to vote, its priority.

A voter whose entry is out of date sends UpdateRaftVoter, an observer with auto-join AddRaftVoter; a dead voter of its
own id goes first, after the leader has said three times in a row that it does not fetch (KIP-853, KIP-1186). Both come
once a fetch timeout, and only after a Fetch has gone well.
"""

from __future__ import annotations

from typing import Any, Final

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Follower
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from tools.rules.election_requests import the_partition
from tools.rules.in_force import NEWEST, own_seat
from tools.rules.scene import OTHERS, Scene, Sent
from tools.rules.verdict import SceneRules, error_of, name_of

SILENCES: Final = 3

GOES_ON: Final = (
    ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND,
)  # fmt: skip

OF_MEMBERSHIP: Final = (UpdateRaftVoterRequest, AddRaftVoterRequest, RemoveRaftVoterRequest, DescribeQuorumRequest)
JOINS: Final = (AddRaftVoterRequest, RemoveRaftVoterRequest)


class JoinRules(SceneRules):
    """RC19 to RC23."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._due_ms = 0
        self._is_told = False
        """The leader of a static quorum knows us."""
        self._has_told_priority = False
        self._fetched_ms: int | None = None
        self._silences = 0

    def began(self) -> None:
        """As `SceneRules.began`."""
        if type(self.scene.role) is Follower:
            self._follow()

    def _follow(self) -> None:
        self._due_ms = self.scene.now_ms + self.scene.config.fetch_timeout_ms
        self._is_told = self._has_told_priority = False
        self._fetched_ms, self._silences = None, 0

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        self._look_at(event)
        if type(self.scene.role) is Follower:
            self._rc23_what_was_told_is_remembered(self.scene.role)

    def _rc23_what_was_told_is_remembered(self, role: Follower) -> None:
        said = (
            role.update_due_ms, role.updated_voter, role.told_priority, role.predecessor_fetched_ms,
            role.predecessor_silence,
        )  # fmt: skip
        expected = self._due_ms, self._is_told, self._has_told_priority, self._fetched_ms, self._silences
        if said != expected:
            text = "(next report, endpoints known, priority known, predecessor fetched, silences)"
            raise self.broken("RC23", f"a follower remembers {said}, and must remember {expected} {text}")

    def _look_at(self, event: Any) -> None:
        scene = self.scene
        if type(event) is ev.RequestReceived and type(event.request) is ElectionPriorityRequest:
            self._rc22_a_priority_is_noted(event)
        if type(scene.role) is not Follower:
            return
        if scene.has_new_role:
            self._follow()
        elif scene.answered is not None:
            self._hear(event, scene.answered)
        asked = [request for request in scene.requests if type(request.request) in OF_MEMBERSHIP]
        if not asked:
            if scene.now_ms >= self._due_ms:
                self._not_asked(event)
            elif not scene.awaits(scene.role.leader_id) and (rule := self._to_say()) is not None:
                self.wakes_by(rule, self._due_ms, "asks its leader to be a voter, or tells it where it is,")
            self._rc21_the_priority_is_told(is_possible=True)
            return
        self._rc21_the_priority_is_told(is_possible=False)
        role = scene.role
        if len(asked) > 1 or asked[0].destination != role.leader_id:
            raise self.broken("RC19", f"{[type(one.request).__name__ for one in asked]} are sent at once, or astray")
        if scene.now_ms < self._due_ms or scene.state.connections.failures(role.leader_id):
            text = f"is sent before {self._due_ms} ms, or after a failure, where a Fetch goes first"
            raise self.broken("RC19", f"{type(asked[0].request).__name__} {text}")
        if scene.is_voter:
            self._rc19_the_voter_says_where_it_is(asked[0].request)
        else:
            self._rc20_the_observer_joins(asked[0].request)
        self._due_ms = scene.now_ms + scene.config.fetch_timeout_ms

    # --- when ---------------------------------------------------------------------------------------------------------

    def _may_ask(self) -> bool:
        """Whether the leader may be asked something beside the log: nothing else is under way, nothing has failed."""
        scene, role = self.scene, self.scene.role
        connections = scene.state.connections
        fetches = [one for one in scene.requests if one.destination == role.leader_id]
        is_busy = sum(sent.destination == role.leader_id for sent in scene.sent.values()) > len(fetches)
        is_resting = connections.is_backing_off(role.leader_id, scene.now_ms) or connections.failures(role.leader_id)
        place = role.leader_endpoints.get(scene.config.listener_name.upper())
        return not is_busy and not is_resting and place is not None

    def _is_entitled(self) -> bool:
        state = self.scene.state
        return state.amnesia is None and not state.log.holes

    def _not_asked(self, event: Any) -> None:
        """Nothing is sent although it is time: is there nothing to say?"""
        scene, version, rule = self.scene, self.scene.voters.kraft_version, self._to_say()
        if rule is None or type(event) is ev.ShutdownRequested:
            return
        if not scene.is_voter:
            raise self.broken(rule, "an observer with auto-join does not ask to be a voter")
        if version < 1:
            raise self.broken(rule, "a voter of a static quorum does not tell its leader where it is reached")
        if scene.voters.latest[scene.key.id] != own_seat(scene):
            raise self.broken(rule, "a voter whose entry is out of date does not tell its leader")
        self._due_ms = scene.now_ms + scene.config.fetch_timeout_ms

    def _to_say(self) -> str | None:
        """Return the rule by which the leader is told or asked something when it is time; None: by none."""
        scene = self.scene
        if scene.state.shutdown_deadline_ms is not None or scene.key.directory_id is None or not self._may_ask():
            return None
        if scene.is_voter:
            return "RC19" if self._is_entitled() and not self._is_told else None
        return "RC20" if scene.config.auto_join and scene.voters.kraft_version >= 1 else None

    # --- what ---------------------------------------------------------------------------------------------------------

    def _rc19_the_voter_says_where_it_is(self, request: Any) -> None:
        scene, version = self.scene, self.scene.voters.kraft_version
        if type(request) is not UpdateRaftVoterRequest or not self._is_entitled() or self._is_told:
            raise self.broken("RC19", f"a voter that has nothing to say sends {type(request).__name__}")
        if version >= 1 and scene.voters.latest[scene.key.id] == own_seat(scene):
            raise self.broken("RC19", "a voter whose entry is up to date sends UpdateRaftVoter")
        feature = request.kraft_version_feature
        said = (
            request.current_leader_epoch, *self._named(request),
            feature.min_supported_version, feature.max_supported_version,
        )  # fmt: skip
        expected = scene.state.epoch, *self._own(), 0, NEWEST
        if said != expected:
            raise self.broken("RC19", f"an UpdateRaftVoter says {said}, expected was {expected}")

    def _rc20_the_observer_joins(self, request: Any) -> None:
        scene = self.scene
        if not scene.config.auto_join or scene.voters.kraft_version < 1:
            raise self.broken("RC20", f"an observer that may not join by itself sends {type(request).__name__}")
        known = scene.voters.latest.get(scene.key.id)
        kind = type(request)
        if known is None:
            if kind is not AddRaftVoterRequest or request.ack_when_committed or self._named(request) != self._own():
                raise self.broken("RC20", f"an observer whose id no voter has sends {request}")
            return
        if self._silences < SILENCES:
            if kind is not DescribeQuorumRequest or request.topics[0].topic_name != METADATA_TOPIC:
                raise self.broken(
                    "RC20", f"the voter of our id was silent {self._silences} times, and we send {request}"
                )
            return
        self._silences = 0
        key = ReplicaKey(scene.key.id, known.directory_id or ZERO_UUID)
        if kind is not RemoveRaftVoterRequest or (request.voter_id, request.voter_directory_id) != (
            key.id, key.directory_id,
        ):  # fmt: skip
            raise self.broken("RC20", f"our dead voter is {key}, and we send {request}")

    def _named(self, request: Any) -> tuple[object, ...]:
        places = frozenset((at.name.upper(), at.host, at.port) for at in request.listeners)
        return request.cluster_id, request.voter_id, request.voter_directory_id, places

    def _own(self) -> tuple[object, ...]:
        scene = self.scene
        return scene.state.cluster_id, scene.key.id, scene.key.directory_id or ZERO_UUID, own_seat(scene).places

    # --- what comes back ----------------------------------------------------------------------------------------------

    def _hear(self, event: Any, sent: Sent) -> None:
        kind = type(sent.request)
        if type(event) is ev.RequestFailed:
            if event.failure is ev.Failure.UNSUPPORTED_VERSION:
                self._is_told |= kind is UpdateRaftVoterRequest and self.scene.voters.kraft_version == 0
                self._has_told_priority |= kind is ElectionPriorityRequest
            return
        if type(event) is not ev.ResponseReceived:
            return
        response = event.response
        period_ms = self.scene.config.fetch_timeout_ms
        if kind is UpdateRaftVoterRequest:
            leader = response.current_leader
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                is_taken = leader.leader_epoch <= self.scene.state.epoch
            else:
                is_taken = not response.error_code and leader.leader_epoch == self.scene.state.epoch
                is_taken = is_taken and leader.leader_id in (-1, self.scene.role.leader_id)
            if is_taken:
                self._is_told = self.scene.voters.kraft_version == 0
        elif kind is ElectionPriorityRequest:
            self._has_told_priority |= not response.error_code
        elif kind in JOINS and response.error_code in GOES_ON:
            self._due_ms = self.scene.now_ms + period_ms
        elif kind is DescribeQuorumRequest:
            self._hear_of_predecessor(response)

    def _hear_of_predecessor(self, response: Any) -> None:
        scene = self.scene
        known = scene.voters.latest.get(scene.key.id)
        partition = None if response.error_code else the_partition(response.topics)
        if known is None or partition is None:
            return
        if partition.error_code or partition.leader_epoch != scene.state.epoch:
            return
        self._due_ms = scene.now_ms + scene.config.fetch_timeout_ms
        disks = (known.directory_id or ZERO_UUID, ZERO_UUID)
        rows = [row for row in partition.current_voters if row.replica_id == scene.key.id]
        times = [row.last_fetch_timestamp for row in rows if row.replica_directory_id in disks]
        is_silent = bool(times) and times[0] == self._fetched_ms
        self._silences = self._silences + 1 if is_silent else 0
        self._fetched_ms = times[0] if times else None

    # --- priorities ---------------------------------------------------------------------------------------------------

    def _rc21_the_priority_is_told(self, *, is_possible: bool) -> None:
        """A voter that is wanted as leader says so to each leader that it fetches from, once."""
        scene, role, config = self.scene, self.scene.role, self.scene.config
        lane = OTHERS - 2**31 - role.leader_id
        told = [one for one in scene.requests if type(one.request) is ElectionPriorityRequest]
        if not told and not config.election_priority:
            return
        wants = config.election_priority and config.private_apis and role.has_fetched and not scene.state.disk_full
        wants = wants and not self._has_told_priority and scene.is_voter and self._is_entitled()
        wants = wants and scene.state.machine_failed_ms is None
        if told:
            request = told[0].request
            said = (
                len(told), told[0].destination, request.leader_epoch, request.priority, request.voter_id,
                request.voter_directory_id, request.cluster_id,
            )  # fmt: skip
            expected = (
                1, lane, scene.state.epoch, config.election_priority, scene.key.id,
                scene.key.directory_id or ZERO_UUID, scene.state.cluster_id,
            )  # fmt: skip
            if not wants or said != expected:
                raise self.broken("RC21", f"an election priority is told: {said}, expected was {expected}")
        elif wants and is_possible and not scene.has_new_role and not scene.is_shutting_down:
            place = role.leader_endpoints.get(config.listener_name.upper())
            is_resting = scene.state.connections.is_backing_off(lane, scene.now_ms)
            is_due = place is not None and not scene.awaits(lane) and not is_resting
            if is_due and scene.state.shutdown_deadline_ms is None:
                raise self.broken("RC21", "the leader is not told an election priority")

    def _rc22_a_priority_is_noted(self, event: ev.RequestReceived[Any]) -> None:
        scene, request = self.scene, event.request
        directory_id = None if request.voter_directory_id == ZERO_UUID else request.voter_directory_id
        error = scene.cluster_error(request.cluster_id) or scene.leader_error(request.leader_epoch)
        if not error and not 1 <= request.priority <= 100:
            error = ErrorCode.INVALID_REQUEST
        if not error and not scene.voters.admits(ReplicaKey(request.voter_id, directory_id)):
            error = ErrorCode.VOTER_NOT_FOUND
        answer = scene.responses.get(event.request_id)
        if answer is None or error_of(answer) != error:
            said = "nothing" if answer is None else name_of(error_of(answer))
            raise self.broken("RC22", f"an election priority is answered with {said}, expected was {error.name}")
        if not error and scene.leads_on:
            rival = scene.role.preferred_voters.get(request.voter_id)
            due_ms = scene.now_ms + scene.config.priority_takeover_ms
            if rival is None or (rival.priority, rival.due_ms) != (request.priority, due_ms):
                raise self.broken("RC22", f"a voter of priority {request.priority} is noted as {rival}")
