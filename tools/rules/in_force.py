"""Which voters are in force, with which records a leader opens its epoch (KIP-853), and what it notes of a Fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader
from kraftlib.records.control import decode_control
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlib.types import Offset, ReplicaKey
from tools.rules.scene import Scene
from tools.rules.verdict import SceneRules
from tools.rules.voter_sets import Seat, Seats, seats_of_record, seats_of_set, shown

NEWEST: int = 1
"""The newest kraft.version."""


def _shown(sets: Sequence[tuple[Offset, Seats]]) -> str:
    return ", ".join(f"{shown(seats)} of {offset}" for offset, seats in sets) or "none"


def own_seat(scene: Scene) -> Seat:
    """Return what a voter says of itself, as it runs now."""
    places = frozenset((name.upper(), place.host, place.port) for name, place in scene.state.endpoints.items())
    return Seat(scene.key.directory_id, places, 0, NEWEST)


class InForceRules(SceneRules):
    """RC1 to RC4, RC9."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._seen: Any = None
        self._tables: Any = None

    def began(self) -> None:
        """As `SceneRules.began`."""
        self.handled(ev.TimeoutReached())

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        scene = self.scene
        latest = scene.state.log.voters.latest
        if scene.voters_changed or latest is not self._seen:
            self._seen = latest
            self._rc1_the_latest_set_is_in_force()
        has_new_role = scene.role is not scene.role_before
        if (has_new_role or scene.voters_changed) and type(scene.role) is Leader:
            if has_new_role:
                self._rc3_an_epoch_opens_with_its_voters()
            self._rc2_a_leader_knows_its_voters()
            self._rc9_a_change_of_the_voters_forgets_nothing()
        if type(event) is ev.SnapshotCreated:
            self._rc4_a_snapshot_names_its_voters(event)
        elif scene.fetched_as is not None:
            self._rc9_what_a_fetch_says_is_noted(scene.fetched_as)

    def _rc1_the_latest_set_is_in_force(self) -> None:
        voters, log = self.scene.voters, self.scene.state.log
        sets = [(offset, seats_of_set(value)) for offset, value in log.voters.entries]
        if sets != voters.sets or seats_of_set(log.voters.latest) != voters.latest:
            text = f"the voters by offset are {_shown(sets)}, in force {log.voters.latest}, and the log says"
            raise self.broken("RC1", f"{text} {_shown(voters.sets)}")
        versions = list(log.kraft_version.entries)
        if versions != voters.versions or log.kraft_version.latest != voters.kraft_version:
            text = f"kraft.version is {log.kraft_version.latest}, by offset {versions}, and the log says"
            raise self.broken("RC1", f"{text} {voters.versions}")
        start = self.scene.state.committed_offset - 1
        said_since = [seats_of_set(value) for value in log.voters.since(start)]
        since = [voters.at(start), *(seats for place, seats in voters.sets if place > start)]
        if said_since != since:
            text = f"the voters since offset {start} are {[shown(seats) for seats in said_since]}, and the log says"
            raise self.broken("RC1", f"{text} {[shown(seats) for seats in since]}")

    def _rc2_a_leader_knows_its_voters(self) -> None:
        scene = self.scene
        role = scene.role
        others = {voter_id: scene.voter_key(voter_id) for voter_id in scene.voters.latest if voter_id != scene.key.id}
        counted = {voter_id: progress.key for voter_id, progress in role.progress.items()}
        if counted != others:
            raise self.broken("RC2", f"the leader counts {counted}, and the other voters are {others}")
        if twice := [str(key) for key in role.observers if others.get(key.id) == key]:
            raise self.broken("RC2", f"the leader takes the voters {twice} for observers, too")

    def _rc3_an_epoch_opens_with_its_voters(self) -> None:
        scene = self.scene
        batches = [action.batches for action in scene.actions if isinstance(action, act.AppendToLog)]
        if not batches or not batches[-1] or not batches[-1][0].is_control:
            raise self.broken("RC3", "a new leader appends no LeaderChange record")
        first = batches[-1][0]
        records = [decode_control(record) for record in first.records()]
        change, rest = records[0], records[1:]
        before = scene.voters.at(first.base_offset - 1)
        ids = sorted(before)
        if not isinstance(change, LeaderChangeMessage) or change.leader_id != scene.key.id:
            raise self.broken("RC3", f"a new leader appends {change} first")
        if sorted(voter.voter_id for voter in change.voters) != ids:
            raise self.broken("RC3", f"its LeaderChange names the voters {change.voters}, and they are {ids}")
        expected, version = [], next((v for at, v in reversed(scene.voters.versions) if at < first.base_offset), 0)
        at = max((place for place, _ in scene.voters.sets if place < first.base_offset), default=None)
        own = before.get(scene.key.id)
        current = {**before, scene.key.id: own_seat(scene)} if own is not None else before
        if version >= 1 and (at == -1 or current != before):
            expected = [version, current]
        said = [self._value(control) for control in rest]
        if said != expected:
            raise self.broken("RC3", f"its first batch has {said} behind LeaderChange, and must have {expected}")

    def _value(self, control: object) -> object:
        if isinstance(control, VotersRecord):
            return seats_of_record(control)
        return control.kraft_version if isinstance(control, KRaftVersionRecord) else control

    def _rc4_a_snapshot_names_its_voters(self, event: ev.SnapshotCreated) -> None:
        scene, last = self.scene, event.snapshot_id.offset - 1
        log = scene.state.log
        if last < log.start_offset:
            return
        said, expected = seats_of_set(log.voters.at(last)), scene.voters.at(last)
        if said != expected:
            text = f"the voters at {last}, which a snapshot must record, are {shown(said)}"
            raise self.broken("RC4", f"{text}, and the log says {shown(expected)}")

    def _rc9_what_a_fetch_says_is_noted(self, key: ReplicaKey) -> None:
        scene, heard = self.scene, self.scene.heard[key]
        known = scene.role.progress.get(key.id) if scene.voters.admits(key) else scene.role.observers.get(key)
        said = None if known is None else (known.end_offset, known.heard_ms, known.last_caught_up_ms)
        expected = heard.offset, heard.at_ms, heard.caught_up_ms
        if said != expected:
            raise self.broken("RC9", f"of the Fetch of {key} the leader notes {said}, and must note {expected}")

    def _rc9_a_change_of_the_voters_forgets_nothing(self) -> None:
        scene = self.scene
        for voter_id, progress in scene.role.progress.items():
            heard = scene.heard.get(scene.voter_key(voter_id))
            if heard is None:
                continue
            said = progress.end_offset, progress.heard_ms, progress.last_caught_up_ms
            expected = heard.offset, heard.at_ms, heard.caught_up_ms
            if said != expected:
                text = f"of voter {voter_id} the leader knows {said} once the voters have changed, and noted {expected}"
                raise self.broken("RC9", text)
