"""The count of mistakes of peers: each stands under its reason once, and nothing else does.

An operator reads them in `status().refused`: a mistake that is not counted is silent (reliability: no mistake is).
"""

from __future__ import annotations

from typing import Any, Final

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Follower, Leader
from kraftlib.consensus.state import WARNINGS_MAX
from kraftlib.types import ZERO_UUID, ReplicaKey
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.fetch import FetchRequest
from tools.rules.election_requests import the_partition
from tools.rules.joining import GOES_ON, JOINS
from tools.rules.scene import Scene, Sent
from tools.rules.verdict import SceneRules

WENT_BACK: Final = "a voter went back"
MAY_NOT_JOIN: Final = "not allowed to join"
ID_IN_USE: Final = "our id is in use"
DAMAGED: Final = "damaged snapshot"
NO_SPACE: Final = "no space for a snapshot"
NO_LISTENER: Final = "no common listener"

LOOKED_AT: Final = (WENT_BACK, MAY_NOT_JOIN, ID_IN_USE, DAMAGED, NO_SPACE)


class RefusalRules(SceneRules):
    """RC25."""

    HEARS = frozenset({FetchRequest, ev.ResponseReceived})
    SEES = frozenset({FetchRequest, ev.ResponseReceived, ev.SnapshotRefused})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counts = dict.fromkeys(LOOKED_AT, 0)
        self._offsets: dict[ReplicaKey, int] = {}
        """The offset of the latest Fetch of each replica, as the leader knew it before the event."""
        self._predecessor_ms: int | None = None
        """When the voter of our id had fetched, as the leader said before the event."""

    def hearing(self, event: Any) -> None:
        """As `SceneRules.hearing`."""
        if type(event) is ev.RequestReceived:
            self._offsets = {key: heard.offset for key, heard in self.scene.heard.items()}
        else:
            self._predecessor_ms = getattr(self.scene.role_before, "predecessor_fetched_ms", None)

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        expected = self._mistake(event)
        for reason in LOOKED_AT:
            count = self.scene.state.refused.get(reason, 0)
            if reason == WENT_BACK and type(self.scene.role) is not Leader:
                self._counts[reason] = count  # it has resigned since, and what its voters had fetched is forgotten
            if count - self._counts[reason] != (reason == expected):
                more = count - self._counts[reason]
                raise self.broken("RC25", f"{reason!r} is counted {more} times, expected was {expected!r}")
            self._counts[reason] = count

    def _mistake(self, event: Any) -> str | None:
        """Return under which reason the event counts."""
        if type(event) is ev.SnapshotRefused:
            return NO_SPACE if event.lacks_space else DAMAGED
        if type(event) is ev.RequestReceived:
            key = self.scene.fetched_as
            if key is None or not self.scene.voters.admits(key):
                return None
            offset = event.request.topics[0].partitions[0].fetch_offset
            return WENT_BACK if offset < self._offsets.get(key, -1) else None
        asked = self.scene.answered
        return None if asked is None else self._mistake_of_an_answer(asked, event.response)

    def _mistake_of_an_answer(self, asked: Sent, response: Any) -> str | None:
        if type(asked.request) in JOINS:
            return None if response.error_code in GOES_ON else MAY_NOT_JOIN
        if type(asked.request) is not DescribeQuorumRequest:
            return None
        scene = self.scene
        known = scene.voters.latest.get(scene.key.id)
        partition = None if response.error_code else the_partition(response.topics)
        if known is None or partition is None or partition.error_code or partition.leader_epoch != scene.state.epoch:
            return None
        disks = (known.directory_id or ZERO_UUID, ZERO_UUID)
        times = [
            row.last_fetch_timestamp
            for row in partition.current_voters
            if row.replica_id == scene.key.id and row.replica_directory_id in disks
        ]
        is_other = bool(times) and self._predecessor_ms is not None and times[0] != self._predecessor_ms
        return ID_IN_USE if is_other else None


class ListenerRules(SceneRules):
    """RC26."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._count = 0

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        scene, role = self.scene, self.scene.role
        if not scene.has_new_role or type(role) is not Follower:
            return
        before, self._count = self._count, scene.state.refused.get(NO_LISTENER, 0)
        if scene.config.listener_name.upper() in role.leader_endpoints:
            return
        warned = scene.state.warned
        if self._count == before or ((NO_LISTENER, role.leader_id) not in warned and len(warned) < WARNINGS_MAX):
            raise self.broken(
                "RC26", f"{role.leader_id} is not reached on our listener, and no operator is warned of it"
            )
