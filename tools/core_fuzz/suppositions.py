"""Suppositions: the core fuzzer asks a twin of a replica how it would act if some event came now.

The rules judge the twin as they judge the replica. No replica hears its answers, and the quorum goes on unchanged. So
any event may be supposed: a Vote that binds for a log that no replica has, a Fetch that vouches for missing records,
the last epoch that is believed, the last millisecond of a timer. Each lies at a border, or next to one. Then the twin
lives on for a few events: its disk flushes, its runtime appends what the core submits, a new voter answers its probe,
and else its next deadline passes.
"""

from __future__ import annotations

import copy
import copyreg
import itertools
import random as chance
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader
from kraftlib.records.control import encode_control_batch
from kraftlib.types import METADATA_TOPIC, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tools.core_fuzz import made_up
from tools.core_fuzz.forged_requests import BENDS, STRANGE_DISK, STRANGER, with_partition
from tools.core_fuzz.garble import garbled
from tools.core_fuzz.host import VERSIONS
from tools.core_fuzz.wounds import WoundedDisk
from tools.rules import Referee

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld

SHARE: Final = 0.016
"""The share of the steps before which something is supposed."""

FIRST_NUMBER: Final = 1_000_000_000
"""The number of the first request that is supposed: no other request has one so great."""

WOUNDS_SHARE: Final = 0.005
"""The share of the steps before which a twin begins a life with a wounded disk."""

OF_LEADERS: Final = 0.4
"""The share of the suppositions that are about a leader, if there is one."""

OF_BUSY_ONES: Final = 0.5
"""The share of the times that are supposed to be up at a replica whose disk is at work, if there is one."""

UPSTREAM_MARK: Final = ((10_002, b""),)
MARKED: Final = 0.25
"""The share of the Fetches that are supposed to be those of an observer to its upstream."""

EVENTS: Final = 5
"""The number of events that a twin lives for."""

PRICE_MS: Final = 100
"""The price of an epoch that a peer names."""

ASKS_THE_DISK: Final = frozenset({
    act.TruncateLog, act.InstallSnapshot, act.AdoptSnapshot, act.WriteSnapshotChunk, act.WriteRepair, act.HashDownload,
    act.SetSnapshotAside, act.DeleteBefore, act.ReloadState, act.ShutdownComplete,
})  # fmt: skip
"""A twin has no disk that would answer these."""

WOUNDED_DISK_DOES: Final = frozenset({act.TruncateLog, act.WriteRepair, act.DeleteBefore})
"""But for these, which a twin with a wounded disk can have done."""

CHANGES: Final = frozenset({AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest, UpdateFeaturesRequest})
"""The requests that change the voters or kraft.version."""


class Twin:
    """A copy of a replica and of the rules that look on, with the least of a disk and a runtime."""

    def __init__(
        self,
        referee: Referee,
        random: chance.Random,
        then: Sequence[ev.Event],
        *,
        rest_ms: int = 0,
        disk: WoundedDisk | None = None,
    ) -> None:
        """`rest_ms` pass before each of the events that come then."""
        self._referee = referee
        self._random = random
        self._next = list(then)
        self._rest_ms = rest_ms
        self._disk = disk
        self._submitted: act.SubmitControl | None = None

    def live(self, event: ev.Event, now_ms: int) -> None:
        """Handle an event, and the few after it. Raises: BrokenRuleError, or whatever goes wrong."""
        core = self._referee.core
        for _ in range(EVENTS + len(self._next)):
            actions = self._referee.handle(event, now_ms)
            asked = {type(action) for action in actions} & ASKS_THE_DISK
            if asked and not (self._disk is not None and asked <= WOUNDED_DISK_DOES):
                return
            for action in actions:
                self.perform(action)
            due_ms = core.deadline_ms()
            if self._next:
                event, now_ms = self._next.pop(0), now_ms + self._rest_ms
            elif self._submitted is not None and core.wants_records:
                event = self._drained(self._submitted)
            elif due_ms is None:
                return
            else:
                event, now_ms = ev.TimeoutReached(), max(now_ms, due_ms)

    def perform(self, action: act.Action) -> None:
        """Do what the core asks for, as far as a twin can."""
        heard = None if self._disk is None else self._disk.perform(self._referee, action)
        if heard is not None:
            place = len(self._next) if isinstance(heard, ev.ResponseReceived) else 0
            self._next.insert(place, heard)
        elif type(action) is act.FlushLog:
            self._next.append(ev.Flushed(self._referee.core.state.log.end_offset, action.log_version))
        elif type(action) is act.SubmitControl:
            self._submitted = action
        elif type(action) is act.RefuseAppends:
            self._submitted = None
        elif type(action) is act.SendRequest and type(action.request) is ApiVersionsRequest:
            versions = self._random.choice(((0, 1),) * 4 + ((0, 0), (1, 1), (2, 3)))
            kind = ApiVersionsResponse.SupportedFeatureKey
            feature = kind(name="kraft.version", min_version=versions[0], max_version=versions[1])
            answer = ApiVersionsResponse(supported_features=(feature,))
            self._next.append(ev.ResponseReceived(action.correlation_id, answer))

    def _drained(self, submitted: act.SubmitControl) -> ev.Event:
        self._submitted, core = None, self._referee.core
        batch = encode_control_batch(
            list(submitted.records), timestamp_ms=0, base_offset=core.state.log.end_offset, epoch=core.epoch
        )
        return ev.RecordsSubmitted((batch,), core.epoch)


def _copied_view(view: memoryview) -> tuple[type[memoryview], tuple[bytes]]:
    return memoryview, (bytes(view),)


copyreg.pickle(memoryview, _copied_view)  # records that a twin remembers


class Suppositions:
    """The suppositions of a run, drawn beside its schedule."""

    def __init__(self, world: CoreWorld, seed: int) -> None:
        self._world = world
        self._random = chance.Random(f"suppositions of {world.theme.name}/{seed}")
        self._wounds = chance.Random(f"wounds of {world.theme.name}/{seed}")
        self._numbers = itertools.count(FIRST_NUMBER)
        self._kinds = (
            self._vote, self._vote, self._vote, self._introduction, self._good_bye, self._time, self._time, self._fetch,
            self._fetch, self._remembered, self._remembered, self._made_up, self._wish, self._change, self._change,
            self._late_hash, self._want_of_a_snapshot, self._garbled, self._garbled, self._garbled,
            self._garbled, self._answer, self._answer, self._answer,
        )  # fmt: skip

    def maybe_suppose(self) -> None:
        """Suppose something, now and then."""
        if self._random.random() < SHARE:
            self.suppose()
        if self._wounds.random() < WOUNDS_SHARE:
            self.wound()

    def suppose(self) -> None:
        """Ask the twin of a replica. Raises: BrokenRuleError, or whatever goes wrong in it."""
        up = [host for host in self._world.up() if not host.events]
        if not up:
            return
        leaders = [host for host in up if isinstance(host.running.state.role_state, Leader)]
        host = self._random.choice(leaders if leaders and self._random.random() < OF_LEADERS else up)
        kind = self._random.choice(self._kinds)
        busy = [one for one in up if one.slow] if kind == self._time else []
        if busy and self._random.random() < OF_BUSY_ONES:
            host = self._random.choice(busy)
        event = kind(host)
        if event is None:
            return
        self._world.count("supposition")
        now_ms = self._world.now_ms
        if type(event) is ev.TimeoutReached:
            due_ms = host.running.deadline_ms()
            now_ms = max(now_ms, (due_ms or now_ms) + self._random.choice((-1, -1, 0, 0, 1, 50, 5_000)))
        first, *then = [*self._before(host, event), event]
        rest_ms = self._rest_ms(host) if type(event) is ev.RequestReceived and _wants_snapshot(event.request) else 0
        Twin(copy.deepcopy(host.referee), self._random, then, rest_ms=rest_ms).live(first, now_ms)

    def wound(self) -> None:
        """Let a twin begin a life with a wounded disk, and hear of a leader. Raises: as `suppose`."""
        random, world = self._wounds, self._world
        host = random.choice(list(world.hosts.values()))
        disk = WoundedDisk(host, random)
        referee, actions = disk.begin()
        voters = [voter for voter in referee.core.voters.others(host.key) if world.listener_name in voter.endpoints]
        if not voters or len(referee.core.voters) == 1:
            return
        world.count("wounded twin")
        leader = random.choice(voters)
        first = self._introduction_of(host, leader.key.id, referee.core.epoch + random.choice((0, 1, 1)))
        hurts = disk.hurt()
        twin = Twin(referee, random, [] if hurts is None else [hurts], disk=disk)
        for action in actions:
            twin.perform(action)
        twin.live(first, world.now_ms)

    def _rest_ms(self, host: CoreHost) -> int:
        """Return the time for which a leader takes no other snapshot for voters or for observers, or a millisecond
        less."""
        interval_ms = host.running.state.config.digest_interval_ms or 0
        voters_ms = min(max(interval_ms // 8, 50), 2_000)
        return self._random.choice((voters_ms, max(voters_ms, interval_ms))) - self._random.choice((0, 1))

    def _before(self, host: CoreHost, event: ev.Event) -> list[ev.Event]:
        """Return the events that come before it.

        Those that a change waits for, most often: all is committed, and static voters have reported. And what wants a
        snapshot has wanted one before.
        """
        kind = type(event.request) if isinstance(event, ev.RequestReceived) else None
        if isinstance(event, ev.RequestReceived) and _wants_snapshot(event.request):
            return [self._received(event.request)]
        if kind not in CHANGES or self._random.random() < 0.3 or not isinstance(host.running.state.role_state, Leader):
            return []
        log = host.running.state.log
        events: list[ev.Event] = [ev.Flushed(log.end_offset, log.log_version)]
        voters = [one for one in self._world.hosts.values() if one.key in host.running.voters and one is not host]
        fetches = (self._fetch_of(host, one.key, log.end) for one in voters)
        events += [fetch for fetch in fetches if fetch is not None]
        if kind is UpdateFeaturesRequest:
            events += [self._received(made_up.update_of(one, host)) for one in voters]
        return events

    # --- the events ---------------------------------------------------------------------------------------------------

    def _received(self, request: Any) -> ev.Event:
        version = VERSIONS.get(type(request).__name__, 0)
        return ev.RequestReceived(next(self._numbers), request, version)

    def _epoch_near(self, host: CoreHost) -> int:
        """Return the epoch of now, or one beside it; or the last one that is believed, or the first that is not."""
        state = host.running.state
        debt_ms = max(0, state.epochs_paid_at_ms - self._world.now_ms)
        brink = state.epoch + (state.config.epoch_jump_max * PRICE_MS - debt_ms) // PRICE_MS
        near = self._random.choice((0, 0, 0, 1, 1, -1, 2))
        return self._random.choice((brink, brink + 1)) if self._random.random() < 0.25 else max(0, state.epoch + near)

    def _somebody(self, host: CoreHost) -> ReplicaKey:
        """Return a replica, most often another voter; or one with its id and another disk, or none that is known."""
        keys = [one.key for one in self._world.hosts.values()]
        voters = [voter.key for voter in host.running.voters if voter.key.id != host.number]
        key = self._random.choice(voters) if voters and self._random.random() < 0.6 else self._random.choice(keys)
        disk = self._random.choice((key.directory_id,) * 4 + (STRANGE_DISK, None))
        return self._random.choice((ReplicaKey(key.id, disk),) * 5 + (ReplicaKey(STRANGER, STRANGE_DISK),))

    def _end_near(self, host: CoreHost) -> OffsetAndEpoch:
        end, near = host.running.state.log.end, (-1, 0, 0, 0, 1)
        return OffsetAndEpoch(
            offset=max(0, end.offset + self._random.choice(near)), epoch=max(0, end.epoch + self._random.choice(near))
        )

    def _vote(self, host: CoreHost) -> ev.Event:
        request = made_up.vote_for(self._somebody(host), self._epoch_near(host), self._end_near(host))
        disk = host.key.directory_id or uuid.UUID(int=0)
        if self._random.random() < 0.7:
            voter_id, disk = self._random.choice(
                ((host.number, disk),) * 4 + ((host.number, STRANGE_DISK), (STRANGER, disk))
            )
            request = attrs.evolve(with_partition(request, voter_directory_id=disk), voter_id=voter_id)
        return self._received(with_partition(request, pre_vote=self._random.random() < 0.5))

    def _introduction(self, host: CoreHost) -> ev.Event:
        return self._introduction_of(host, self._somebody(host).id, self._epoch_near(host))

    def _introduction_of(self, host: CoreHost, leader_id: ReplicaId, epoch: int) -> ev.Event:
        partition = BeginQuorumEpochRequest.PartitionData(
            voter_directory_id=host.key.directory_id or uuid.UUID(int=0), leader_id=leader_id, leader_epoch=epoch
        )
        topic = BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        return self._received(
            BeginQuorumEpochRequest(
                cluster_id="fuzz",
                voter_id=host.number,
                topics=(topic,),
                leader_endpoints=self._places_of(leader_id, BeginQuorumEpochRequest.LeaderEndpoint),
            )
        )

    def _good_bye(self, host: CoreHost) -> ev.Event:
        state = host.running.state
        known = self._random.random() < 0.6 and state.leader_id not in (None, host.number)
        leader_id = state.leader_id if known and state.leader_id is not None else self._somebody(host).id
        epoch = state.epoch if known else self._epoch_near(host)
        keys = [voter.key for voter in host.running.voters if voter.key.id != leader_id]
        self._random.shuffle(keys)
        kind = EndQuorumEpochRequest.ReplicaInfo
        named = tuple(
            kind(candidate_id=key.id, candidate_directory_id=key.directory_id or uuid.UUID(int=0)) for key in keys
        )
        partition = EndQuorumEpochRequest.PartitionData(
            leader_id=leader_id, leader_epoch=epoch, preferred_candidates=named[: self._random.randint(0, len(named))]
        )
        topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        places = self._places_of(leader_id, EndQuorumEpochRequest.LeaderEndpoint)
        return self._received(EndQuorumEpochRequest(cluster_id="fuzz", topics=(topic,), leader_endpoints=places))

    def _places_of(self, replica_id: ReplicaId, kind: Any) -> tuple[Any, ...]:
        drawn = self._random.random()
        if drawn < 0.2:
            return ()
        place = self._world.place(replica_id)
        name = "ANOTHER" if drawn < 0.3 else self._world.listener_name
        return (kind(name=name, host=place.host, port=place.port),)

    def _time(self, host: CoreHost) -> ev.Event:
        return ev.TimeoutReached()

    def _fetch(self, host: CoreHost) -> ev.Event | None:
        """A Fetch from a border: an end of the log, of an epoch, of what is committed."""
        log, state = host.running.state.log, host.running.state
        borders = [log.start_offset, log.end_offset, state.committed_offset, log.flushed_offset]
        borders += [start.start_offset for start in log.epoch_starts] + [kept.offset for kept in log.snapshots]
        offset = max(0, self._random.choice(borders) + self._random.choice((-1, 0, 0, 0, 1)))
        known = log.epoch_before(min(offset, log.end_offset))
        end = OffsetAndEpoch(offset=offset, epoch=max(0, known + self._random.choice((-1, 0, 0, 0, 0, 1))))
        epoch = max(0, state.epoch + self._random.choice((-1, 0, 0, 0, 0, 0, 1)))
        return self._fetch_of(host, self._somebody(host), end, epoch=epoch)

    def _fetch_of(
        self, host: CoreHost, who: ReplicaKey, end: OffsetAndEpoch, *, epoch: int | None = None
    ) -> ev.Event | None:
        letter = self._world.forger.remembered(self._random, FetchRequest)
        if letter is None:
            return None
        request = with_partition(
            letter.body,
            fetch_offset=end.offset,
            last_fetched_epoch=end.epoch,
            current_leader_epoch=host.running.epoch if epoch is None else epoch,
            replica_directory_id=who.directory_id or uuid.UUID(int=0),
        )
        tags = UPSTREAM_MARK if self._random.random() < MARKED else request.unknown_tagged_fields
        state = FetchRequest.ReplicaState(replica_id=who.id)
        return self._received(attrs.evolve(request, replica_state=state, unknown_tagged_fields=tags))

    def _remembered(self, host: CoreHost) -> ev.Event | None:
        """A request of another time, perhaps of another replica, perhaps bent."""
        letter = self._world.forger.remembered(self._random)
        if letter is None:
            return None
        bend = self._random.choice((*BENDS.get(type(letter.body), ()), None, None))
        body = letter.body if bend is None else bend(self._random, host, letter.body)
        return None if body is None else self._received(body)

    def _garbled(self, host: CoreHost) -> ev.Event | None:
        """A request with values that no replica sends."""
        letter = self._world.forger.remembered(self._random)
        made = self._random.choice(made_up.MADE_UP)(self._random, host) if self._random.random() < 0.5 else None
        body = letter.body if made is None and letter is not None else made
        return None if body is None else self._received(garbled(self._random, body))

    def _answer(self, host: CoreHost) -> ev.Event | None:
        """An answer to what this replica has asked, as one of another time was, or garbled."""
        asked = list(host.running.state.connections.requests.values())
        if not asked:
            return None
        one = self._random.choice(asked)
        answer = self._world.forger.remembered_answer(self._random, one.request)
        if answer is None:
            return None
        body = garbled(self._random, answer) if self._random.random() < 0.7 else answer
        return ev.ResponseReceived(one.correlation_id, body)

    def _made_up(self, host: CoreHost) -> ev.Event | None:
        body = self._random.choice(made_up.MADE_UP)(self._random, host)
        return None if body is None else self._received(body)

    def _change(self, host: CoreHost) -> ev.Event:
        """A change of the voters or of kraft.version, which only a leader makes."""
        if self._random.random() < (0.2 if self._world.is_dynamic else 0.7):
            return self._received(made_up.upgrade(self._random))
        if self._random.random() < 0.2:
            return self._received(made_up.new_place_of_a_voter(self._random, host))
        number = self._random.choice(list(self._world.hosts))
        return self._received(self._world.request_to_change(host, number, waits=self._random.random() < 0.5))

    def _late_hash(self, host: CoreHost) -> ev.Event | None:
        """A hash of the state that comes late: of a state that was replaced since, or is known to be wrong."""
        if not self._world.states.are_compared:
            return None
        digests = host.running.state.digests
        border = self._random.choice((digests.replaced_at, max(digests.own, default=0), host.high_watermark))
        offset = min(host.high_watermark, max(0, border + self._random.choice((-1, -1, 0, 1))))
        return self._world.states.hash_of(offset, is_right=self._random.random() < 0.5)

    def _want_of_a_snapshot(self, host: CoreHost) -> ev.Event | None:
        """A replica wants a snapshot of all that the log has: a leader takes one, and soon afterwards no other."""
        if not self._world.states.are_compared:
            return None
        replica_id = self._random.choice((self._somebody(host).id, STRANGER))
        end_offset = host.running.state.log.end_offset
        request = StateDigestRequest(cluster_id="fuzz", replica_id=replica_id, snapshot_from=end_offset, digests=())
        return self._received(request)

    def _wish(self, host: CoreHost) -> ev.Event | None:
        """The application wants something of this replica, or a part of it fails."""
        epoch = max(0, host.running.epoch + self._random.choice((0, 0, 0, -1)))
        return self._random.choice(
            (
                ev.ResignRequested(epoch),
                ev.TransferRequested(epoch, self._somebody(host).id, 300),
                ev.ShutdownRequested(self._random.choice((0, 300))),
                ev.ReadBarrierRequested(next(self._numbers), self._random.choice((0, 300))),
                ev.DiskSpaceChanged(not host.running.state.disk_full),
                ev.StateMachineFailed(),
                ev.ConnectionLost(self._somebody(host).id, self._random.random() < 0.5),
            )
        )


def _wants_snapshot(request: Any) -> bool:
    return type(request) is StateDigestRequest and request.snapshot_from > 0
