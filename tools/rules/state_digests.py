"""How replicas compare the states of their state machines, written a second time (StateDigest, decision 0016).

| id | rule |
|---|---|
| RD1 | a StateDigest is answered with all that is known here; a sound leader offers its snapshot, or takes one |
| RD2 | a replica is quarantined exactly when a majority has told another state since it agreed or stored a snapshot |
| RD3 | each voter that has not told the newest offset, or not heard of it, is asked, and no other, with pauses |
| RD4 | nothing of a wrong state is kept, and a snapshot that ends where it was found to differ, or later, heals it |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Follower
from kraftlib.consensus.voters import VoterSet
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Offset, OffsetAndEpoch, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.state_digest import StateDigestRequest, StateDigestResponse
from tools.rules.scene import OTHERS, Scene
from tools.rules.verdict import SceneRules

LANE: Final = OTHERS - 2 * 2**31
"""A replica is asked for its digests on a connection of this number less its id."""
KEPT: Final = 8
"""So many digests of a replica are remembered, the newest."""

Digest = tuple[int, bytes]
"""The form of a state, and its hash. States of two forms are not compared."""

NEWS: Final = (
    ev.StateHashed,
    ev.StateHealed,
    ev.StateMachineFailed,
    ev.SnapshotInstalled,
    ev.SnapshotAdopted,
    ev.SnapshotCreated,
    ev.SnapshotLost,
)


class StateDigestRules(SceneRules):
    """RD1 to RD4. The digests that a replica remembers are worked out here, and compared as a whole."""

    HEARS = frozenset({ev.StateHashed, ev.ResponseReceived, StateDigestRequest})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._own: dict[Offset, Digest] = {}
        self._replaced_at: Offset = 0
        self._told: dict[ReplicaId, dict[Offset, Digest]] = {}
        self._informed: set[ReplicaId] = set()
        self._mute: set[ReplicaId] = set()
        """Voters that know no such question."""
        self._due_ms: int | None = None
        self._taken_ms: int | None = None
        self._wrong_at: Offset | None = None
        self._is_loading = False
        self._has_failed = False
        self._differing: set[ReplicaId] = set()
        self._agreed: Offset = -1
        self._undecided: Offset = -1
        self._voters: VoterSet = scene.state.voters
        self._is_voter = False
        self._snapshots: list[OffsetAndEpoch] = []
        self._wanted: list[act.Action] = []
        """The actions that the state requires."""

    def hearing(self, event: Any) -> None:
        """As `SceneRules.hearing`."""
        state = self.scene.state
        self._voters, self._is_voter = state.voters, state.is_voter
        self._snapshots = list(state.log.snapshots)

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        kind, asked = type(event), self.scene.answered
        self._wanted = []
        is_news = kind in NEWS
        if is_news:
            self._hear(event)
        elif kind is ev.RequestReceived and type(event.request) is StateDigestRequest:
            is_news = True
            self._rd1_answer(event)
        elif asked is not None and type(asked.request) is StateDigestRequest:
            is_news = True
            self._hear_answer(event, asked.destination, asked.request)
        if is_news:
            done = [action for action in self.scene.actions if type(action) in STATE_ACTIONS]
            if done != self._wanted:
                raise self.broken("RD4", f"of the state is asked {done}, must be {self._wanted}, after {kind.__name__}")
        if is_news or self._due_ms is not None:
            self._rd3_questions()
            self._compare()

    # --- what is heard ------------------------------------------------------------------------------------------------

    def _hear(self, event: Any) -> None:
        match event:
            case ev.StateMachineFailed():
                self._has_failed = True
            case ev.StateHealed():
                self._wrong_at, self._is_loading, self._has_failed = None, False, False
                self._own.clear()
            case ev.SnapshotInstalled() | ev.SnapshotAdopted():
                self._own.clear()
                self._replaced_at = event.snapshot_id.offset
                if self._wrong_at is not None and event.snapshot_id.offset >= self._wrong_at:
                    self._is_loading = True
                    self._wanted.append(act.ReloadState(event.snapshot_id))
            case ev.SnapshotLost() if self._wrong_at is not None and event.snapshot_id.offset >= self._wrong_at:
                self._is_loading = False
            case ev.SnapshotCreated() if self._wrong_at is not None and not self._is_needless(event.snapshot_id):
                reason = "the state of this replica differs from that of the majority"
                self._wanted.append(act.SetSnapshotAside(event.snapshot_id, reason))
            case ev.StateHashed() if self._wrong_at is None and event.offset >= self._replaced_at:
                self._own[event.offset] = event.snapshot_version, event.sha256
                _forget_oldest(self._own)
                self._mute.clear()
                self._informed.clear()
                self._due_ms = self.scene.now_ms
                self._judge()

    def _is_needless(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the log has passed a snapshot, or the leader's of this id is stored, which stays."""
        log = self.scene.state.log
        if snapshot_id in log.snapshots:
            return True
        at_start = [kept for kept in log.snapshots if kept.offset == log.start_offset and kept != snapshot_id]
        return snapshot_id.offset < log.start_offset or (snapshot_id.offset == log.start_offset and bool(at_start))

    def _note(self, replica_id: ReplicaId, rows: Iterable[Any]) -> None:
        if replica_id < 0:
            return
        told = self._told.setdefault(replica_id, {})
        told |= {row.offset: (row.snapshot_version, row.sha256) for row in rows if _is_possible(row)}
        _forget_oldest(told)

    def _hear_answer(self, event: Any, destination: int, request: StateDigestRequest) -> None:
        replica_id = LANE - destination
        if type(event) is ev.RequestFailed:
            if event.failure is ev.Failure.UNSUPPORTED_VERSION:
                self._mute.add(replica_id)
            return
        if event.response.error_code != ErrorCode.NONE:
            return
        self._note(replica_id, event.response.digests)
        if _newest(row.offset for row in request.digests) == _newest(self._own):
            self._informed.add(replica_id)
        if self._wrong_at is None:
            self._judge()

    # --- RD1 ----------------------------------------------------------------------------------------------------------

    def _rd1_answer(self, event: ev.RequestReceived[StateDigestRequest]) -> None:
        scene, request = self.scene, event.request
        answer, error = scene.responses.get(event.request_id), scene.cluster_error(request.cluster_id)
        if type(answer) is not StateDigestResponse or answer.error_code != error:
            raise self.broken("RD1", f"a StateDigest is answered with {answer}, expected was {error.name}")
        if error:
            return
        is_another = request.replica_id != scene.key.id
        if is_another and not (event.of_observer and request.replica_id in self._voters.ids):
            self._note(request.replica_id, request.digests)
        rest_ms = self._pause_ms()
        if request.replica_id not in self._voters.ids:
            rest_ms = max(rest_ms, scene.state.config.digest_interval_ms or 0)
        offered = self._offered(request.snapshot_from, rest_ms)
        said = (
            answer.is_quarantined, answer.differing, answer.agreed_offset, answer.undecided_offset,
            [(row.offset, (row.snapshot_version, row.sha256)) for row in answer.digests],
            OffsetAndEpoch(offset=answer.snapshot_id.end_offset, epoch=answer.snapshot_id.epoch),
        )  # fmt: skip
        known = (
            self._wrong_at is not None, tuple(sorted(self._differing)), self._agreed, self._undecided,
            sorted(self._own.items()), offered or OffsetAndEpoch(offset=-1, epoch=-1),
        )  # fmt: skip
        if said != known:
            raise self.broken("RD1", f"replica {request.replica_id} is told {said}, and must be told {known}")
        self._judge()

    def _offered(self, wanted_from: Offset, rest_ms: int) -> OffsetAndEpoch | None:
        """Return the snapshot that a leader offers; one that has none of this offset or later takes it, with rests."""
        scene = self.scene
        is_sound = scene.led and not self._has_failed and bool(self._own)
        if not is_sound or not 0 < wanted_from <= scene.end_before:
            return None
        newest = max(self._snapshots, default=BOOTSTRAP_SNAPSHOT)
        if newest.offset >= wanted_from:
            return newest
        if self._taken_ms is None or scene.now_ms >= self._taken_ms + rest_ms:
            self._taken_ms = scene.now_ms
            self._wanted.append(act.TakeSnapshot())
        return None

    # --- RD2 ----------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        if self._has_failed:
            return
        majority = len(self._voters) // 2 + 1
        wrong: list[Offset] = []
        for offset in sorted(self._own)[::-1]:
            mine = self._own[offset]
            told = {voter_id: self._told.get(voter_id, {}).get(offset) for voter_id in self._voters.ids}
            told.pop(self.scene.key.id, None)
            votes = Counter(digest for digest in told.values() if digest is not None and digest[0] == mine[0])
            votes[mine] += self._is_voter
            right = next((digest for digest, count in votes.items() if count >= majority), None)
            if right is None:
                self._look_for_no_majority(offset, mine, told)
            elif right != mine:
                wrong.append(offset)
            else:
                self._agree(offset, mine)
        wrong = [offset for offset in wrong if offset > self._agreed]
        if wrong:
            self._is_wrong(min(wrong))

    def _is_wrong(self, offset: Offset) -> None:
        self._wrong_at, self._has_failed, self._due_ms = offset, True, self.scene.now_ms
        doubtful = [kept for kept in self._snapshots if kept.offset > self._agreed and kept != BOOTSTRAP_SNAPSHOT]
        reason = f"its state differs from that of the majority at offset {offset}"
        self._wanted += [act.QuarantineState(offset), *(act.SetSnapshotAside(kept, reason) for kept in doubtful)]

    def _agree(self, offset: Offset, right: Digest) -> None:
        self._agreed = max(self._agreed, offset)
        if self._undecided <= offset:
            self._undecided = -1
        for replica_id, told in self._told.items():
            said = told.get(offset)
            if said is not None and said[0] == right[0] and max(told) == offset:
                (self._differing.discard if said == right else self._differing.add)(replica_id)

    def _look_for_no_majority(self, offset: Offset, mine: Digest, told: dict[ReplicaId, Digest | None]) -> None:
        states = {digest for digest in (mine, *told.values()) if digest is not None and digest[0] == mine[0]}
        is_over = None not in told.values() or offset < max(self._own)
        if len(states) > 1 and is_over and offset > max(self._undecided, self._agreed):
            self._undecided = offset

    # --- RD3 ----------------------------------------------------------------------------------------------------------

    def _pause_ms(self) -> int:
        return min(max((self.scene.config.digest_interval_ms or 0) // 8, 50), 2_000)

    def _rd3_questions(self) -> None:
        scene, state = self.scene, self.scene.state
        sent = {one.destination: one.request for one in scene.requests if type(one.request) is StateDigestRequest}
        may_ask = state.config.private_apis and state.shutdown_deadline_ms is None
        due = self._due_ms is not None and self._due_ms <= scene.now_ms and may_ask
        wanted = self._to_ask() if due else {}
        if due:
            self._due_ms = scene.now_ms + self._pause_ms()
            if not wanted and self._wrong_at is None:
                self._due_ms = None
        for destination, request in sent.items():
            snapshot_from = wanted.get(LANE - destination)
            rows = [(row.offset, (row.snapshot_version, row.sha256)) for row in request.digests]
            said = request.cluster_id, request.replica_id, request.snapshot_from, rows
            if said != (state.cluster_id, scene.key.id, snapshot_from, sorted(self._own.items())):
                raise self.broken("RD3", f"{LANE - destination} is asked {said}, to be asked are {wanted}")
        for replica_id in wanted:
            has_place = self._place_of(replica_id)
            if has_place and state.connections.is_ready(LANE - replica_id, scene.now_ms):
                raise self.broken("RD3", f"{replica_id} is not asked for its digests, and {self._own} is known here")
        if self._due_ms is not None and may_ask:
            self.wakes_by("RD3", self._due_ms, "must ask")

    def _place_of(self, replica_id: ReplicaId) -> bool:
        state, wanted = self.scene.state, self.scene.config.listener_name.upper()
        return wanted in (state.leader_endpoints if self._wrong_at is not None else state.endpoints_of(replica_id))

    def _to_ask(self) -> dict[ReplicaId, Offset]:
        """Return whom to ask, and from which offset on a snapshot is wanted of it."""
        state = self.scene.state
        if self._wrong_at is not None:
            role = state.role_state
            if not isinstance(role, Follower) or role.download is not None or self._is_loading or state.log.holes:
                return {}
            return {role.leader_id: max(self._wrong_at, state.log.start_offset + 1)}
        newest = _newest(self._own)
        others = [voter_id for voter_id in state.voters.ids if voter_id != self.scene.key.id]
        return {
            voter_id: -1
            for voter_id in others
            if newest >= 0
            and voter_id not in self._mute
            and not (voter_id in self._informed and newest in self._told.get(voter_id, {}))
        }

    # --- what is known ------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        digests = self.scene.state.digests
        quarantine = digests.quarantine
        theirs = (
            _plain(digests.own), {one: _plain(told) for one, told in digests.told.items()}, digests.informed,
            digests.without_answer, digests.ask_due_ms, digests.differing, digests.agreed_offset,
            digests.undecided_offset, digests.replaced_at,
            None if quarantine is None else (quarantine.offset, quarantine.is_loading),
        )  # fmt: skip
        ours = (
            self._own, self._told, self._informed, self._mute, self._due_ms, self._differing, self._agreed,
            self._undecided, self._replaced_at,
            None if self._wrong_at is None else (self._wrong_at, self._is_loading),
        )  # fmt: skip
        if theirs != ours:
            raise self.broken("RD2", f"its knowledge of states is {theirs}, and must be {ours}")
        if (self.scene.state.machine_failed_ms is not None) is not self._has_failed:
            raise self.broken("RD2", f"its state machine serves: {not self._has_failed}, and it says otherwise")


STATE_ACTIONS: Final = frozenset({act.QuarantineState, act.SetSnapshotAside, act.ReloadState, act.TakeSnapshot})


def _is_possible(row: Any) -> bool:
    return row.offset >= 0 and len(row.sha256) == 32


def _forget_oldest(told: dict[Offset, Digest]) -> None:
    for offset in sorted(told)[:-KEPT]:
        del told[offset]


def _newest(offsets: Iterable[Offset]) -> Offset:
    return max(offsets, default=-1)


def _plain(told: dict[Offset, Any]) -> dict[Offset, Digest]:
    return {offset: (digest.snapshot_version, digest.sha256) for offset, digest in told.items()}
