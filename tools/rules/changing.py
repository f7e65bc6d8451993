"""The leader's side of every change of the voters: each check in its order, what is appended, and when it is answered.

One change at a time, only in an epoch in which something is committed, and only when the last one is committed
(KIP-853). Where Kafka is more careless, docs/explanation/decisions says why: the new voter must be caught up now, and a
removal must leave a majority that lives.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.types import ZERO_UUID, Endpoint, Offset, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tools.rules.in_force import NEWEST, own_seat
from tools.rules.scene import Heard, Scene
from tools.rules.verdict import SceneRules, error_of, name_of
from tools.rules.voter_sets import Seat, Seats, seats_of_record, shown

FEATURE: Final = "kraft.version"

Expected = tuple[ErrorCode, Seats | None]
"""With what a request is answered at once, NONE while it is not; and the voter set that is submitted for it."""

LATER: Final = ErrorCode.NONE


@attrs.define
class Pending:
    """The change that is under way."""

    request_id: int | None
    request: Any
    key: ReplicaKey
    deadline_ms: int
    wanted: Seats | None = None
    offset: Offset | None = None


_LABEL: Final = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
HOST_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*(?![0-9]+\.?\Z){_LABEL}\.?", re.ASCII)
"""RFC 1123, with the underscore of containers; the last label is no number."""
UNIX_SOCKET: Final = re.compile(r"unix:/(?!.{107})[!-+\--~]*[!-+\--.0-~]")
"""A path from the root of at most 107 bytes, of printable ASCII without blanks and commas."""


def places_of(listeners: Any) -> frozenset[tuple[str, str, int]] | None:
    """Read the listeners of a request; None if there are too many, or one is impossible."""
    found: Mapping[str, tuple[str, int]] = {place.name.upper(): (place.host, place.port) for place in listeners}
    sound = all(_is_host(host) and 1 <= port <= 65_535 for host, port in found.values())
    named = all(1 <= len(name) <= 255 and name.isprintable() for name in found)
    whole = sound and named and len(listeners) <= 16
    return frozenset((name, *place) for name, place in found.items()) if whole else None


def _is_host(text: str) -> bool:
    if len(text) > 255:
        return False
    if text.startswith("unix:"):
        return UNIX_SOCKET.fullmatch(text) is not None
    address, scope, _ = text.partition("%")
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return HOST_NAME.fullmatch(text) is not None
    zoned = re.fullmatch(r"[^%]+(%[A-Za-z0-9_-]{1,63})?", text, re.ASCII)
    return zoned is not None and (not scope or known.version == 6)


class ChangeRules(SceneRules):
    """RC5 to RC8."""

    HEARS = frozenset({AddRaftVoterRequest})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.pending: Pending | None = None
        self.waits = False
        """Control records wait to be appended."""
        self.reported: dict[int, Seat] = {}
        self._asked_to_resign = False
        self._is_ready = True

    def hearing(self, event: Any) -> None:
        """As `SceneRules.hearing`."""
        self._is_ready = self.scene.state.connections.is_ready(event.request.voter_id, self.scene.now_ms)

    def handled(self, event: Any) -> None:
        """As `SceneRules.handled`."""
        scene = self.scene
        kind = type(event)
        expected: tuple[object, ...] | None = None
        if kind is ev.RequestReceived:
            judge = JUDGED.get(type(event.request))
            if judge is not None:
                expected = judge(self, event)
        elif kind is ev.ResponseReceived or kind is ev.RequestFailed:
            expected = self._probe_answered(event)
        elif kind is ev.RecordsSubmitted and any(batch.is_control for batch in event.batches):
            self.waits = False
        elif kind is ev.ResignRequested and scene.led and event.epoch == scene.epoch_before:
            self._asked_to_resign = True
        if expected is not None or scene.controls:
            self._rc6_what_is_submitted(expected)
        if self.pending is not None:
            self._rc7_when_it_is_answered(self.pending)
        if scene.role is not scene.role_before:
            self.pending, self.waits, self.reported, self._asked_to_resign = None, False, {}, False
        elif type(scene.role) is Leader:
            self._rc8_a_removed_leader_resigns()

    # --- RC5: each check in its order ---------------------------------------------------------------------------------

    def _shared_error(self) -> ErrorCode:
        scene, known = self.scene, self.scene.high_watermark_before
        if self.pending is not None or self.waits or known is None:
            return ErrorCode.REQUEST_TIMED_OUT
        if scene.voters.kraft_version < 1:
            return ErrorCode.UNSUPPORTED_VERSION
        offset = scene.voters.latest_offset
        return ErrorCode.REQUEST_TIMED_OUT if offset is None or offset >= known else ErrorCode.NONE

    def _add(self, event: ev.RequestReceived[Any]) -> tuple[object, ...] | None:
        scene, request = self.scene, event.request
        places = places_of(request.listeners)
        place = None if places is None else scene.place_of(places)
        error = scene.cluster_error(request.cluster_id) or scene.leader_error()
        if not error and (request.voter_id < 0 or request.voter_directory_id == ZERO_UUID or place is None):
            error = ErrorCode.INVALID_REQUEST
        error = error or self._shared_error()
        if not error and request.voter_id in scene.voters.latest:
            error = ErrorCode.DUPLICATE_VOTER
        if not error and not self._is_ready:
            error = ErrorCode.REQUEST_TIMED_OUT
        self._answered_at_once(event, error)
        if not error:
            self._begin(event, ReplicaKey(request.voter_id, request.voter_directory_id))
            self._rc5_the_new_voter_is_asked(request.voter_id, place)
        return None

    def _rc5_the_new_voter_is_asked(self, voter_id: int, place: Endpoint | None) -> None:
        probes = [(one.destination, one.endpoint) for one in self.scene.requests if _is_probe(one.request)]
        if probes != [(voter_id, place)] and not self.scene.has_new_role:
            raise self.broken("RC5", f"new voter {voter_id} at {place} is asked for its versions: {probes}")

    def _remove(self, event: ev.RequestReceived[Any]) -> tuple[object, ...] | None:
        scene, request = self.scene, event.request
        error = scene.cluster_error(request.cluster_id) or scene.leader_error()
        if not error and (request.voter_id < 0 or request.voter_directory_id == ZERO_UUID):
            error = ErrorCode.INVALID_REQUEST
        error = error or self._shared_error()
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        before = scene.voters.latest
        if not error and (not scene.voters.admits(key) or len(before) == 1):
            error = ErrorCode.VOTER_NOT_FOUND
        wanted = {voter_id: seat for voter_id, seat in before.items() if voter_id != key.id}
        alive = sum(self._lives(voter_id) for voter_id in wanted) if not error else 0
        if not error and alive <= len(wanted) // 2:
            error = ErrorCode.BROKER_NOT_AVAILABLE
        self._answered_at_once(event, error)
        if error:
            return None
        change = self._begin(event, key)
        if key == scene.key and alive <= len(before) // 2:
            return None  # another voter is to lead first, and to remove this one
        change.wanted = wanted
        return (wanted,)

    def _lives(self, voter_id: int) -> bool:
        scene = self.scene
        if voter_id == scene.key.id:
            return True
        at_ms = scene.heard.get(scene.voter_key(voter_id), Heard()).at_ms
        return at_ms is not None and scene.now_ms - at_ms <= scene.config.fetch_timeout_ms * 3 // 2

    def _update(self, event: ev.RequestReceived[Any]) -> tuple[object, ...] | None:
        scene, request = self.scene, event.request
        feature = request.kraft_version_feature
        least, most = feature.min_supported_version, feature.max_supported_version
        places = places_of(request.listeners)
        version, known = scene.voters.kraft_version, scene.high_watermark_before
        offset = scene.voters.latest_offset
        error = scene.cluster_error(request.cluster_id) or scene.leader_error(request.current_leader_epoch)
        if not error and (request.voter_id < 0 or request.voter_directory_id == ZERO_UUID or not 0 <= least <= most):
            error = ErrorCode.INVALID_REQUEST
        if not error and (places is None or scene.place_of(places) is None):
            error = ErrorCode.INVALID_REQUEST
        if not error and (self.pending is not None or self.waits or known is None):
            error = ErrorCode.REQUEST_TIMED_OUT
        if not error and version >= 1 and (offset is None or known is None or offset >= known):
            error = ErrorCode.REQUEST_TIMED_OUT
        if not error and not least <= version <= most:
            error = ErrorCode.INVALID_REQUEST
        if not error and not scene.voters.admits(ReplicaKey(request.voter_id, request.voter_directory_id)):
            error = ErrorCode.VOTER_NOT_FOUND
        answer = self._answered_at_once(event, error, always=True)
        leader = answer.current_leader
        said = leader.leader_id, leader.leader_epoch
        true = -1 if scene.leader_before is None else scene.leader_before, scene.epoch_before
        if said != true and error is not ErrorCode.INCONSISTENT_VOTER_SET:
            raise self.broken("RC5", f"an UpdateRaftVoter is answered with leader and epoch {said}, they are {true}")
        known_place = None if scene.has_new_role else scene.state.leader_endpoint
        if known_place is not None and said == true and (leader.host, leader.port) != attrs.astuple(known_place)[:2]:
            at = f"{leader.host}:{leader.port}, it is reached at {known_place}"
            raise self.broken("RC5", f"an UpdateRaftVoter is answered with a leader at {at}")
        if error or places is None:
            return None
        seat = Seat(request.voter_directory_id, places, least, most)
        if version == 0:
            self.reported[request.voter_id] = seat
            return None
        wanted = {**scene.voters.latest, request.voter_id: seat}
        return None if wanted == scene.voters.latest else (wanted,)

    def _upgrade(self, event: ev.RequestReceived[Any]) -> tuple[object, ...] | None:
        scene, request = self.scene, event.request
        version, known = scene.voters.kraft_version, scene.high_watermark_before
        levels = [update.max_version_level for update in request.feature_updates]
        error = ErrorCode.NONE
        wanted: dict[int, Seat] = {}
        if not scene.led or scene.is_shutting_down:
            error = ErrorCode.NOT_CONTROLLER
        elif len(levels) > 16:
            error = ErrorCode.INVALID_REQUEST
        elif any(update.feature != FEATURE for update in request.feature_updates) or any(
            not version <= level <= NEWEST for level in levels
        ):
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif all(level == version for level in levels):
            since = scene.voters.kraft_version_offset
            is_settled = since is None or (known is not None and since < known)
            self._answered_at_once(event, LATER if is_settled else ErrorCode.REQUEST_TIMED_OUT, always=True)
            return None
        elif self.pending is not None or self.waits or known is None:
            error = ErrorCode.REQUEST_TIMED_OUT
        else:
            wanted = {voter_id: self.reported.get(voter_id, seat) for voter_id, seat in scene.voters.latest.items()}
            wanted[scene.key.id] = own_seat(scene)
            if any(seat.directory_id is None or seat.most < 1 for seat in wanted.values()):
                error = ErrorCode.INVALID_UPDATE_VERSION
        self._answered_at_once(event, error, always=request.validate_only)
        if error or request.validate_only:
            return None
        self._begin(event, scene.key).wanted = wanted
        return (NEWEST, wanted)

    def _begin(self, event: ev.RequestReceived[Any], key: ReplicaKey) -> Pending:
        deadline_ms = self.scene.now_ms + self.scene.config.request_timeout_ms
        self.pending = Pending(event.request_id, event.request, key, deadline_ms)
        return self.pending

    def _answered_at_once(self, event: ev.RequestReceived[Any], error: ErrorCode, *, always: bool = False) -> Any:
        scene, kind = self.scene, type(event.request).__name__
        answer = scene.responses.get(event.request_id)
        if answer is None and event.request_id in scene.responses:
            raise self.broken("RC5", f"{kind} is answered by closing the connection, expected was {error.name}")
        if answer is None:
            if error or always:
                raise self.broken("RC5", f"{kind} is not answered with {error.name}: {self._numbers()}")
        elif not error and not always and scene.has_new_role:
            return answer  # it leads no more
        elif error_of(answer) != error or not (error or always):
            raise self.broken(
                "RC5",
                f"{kind} is answered with {name_of(error_of(answer))}, expected was {error.name}: {self._numbers()}",
            )
        return answer

    def _numbers(self) -> str:
        scene = self.scene
        text = f"voters {shown(scene.voters.latest)} of offset {scene.voters.latest_offset}, kraft.version"
        text += f" {scene.voters.kraft_version}, high watermark {scene.high_watermark_before}"
        return f"{text}, pending {self.pending is not None}, submitted {self.waits}, led {scene.led}"

    # --- the answer of the new voter ----------------------------------------------------------------------------------

    def _probe_answered(self, event: ev.ResponseReceived[Any] | ev.RequestFailed) -> tuple[object, ...] | None:
        scene, change = self.scene, self.pending
        asked = scene.answered
        if asked is None or change is None or not _is_probe(asked.request) or change.key.id != asked.destination:
            return None
        if type(event) is ev.ResponseReceived and change.wanted is not None:
            return None
        error = ErrorCode.REQUEST_TIMED_OUT
        if type(event) is ev.ResponseReceived and not event.response.error_code:
            feature = next((row for row in event.response.supported_features if row.name == FEATURE), None)
            version = scene.voters.kraft_version
            if feature is None or version < feature.min_version or version > feature.max_version:
                error = ErrorCode.INVALID_REQUEST
            elif self._is_caught_up(change.key):
                places = places_of(change.request.listeners) or frozenset()
                seat = Seat(change.key.directory_id, places, feature.min_version, feature.max_version)
                change.wanted = {**scene.voters_before, change.key.id: seat}
                return (change.wanted,)
        self._finished(change, error, "the new voter has answered")
        return None

    def _is_caught_up(self, key: ReplicaKey) -> bool:
        scene = self.scene
        heard = scene.heard.get(key, Heard())
        at_ms = heard.caught_up_ms
        return at_ms is not None and heard.is_proven and scene.now_ms - at_ms <= scene.config.fetch_timeout_ms

    # --- RC6 to RC8 ---------------------------------------------------------------------------------------------------

    def _rc6_what_is_submitted(self, expected: tuple[object, ...] | None) -> None:
        said = [
            tuple(
                seats_of_record(record) if isinstance(record, VotersRecord)
                else record.kraft_version if isinstance(record, KRaftVersionRecord)
                else record
                for record in control.records
            )
            for control in self.scene.controls
        ]  # fmt: skip
        if said != ([] if expected is None else [expected]):
            raise self.broken("RC6", f"control records {said} are submitted, expected was {expected}")
        if said and self.waits:
            raise self.broken("RC6", "control records are submitted while others wait to be appended")
        self.waits |= bool(said)

    def _rc7_when_it_is_answered(self, change: Pending) -> None:
        scene, known = self.scene, self.scene.state.high_watermark
        if scene.has_new_role:
            self._left(change)
            return
        if change.offset is None and change.wanted is not None and scene.voters.latest == change.wanted:
            change.offset = scene.voters.latest_offset
        if change.offset is not None and known is not None and known > change.offset:
            self._finished(change, ErrorCode.NONE, f"the change at {change.offset} is committed")
        elif scene.now_ms >= change.deadline_ms:
            self._finished(change, ErrorCode.REQUEST_TIMED_OUT, "its time is up")
        elif change.request_id is not None:
            adds = isinstance(change.request, AddRaftVoterRequest)
            if change.offset is not None and adds and not change.request.ack_when_committed:
                self._expect(change, ErrorCode.NONE, f"the change is appended at {change.offset}")
                change.request_id = None
            elif (answer := scene.responses.get(change.request_id)) is not None:
                text = f"a change of the voters at {change.offset} is answered with {name_of(error_of(answer))}"
                raise self.broken("RC7", f"{text}, and is neither done nor over: high watermark {known}")
        if self.pending is not None:
            self.wakes_by("RC7", change.deadline_ms, "a change of the voters is over")

    def _left(self, change: Pending) -> None:
        """A leader that leaves answers the change that is under way: it may be committed, or not."""
        if change.request_id is None:
            return
        answer = self.scene.responses.get(change.request_id)
        over = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)
        known = self.scene.state.high_watermark
        if answer is None:
            raise self.broken("RC7", "a leader that leaves does not answer the change that is under way")
        error = error_of(answer)
        is_done = change.offset is None or known is None or known > change.offset
        is_late = error == ErrorCode.REQUEST_TIMED_OUT and self.scene.now_ms >= change.deadline_ms
        if error not in over and not is_late and not (error == ErrorCode.NONE and is_done):
            raise self.broken("RC7", f"a leader that leaves answers the change under way with {name_of(error)}")

    def _finished(self, change: Pending, error: ErrorCode, why: str) -> None:
        self._expect(change, error, why)
        self.pending = None

    def _expect(self, change: Pending, error: ErrorCode, why: str) -> None:
        if change.request_id is None:
            return
        answer = self.scene.responses.get(change.request_id)
        if answer is None:
            raise self.broken("RC7", f"{why}, and it is not answered with {error.name}")
        if error_of(answer) != error and not self.scene.has_new_role:
            raise self.broken("RC7", f"{why}, and it is answered with {name_of(error_of(answer))}, not {error.name}")

    def _rc8_a_removed_leader_resigns(self) -> None:
        scene = self.scene
        known, offset = scene.state.high_watermark, scene.voters.latest_offset
        if not scene.is_voter and known is not None and (offset or 0) < known:
            self._asked_to_resign = True
        if scene.role.resign_requested != self._asked_to_resign:
            text = f"a leader {'means' if scene.role.resign_requested else 'does not mean'} to resign"
            text += f": voter {scene.is_voter}, voters of offset {offset}, high watermark {known}"
            raise self.broken("RC8", text)


def _is_probe(request: object) -> bool:
    return type(request) is ApiVersionsRequest


JUDGED: Final[Mapping[type, Any]] = {
    AddRaftVoterRequest: ChangeRules._add,
    RemoveRaftVoterRequest: ChangeRules._remove,
    UpdateRaftVoterRequest: ChangeRules._update,
    UpdateFeaturesRequest: ChangeRules._upgrade,
}
