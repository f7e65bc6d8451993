"""Requests from elsewhere: of another cluster, with another list of static voters, for another replica.

Each is refused before anything of it is believed, counted, and told what is here (reliability: no mistake is silent).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from kraftlib.consensus import events as ev
from kraftlib.consensus.state import WARNINGS_MAX
from kraftlib.types import ZERO_UUID, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.rules.election_requests import the_partition
from tools.rules.scene import Scene
from tools.rules.upstreams import is_marked
from tools.rules.verdict import SceneRules, name_of

VOTERS_TAG: Final = 10_000
DETAIL_TAG: Final = 10_001

AMONG_REPLICAS: Final = (
    VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest,
)  # fmt: skip
INTRODUCED: Final = (VoteRequest, BeginQuorumEpochRequest)

REASONS: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "another cluster",
    ErrorCode.INCONSISTENT_VOTER_SET: "another list of voters",
}
SPEAKS_IN_ITS_PARTITIONS: Final[Mapping[type, str]] = {
    VoteRequest: "replica_id", BeginQuorumEpochRequest: "leader_id", EndQuorumEpochRequest: "leader_id",
}  # fmt: skip
SPEAKS: Final[Mapping[type, str]] = {
    FetchSnapshotRequest: "replica_id", ReadBarrierRequest: "replica_id", SnapshotHashRequest: "replica_id",
    StateDigestRequest: "replica_id", UpdateRaftVoterRequest: "voter_id", ElectionPriorityRequest: "voter_id",
}  # fmt: skip
"""Where a request says as which replica it speaks."""

MISDIRECTED: Final = "meant for another replica"
NOT_THE_ONE_MEANT: Final = "not the replica that was meant"
OUR_OWN_ID: Final = "our own id"


class ForeignRules(SceneRules):
    """RC16 to RC18 and RC24."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counts: dict[str, int] = {}
        """The count of each mistake before this event."""

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        if type(event) is ev.RequestReceived:
            self._rc16_who_is_refused(event)
        elif type(event) is ev.ResponseReceived:
            self._rc17_a_refusal_is_counted(event)
        for sent in self.scene.requests:
            self._rc18_what_we_say_of_ourselves(sent.request)
        if self._counts != self.scene.state.refused:
            self._counts = dict(self.scene.state.refused)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _rc16_who_is_refused(self, event: ev.RequestReceived[Any]) -> None:
        scene, request = self.scene, event.request
        cluster_id = getattr(request, "cluster_id", None)
        if scene.config.strict and type(request) in AMONG_REPLICAS and self._is_refused_strictly(request):
            if event.request_id not in scene.responses or scene.responses[event.request_id] is not None:
                raise self.broken("RC16", f"strict, and {type(request).__name__} is not closed without an answer")
            return
        ids = self._static_ids()
        said = tagged(request, VOTERS_TAG)
        is_introduced = type(request) in INTRODUCED
        if error := scene.cluster_error(cluster_id):
            self._refused(event, error, f"cluster {scene.state.cluster_id!r}")
            return
        if is_introduced and self._is_misdirected(request):
            self._counted(MISDIRECTED, type(request).__name__, sender_of(request))
        elif scene.state.refused.get(MISDIRECTED, 0) > self._counts.get(MISDIRECTED, 0):
            raise self.broken("RC16", f"{type(request).__name__}: {MISDIRECTED!r} is counted, and it was meant for us")
        if said and ids and said != struct.pack(f">{len(ids)}i", *ids):
            text = "{" + ", ".join(map(str, ids)) + "}"
            self._refused(event, ErrorCode.INCONSISTENT_VOTER_SET, f"voters {text}")
            return
        answer = scene.responses.get(event.request_id)
        error_code = getattr(answer, "error_code", 0)
        if error_code in REASONS:
            text = f"{type(request).__name__} of our cluster and of voters {said!r} is refused with"
            raise self.broken("RC16", f"{text} {name_of(error_code)}, and we count {ids}")
        self._rc24_our_id_is_counted(request, answer)

    def _rc24_our_id_is_counted(self, request: Any, answer: Any) -> None:
        """A Vote or Fetch that is refused for nothing but the id of its sender is counted, and no other is."""
        is_of_our_id = False
        if type(request) is VoteRequest and answer is not None and not answer.error_code:
            asked, said = the_partition(request.topics), the_partition(answer.topics)
            is_of_our_id = None not in (asked, said) and not said.error_code and asked.replica_id == self.scene.key.id
        elif type(request) is FetchRequest and answer is not None and not answer.error_code and answer.responses:
            is_of_our_id = answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        counted = self.scene.state.refused.get(OUR_OWN_ID, 0) - self._counts.get(OUR_OWN_ID, 0)
        if counted != is_of_our_id:
            raise self.broken("RC24", f"{type(request).__name__}: {OUR_OWN_ID!r} is counted {counted} times")

    def _refused(self, event: ev.RequestReceived[Any], error: ErrorCode, detail: str) -> None:
        scene, name = self.scene, type(event.request).__name__
        answer = scene.responses.get(event.request_id)
        if answer is None or answer.error_code != error:
            raise self.broken("RC16", f"{name} is answered with {answer}, expected was {error.name}")
        told = tagged(answer, DETAIL_TAG)
        is_ours = tagged(event.request, VOTERS_TAG) is not None
        is_told = is_ours and type(event.request) in AMONG_REPLICAS
        if is_told and told != detail.encode():
            raise self.broken("RC16", f"the answer to {name} says {told!r} of us, expected was {detail!r}")
        if told is not None and not is_ours:
            raise self.broken("RC16", f"the sender of {name} knows no tag of ours, and is told {told!r}")
        self._counted(REASONS[error], name, sender_of(event.request))

    def _counted(self, reason: str, name: str, sender: int | None = None) -> None:
        state = self.scene.state
        if state.refused.get(reason, 0) <= self._counts.get(reason, 0):
            raise self.broken("RC16", f"{name}: {reason!r} is not counted")
        if sender is not None and (reason, sender) not in state.warned and len(state.warned) < WARNINGS_MAX:
            raise self.broken("RC16", f"{name}: of {reason!r} of replica {sender} no operator is warned")

    def _is_misdirected(self, request: Any) -> bool:
        if request.voter_id < 0 or not request.topics or not request.topics[0].partitions:
            return False
        directory_id = request.topics[0].partitions[0].voter_directory_id
        own = self.scene.key
        return request.voter_id != own.id or directory_id not in (ZERO_UUID, own.directory_id)

    def _is_refused_strictly(self, request: Any) -> bool:
        if request.cluster_id is None:
            return True
        is_ours = type(request) in INTRODUCED and the_partition(request.topics) is not None
        return is_ours and self._is_misdirected(request)

    def _static_ids(self) -> list[int]:
        voters = self.scene.voters
        return sorted(voters.configured) if voters.latest_offset is None else []

    # --- answers ------------------------------------------------------------------------------------------------------

    def _rc17_a_refusal_is_counted(self, event: ev.ResponseReceived[Any]) -> None:
        asked = self.scene.answered
        if asked is None or type(asked.request) not in AMONG_REPLICAS:
            return
        reason = REASONS.get(event.response.error_code)
        if reason is None and type(asked.request) in INTRODUCED and self._is_of_another_disk(event.response):
            reason = NOT_THE_ONE_MEANT
        if reason is not None:
            self._counted(reason, f"the answer to {type(asked.request).__name__}", asked.destination)

    def _is_of_another_disk(self, response: Any) -> bool:
        """Whether another replica or disk answers than the one that was meant, in our epoch."""
        partition = None if response.error_code else the_partition(response.topics)
        if partition is None or partition.error_code != ErrorCode.INVALID_VOTER_KEY:
            return False
        scene = self.scene
        known = -1 if scene.leader_before is None else scene.leader_before
        return partition.leader_epoch == scene.epoch_before and partition.leader_id in (-1, known)

    # --- ourselves ----------------------------------------------------------------------------------------------------

    def _rc18_what_we_say_of_ourselves(self, request: Any) -> None:
        if type(request) not in AMONG_REPLICAS:
            return
        said, ids = tagged(request, VOTERS_TAG), self._static_ids()
        expected = struct.pack(f">{len(ids)}i", *ids)
        if said != expected and (said is not None or type(request) in INTRODUCED):
            raise self.broken("RC18", f"{type(request).__name__} says voters {said!r}, they are {ids}")
        if request.cluster_id != self.scene.state.cluster_id:
            raise self.broken("RC18", f"{type(request).__name__} is sent for cluster {request.cluster_id!r}")
        is_new = not getattr(self.scene.role, "has_fetched", False)
        if type(request) is FetchRequest and said is None and is_new and not is_marked(request):
            raise self.broken("RC18", "a Fetch to a leader that has not answered one yet says no voters")


def sender_of(request: Any) -> ReplicaId | None:
    """Return as which replica a request speaks; None: as none."""
    ids = [-1]
    if name := SPEAKS_IN_ITS_PARTITIONS.get(type(request)):
        ids += [getattr(partition, name) for topic in request.topics for partition in topic.partitions]
    elif type(request) is FetchRequest:
        ids += [request.replica_id, request.replica_state.replica_id]
    elif name := SPEAKS.get(type(request)):
        ids.append(getattr(request, name))
    return max(ids) if max(ids) >= 0 else None


def tagged(message: Any, tag: int) -> bytes | None:
    """Return a tagged field of a message."""
    return next((data for known, data in message.unknown_tagged_fields if known == tag), None)
