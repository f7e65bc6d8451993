"""The operator of a dynamic quorum: formats its first disks, adds and removes voters, and records the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.consensus.events import Failure
from kraftlib.consensus.roles import Leader
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.testing import voter_invariants as voter_inv
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.network import Port
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ZERO_UUID, Endpoint, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.world import World

ADMIN_ID: Final = 900
"""Number of the machine that the operator sits at."""

LISTENER: Final = "CONTROLLER"


def format_dynamic(log: MemoryReplicatedLog, voters: Sequence[tuple[ReplicaKey, Endpoint]]) -> None:
    """Write the bootstrap checkpoint of a quorum of kraft.version 1, as `kraftlib format` does."""
    voter_set = VoterSet.of(
        Voter(key=key, endpoints={LISTENER: endpoint}, min_kraft_version=0, max_kraft_version=1)
        for key, endpoint in voters
    )
    sink = log.create_snapshot(BOOTSTRAP_SNAPSHOT)
    writer = SnapshotWriter(
        sink.write, epoch=0, last_contained_log_timestamp=0, kraft_version=1, voters=voter_set.to_record()
    )
    writer.freeze()
    sink.freeze()


@attrs.define
class VoterChange:
    """A requested change, and its result."""

    what: str
    key: ReplicaKey
    asked_us: int
    when_committed: bool = True
    """Whether the answer was to wait until it is committed."""
    error_code: int | None = None
    """None while there is no answer; -2 if the connection was lost."""


def _change_of(node: SimulatedNode) -> object:
    """Return the change that a node is busy with as leader, or that waits to be appended."""
    role = None if node.process is None else node.process.replica.state.role_state
    return (role.change or role.control_waits or None) if isinstance(role, Leader) else None


class Admin:
    """Sends AddRaftVoter and RemoveRaftVoter to the leader. A `Receiver`."""

    node_id = ADMIN_ID

    def __init__(self, world: World) -> None:
        self.changes: list[VoterChange] = []
        self._world = world
        self._port: Port | None = None

    @property
    def is_changing(self) -> bool:
        """Whether the voters may soon be others than the committed log says: by a request, or a log that says so."""
        world = self._world
        committed = sorted(world.current_voters(), key=str)
        asked = any(change.error_code is None for change in self.changes)
        logged = any(sorted(world.checker.voters_of(node), key=str) != committed for node in world.nodes.values())
        return asked or logged or any(_change_of(node) is not None for node in world.nodes.values())

    def add(self, node: SimulatedNode) -> bool:
        """Request that `node` becomes a voter; return whether there was a leader to ask."""
        listener = AddRaftVoterRequest.Listener(name=LISTENER, host=node.endpoint.host, port=node.endpoint.port)
        when_committed = self._world.random.random() < 0.5
        request = AddRaftVoterRequest(
            cluster_id=self._world.cluster_id,
            timeout_ms=node.config.request_timeout_ms,
            voter_id=node.key.id,
            voter_directory_id=node.key.directory_id or ZERO_UUID,
            listeners=(listener,),
            ack_when_committed=when_committed,
        )
        return self._ask(VoterChange("add", node.key, self._world.timeline.now_us, when_committed), request)

    def remove(self, key: ReplicaKey) -> bool:
        """Request the removal of a voter; return whether there was a leader to ask."""
        request = RemoveRaftVoterRequest(
            cluster_id=self._world.cluster_id, voter_id=key.id, voter_directory_id=key.directory_id or ZERO_UUID
        )
        return self._ask(VoterChange("remove", key, self._world.timeline.now_us), request)

    def upgrade(self) -> bool:
        """Request kraft.version 1; return whether there was a leader to ask."""
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1)
        request = UpdateFeaturesRequest(timeout_ms=60_000, feature_updates=(update,))
        return self._ask(VoterChange("upgrade", self._world.voter_keys[0], self._world.timeline.now_us), request)

    def _ask(self, change: VoterChange, request: Any) -> bool:
        leaders = [node for node in self._world.running_nodes() if node.leads is not None]
        if not leaders:
            return False
        # Mostly the newest; one that has committed nothing yet, or is none any more, must say so.
        leader = max(leaders, key=lambda node: node.leads or 0)
        if self._world.random.random() < 0.2:
            leader = self._world.random.choice(leaders)
        if self._port is None:
            self._port = Port(self._world.network, self)
        self.changes.append(change)
        self._port.send(len(self.changes) - 1, leader.key.id, leader.endpoint, request)
        self._world.timeline.after(20 * leader.config.request_timeout_ms * MILLISECOND, self._give_up, change)
        return True

    def _give_up(self, change: VoterChange) -> None:
        if change.error_code is None:
            change.error_code = -2

    # --- Receiver ----------------------------------------------------------------------------------------------------

    def request_received(self, *_: Any) -> None:
        """Never called: no replica sends requests to the operator."""

    def response_received(self, correlation_id: int, message: Any) -> None:
        """A change is done, or is not."""
        change = self.changes[correlation_id]
        change.error_code = message.error_code
        if message.error_code == ErrorCode.NONE and change.when_committed:
            checker = self._world.checker
            if change.what == "upgrade":
                checker.check(voter_inv.v6_an_upgrade_that_is_done_is_committed, checker.facts)
            else:
                checker.check(voter_inv.v6_a_change_that_is_done_is_committed, checker.facts, change.what, change.key)

    def request_failed(self, correlation_id: int, failure: Failure) -> None:
        """The leader was lost: the outcome is unknown."""
        self.changes[correlation_id].error_code = -2

    def connection_lost(self, destination: ReplicaId, refused: bool) -> None:
        """The next change makes a new one."""
