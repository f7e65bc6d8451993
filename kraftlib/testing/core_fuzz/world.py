"""The world of the core fuzzer: replicas, messages in any order, a clock that jumps, and operators.

Nothing moves but by a step, and each step is drawn: which message arrives next, whose flush ends, whose time is up. So
answers come after the next question, and one connection of two to the same replica is slower than the other, without
any of it being modelled.
"""

from __future__ import annotations

import random as chance
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.testing.core_fuzz.budget import may_be_replaced, may_lose_something
from kraftlib.testing.core_fuzz.coverage import Coverage, outcome
from kraftlib.testing.core_fuzz.host import OPERATOR, CoreHost, Letter
from kraftlib.testing.core_fuzz.promises import BrokenPromiseError, Promises
from kraftlib.testing.core_fuzz.store import CoreStore, StoredSnapshot
from kraftlib.testing.core_fuzz.themes import Theme
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Endpoint, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest

VERSIONS: Final = {
    "VoteRequest": 2,
    "BeginQuorumEpochRequest": 1,
    "EndQuorumEpochRequest": 1,
    "FetchRequest": 18,
    "FetchSnapshotRequest": 1,
    "AddRaftVoterRequest": 1,
}
"""In which version a request arrives; 0, unless it stands here."""

FIRST_PORT: Final = 9_000


class CoreWorld:
    """One run. `trace`, if there is one, is told every step."""

    listener_name: Final = "CONTROLLER"

    def __init__(self, seed: int, theme: Theme, *, trace: Callable[[str], None] | None = None) -> None:
        self.random = random = chance.Random(f"{theme.name}/{seed}")
        self.theme = theme
        self.trace = trace
        self.now_ms = 0
        self.events = 0
        self.appends = 0
        self.changes_done = 0
        self.counts: Counter[str] = Counter()
        self.coverage = Coverage()
        self.wire: list[Letter] = []
        self.plate: list[Letter] = []
        """Messages that are held back until somebody lets them go on: they come very late."""
        self._blobs: dict[tuple[OffsetAndEpoch, bytes], StoredSnapshot] = {}
        self._number = 0
        self._dying = 0.0
        numbers = range(1, random.choice(theme.replicas) + 1)
        self.first_voters = tuple(numbers)[: random.choice(theme.voters)]
        is_dynamic = random.random() < theme.dynamic
        self.batches_at_once = random.choice((1, 2, 100))
        self._auto_join = is_dynamic and random.random() < 0.25
        self._priorities = {i: random.choice((0, 50)) if random.random() < theme.priorities else 0 for i in numbers}
        self._bootstrap = tuple(self.place(number) for number in numbers)
        self._dies_at_once = random.choice((0.0, 0.0005, 0.002, 0.01))
        self._hold_back = random.choice((0.0, 0.02, 0.1))
        self._patience = random.choice((1, 2, 5))
        self._in_order = random.choice((0.2, 0.5, 0.8, 0.95))
        self._skips = random.choice((0.0, 0.05, 0.3))
        self._calm_share = random.choice((0.0, 0.3, 0.6, 0.8))
        self._kinds = weights = theme.draw(random)
        self._cut_share = random.choice((0.0, 0.3, 0.6))
        self._cut: frozenset[tuple[ReplicaId, ReplicaId]] = frozenset()
        """Between whom nothing arrives for now, one way or both."""
        self._refuses = False
        """Whether who asks over a cut link is told at once that nobody is there."""
        self._answers_pass = False
        """Whether answers go over a cut link: only new connections are kept out."""
        self._forgets = random.choice((0.0, 0.3, 1.0)) if weights["lose-election"] else 0.0
        self._forgetful: CoreHost | None = None
        self._is_calm = False
        self._phase_steps = 0
        self._then: Callable[[], None] | None = None
        """What follows when this phase is over."""
        self._steps = [getattr(self, "_" + name.replace("-", "_")) for name in weights]
        self._weights = list(weights.values())
        voters = self._voter_set()
        self.static_voters = None if is_dynamic else voters
        self.promises = Promises(voters)
        bootstrap = StoredSnapshot(b"", (KRaftVersionRecord(kraft_version=1), voters.to_record()))
        self.hosts = {
            number: CoreHost(self, number, CoreStore(bootstrap if is_dynamic and number in self.first_voters else None))
            for number in numbers
        }
        for host in self.hosts.values():
            host.start()

    # --- what there is -----------------------------------------------------------------------------------------------

    def place(self, number: ReplicaId) -> Endpoint:
        """Return where a replica listens."""
        return Endpoint(f"node-{number}", FIRST_PORT + number)

    def number_at(self, endpoint: Endpoint) -> ReplicaId:
        """Return which replica listens there."""
        return endpoint.port - FIRST_PORT

    def _voter_set(self) -> VoterSet:
        def key(number: int) -> ReplicaKey:
            return ReplicaKey(number, uuid.UUID(int=1_000 + number))

        return VoterSet.of(
            Voter(key=key(number), endpoints={self.listener_name: self.place(number)}, max_kraft_version=1)
            for number in self.first_voters
        )

    def settings_of(self, host: CoreHost) -> dict[str, Any]:
        """Return the configuration of a replica."""
        return {
            "bootstrap_servers": self._bootstrap,
            "auto_join": self._auto_join,
            "election_priority": self._priorities[host.number],
            "fetch_timeout_ms": 200 * self._patience,
            "election_timeout_ms": 100 * self._patience,
            "request_timeout_ms": 300 * self._patience,
            "fetch_max_wait_ms": 50,
            "priority_takeover_ms": 200,
        }

    def up(self) -> list[CoreHost]:
        """Return the replicas that run."""
        return [host for host in self.hosts.values() if host.core is not None]

    def leaders(self) -> list[CoreHost]:
        """Return the replicas that lead an epoch, as they believe."""
        return [host for host in self.up() if isinstance(host.running.state.role_state, Leader)]

    def is_durable_at(self, key: ReplicaKey, batch: Batch) -> bool:
        """Whether a voter has this batch on its disk, or a snapshot in its place."""
        host = self.hosts[key.id]
        if not key.matches(host.key):
            return False
        store = host.store
        if store.start_offset >= batch.end_offset or batch.end_offset <= self._holes_end(store):
            return True
        if store.is_amnesiac and batch.end_offset <= store.told_end_offset:
            return True  # it was, and its replica knows that it may lack something
        return batch.end_offset <= store.flushed_offset and any(
            own.base_offset == batch.base_offset and own.epoch == batch.epoch for own in reversed(store.batches)
        )

    def _holes_end(self, store: CoreStore) -> int:
        return max((hole.end_offset for hole in (*store.holes, *store.latent)), default=0)

    def next_number(self) -> int:
        """Return a number that was not used before."""
        self._number += 1
        return self._number

    def count(self, what: str) -> None:
        """Count something that happened."""
        self.counts[what] += 1

    def dies_now(self) -> bool:
        """Whether the power goes right before this action."""
        return self._dying > 0.0 and self.random.random() < self._dying

    def calm_down(self) -> None:
        """No more trouble: what is on its way arrives, in its order, and all that is down starts."""
        self._dying, self._cut = 0.0, frozenset()
        self.wire += self.plate
        self.plate = []
        for host in self.hosts.values():
            if host.is_full:
                host.is_full = False
                host.tell(ev.DiskSpaceChanged(False))
            if host.core is None:
                host.start()
            host.come_upon_damage()

    # --- the steps ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing, whatever chance says: in a calm phase one that brings the quorum on."""
        if self._phase_steps <= 0 and self._then is not None:
            then, self._then = self._then, None
            then()
        if self._phase_steps <= 0:
            self._is_calm = self.random.random() < self._calm_share
            self._phase_steps = self.random.randrange(20, 200)
            self._cut = self._draw_cut() if self.random.random() < self._cut_share else frozenset()
            self._refuses = self._answers_pass = False
        self._phase_steps -= 1
        if self._forgetful is not None:
            host, self._forgetful = self._forgetful, None
            self._forget_and_go_back(host)
        if self._cut and self.random.random() < 0.1:
            self._time()  # or a cut would be over before anybody misses anybody
        elif self._is_calm:
            self._calm()
        else:
            self.random.choices(self._steps, self._weights)[0]()

    def _draw_cut(self) -> frozenset[tuple[ReplicaId, ReplicaId]]:
        """Draw who is cut off: most often the leader, from all others or some."""
        random = self.random
        leaders = [host.number for host in self.leaders()]
        one = random.choice(leaders) if leaders and random.random() < 0.7 else random.choice(list(self.hosts))
        others = [number for number in self.hosts if number != one]
        if random.random() < 0.4:
            others = random.sample(others, random.randint(1, len(others)))
        pairs = {(one, other) for other in others} if random.random() < 0.85 else set()
        pairs |= {(other, one) for other in others} if random.random() < 0.85 else set()
        self.count("cut links")
        return frozenset(pairs)

    def _is_lost(self, letter: Letter) -> bool:
        """Whether a message meets a cut link. It may be on its way until that is mended; or its connection breaks."""
        if (letter.source, letter.target) not in self._cut or (letter.is_answer and self._answers_pass):
            return False
        if self._refuses:
            self._fail(letter, refused=True)
            return True
        chance = self.random.random()
        if chance < 0.3:
            self.plate.append(letter)
        elif chance < 0.6:
            self._fail(letter, refused=chance < 0.4)
        return True

    def _calm(self) -> None:
        chance = self.random.random()
        if self.wire and chance < 0.75:
            self.hand(self.wire.pop(0))
        elif chance < 0.9 and any(host.store.flushes or host.slow for host in self.up()):
            self._flush()
        elif chance < 0.97:
            self._append()
        elif not self.wire:
            self.random.choice((self._start, self._change, self._snapshot, self._read))()
        if not self.wire and not any(host.store.flushes for host in self.up()):
            self.pass_time(whole=True)

    def post(self, letter: Letter) -> None:
        """Put a message on its way."""
        self.wire.append(letter)

    def _take(self) -> Letter | None:
        wire = self.wire
        if not wire:
            return None
        return wire.pop(0 if self.random.random() < self._in_order else self.random.randrange(len(wire)))

    def _deliver(self) -> None:
        letter = self._take()
        if letter is None:
            if any(host.store.flushes or host.slow for host in self.up()):
                self._flush()
            else:
                self._time()
        elif letter.is_answer and self.random.random() < self._held_back(letter):
            self.plate.append(letter)
        else:
            self.hand(letter)

    def _held_back(self, letter: Letter) -> float:
        """How likely an answer comes very late: more so, if it would cut a log back or replace it."""
        if not self._hold_back or not isinstance(letter.body, FetchResponse):
            return self._hold_back
        return 0.4 if outcome(letter.body) in ("diverging", "snapshot") else self._hold_back

    def _late(self) -> None:
        if self.plate:
            self.count("late answer")
            self.hand(self.plate.pop(self.random.randrange(len(self.plate))))

    def hand(self, letter: Letter) -> None:
        """Let a message arrive."""
        host = self.hosts.get(letter.target)
        if host is None or (self._cut and self._is_lost(letter)):
            return
        if letter.is_answer:
            if host.core is None or host.life != letter.life:
                return
            number = letter.correlation_id
            closed = letter.body is None
            host.tell(
                ev.RequestFailed(number, ev.Failure.DISCONNECTED)
                if closed
                else ev.ResponseReceived(number, letter.body)
            )
        elif host.core is None:
            self._fail(letter, refused=True)
        elif isinstance(letter.body, ApiVersionsRequest):
            feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            host.requests[number := self.next_number()] = letter
            host.answer(number, ApiVersionsResponse(supported_features=(feature,)))
        else:
            host.hear_request(letter, VERSIONS.get(type(letter.body).__name__, 0))

    def _lose(self) -> None:
        letter = self._take()
        if letter is None:
            return
        self.count("message lost")
        if self.random.random() < 0.7:
            self._fail(letter, refused=self.random.random() < 0.2)

    def _fail(self, letter: Letter, *, refused: bool) -> None:
        asker = self.hosts[letter.target if letter.is_answer else letter.source]
        if asker.core is None or asker.life != letter.life:
            return
        asker.tell(ev.RequestFailed(letter.correlation_id, ev.Failure.DISCONNECTED))
        if asker.core is not None and (refused or self.random.random() < 0.5):
            asker.tell(ev.ConnectionLost(letter.destination, refused))

    def _flush(self) -> None:
        busy = [host for host in self.up() if host.store.flushes or host.slow]
        if not busy:
            return
        host = self.random.choice(busy)
        if host.slow and (not host.store.flushes or self.random.random() < 0.3):
            host.tell(host.slow.pop(0))
        else:
            host.finish_flush()

    def _time(self) -> None:
        self.pass_time(whole=False)

    def pass_time(self, *, whole: bool) -> None:
        """Let time go to the next moment that somebody waits for; with `whole`, no one's is passed over."""
        random = self.random
        due = [(at_ms, host.number) for host in self.up() if (at_ms := host.running.deadline_ms()) is not None]
        if not due:
            return
        at_ms, _ = random.choice(due) if not whole and random.random() < self._skips else min(due)
        if at_ms > self.now_ms:
            self.now_ms = (
                at_ms if whole or random.random() < 0.5 else min(at_ms, self.now_ms + random.choice((1, 5, 20)))
            )
        for host in self.up():
            deadline_ms = None if host.core is None else host.core.deadline_ms()
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                host.tell(ev.TimeoutReached())

    def _append(self) -> None:
        for host in self.leaders():
            if host.running.wants_records and not host.is_full:
                self.append_to(host)

    def append_to(self, host: CoreHost) -> None:
        """Let a leader append: the control records that wait, or a few others."""
        core, submitted = host.running, host.control
        host.control = None
        end_offset = host.store.end_offset
        if submitted is not None and host.control_epoch == core.epoch:
            batch = encode_control_batch(
                list(submitted.records), timestamp_ms=0, base_offset=end_offset, epoch=core.epoch
            )
        else:
            values = [b"%d" % self.random.getrandbits(40)] * self.random.choice((1, 1, 3))
            batch = encode_batch(values, timestamp_ms=0, base_offset=end_offset, epoch=core.epoch)
            self.appends += 1
        host.tell(ev.RecordsSubmitted((batch,), core.epoch))

    def _read(self) -> None:
        if up := self.up():
            host, number = self.random.choice(up), self.next_number()
            host.reads[number] = self.promises.committed_end
            host.tell(ev.ReadBarrierRequested(number, 1_000))

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _snapshot(self) -> None:
        if up := self.up():
            self._snapshot_of(self.random.choice(up))

    def _snapshot_of(self, host: CoreHost) -> None:
        store, view, random = host.store, host.running.state.log, self.random
        ends = [batch for batch in store.batches if batch.end_offset <= min(host.high_watermark, store.flushed_offset)]
        if not ends or store.is_damaged:
            return
        batch = ends[-1] if random.random() < 0.5 else random.choice(ends[-3:])
        snapshot_id = OffsetAndEpoch(offset=batch.end_offset, epoch=batch.epoch)
        if any(kept.offset >= snapshot_id.offset for kept in store.snapshots):
            return
        kraft_version, voters = view.kraft_version.at(snapshot_id.offset - 1), view.voters.at(snapshot_id.offset - 1)
        controls: tuple[object, ...] = ()
        if self.static_voters is None:
            if not len(voters) or kraft_version < 1:
                raise BrokenPromiseError("I14", f"{host} knows no voters for the snapshot {snapshot_id}")
            controls = (KRaftVersionRecord(kraft_version=kraft_version), voters.to_record())
        # The state is the same everywhere; its bytes need not be, in Kafka's replicas.
        data = (b"%d-" % (host.number if random.random() < 0.6 else 0)) * random.choice((5, 25))
        snapshot = self._blobs.setdefault((snapshot_id, data), StoredSnapshot(data, controls))
        if str(snapshot.controls) != str(controls):
            raise BrokenPromiseError("I14", f"{host} has other voters in snapshot {snapshot_id} than another replica")
        store.snapshots[snapshot_id] = snapshot
        self.count("snapshot")
        host.tell(ev.SnapshotCreated(snapshot_id))
        if host.core is not None and random.random() < 0.7:
            host.tell(ev.RetentionDue(snapshot_id))

    def snapshot_of(self, host: CoreHost, snapshot_id: OffsetAndEpoch, data: bytes) -> StoredSnapshot:
        """Return the snapshot that a download has made; it must be one that somebody took."""
        snapshot = self._blobs.get((snapshot_id, data))
        if snapshot is None:
            raise BrokenPromiseError("I14", f"the download of {snapshot_id} at {host} is made of two files")
        return snapshot

    # --- trouble -----------------------------------------------------------------------------------------------------

    def _power(self) -> None:
        self._dying = self._dies_at_once if self.random.random() < 0.5 else 0.0

    def _crash(self) -> None:
        host = self.random.choice(list(self.hosts.values()))
        if host.core is not None:
            self._end(host)

    def _end(self, host: CoreHost) -> None:
        self.count("power loss")
        host.crash()
        host.down_until_ms = self.now_ms + self.random.choice((0, 10, 300, 3_000))

    def _start(self) -> None:
        for host in self.hosts.values():
            if host.core is None and (self.now_ms >= host.down_until_ms or self.random.random() < 0.2):
                host.start()

    def _impair(self, what: str, do: Callable[[CoreHost], object], host: CoreHost | None = None) -> None:
        with_log = [one for one in self.hosts.values() if one.store.batches]
        if host is None and not with_log:
            return
        host = host or self.random.choice(with_log)
        if not host.store.batches or not may_lose_something(self, host):
            return
        if host.core is not None:
            self._end(host)
        if do(host) is not None:
            self.count(what)

    def _lose_election(self) -> None:
        self._lose_vote_of(None)

    def vote_is_cast(self, host: CoreHost) -> None:
        """A replica has voted for another one: now and then this is what it forgets."""
        if self._forgets and self.random.random() < self._forgets:
            self._forgetful = host

    def _forget_and_go_back(self, host: CoreHost) -> None:
        """Let a replica forget whom it has just voted for, who then is not heard for a while, under the old leader.

        Later the old leader dies, and others stand: for the epoch of the forgotten vote, if nobody knows better.
        """
        election = host.store.election
        voted = None if election is None or election.voted_key is None else election.voted_key.id
        if voted is None or not may_lose_something(self, host):
            return
        self._lose_vote_of(host)
        if host.core is None:
            host.start()
        others = [number for number in self.hosts if number != voted]
        self._cut = frozenset([(voted, other) for other in others] + [(other, voted) for other in others])
        self._refuses = self._answers_pass = False
        self._is_calm, self._phase_steps = True, self.random.randrange(40, 160)
        self._then = self._old_leaders_die

    def _old_leaders_die(self) -> None:
        for leader in self.leaders():
            self._end(leader)
            leader.down_until_ms = self.now_ms + 3_000
        if self.random.random() < 0.5:
            self._cut = frozenset()
        self._is_calm, self._phase_steps = True, self.random.randrange(40, 160)

    def _lose_vote_of(self, host: CoreHost | None) -> None:
        def lose(host: CoreHost) -> bool:
            host.store.lose_election()
            if self.random.random() < 0.7:
                host.down_until_ms = self.now_ms
            return True

        self._impair("lost election" if host is None else "lost vote", lose, host)

    def _stale_copy(self) -> None:
        def lose(host: CoreHost) -> bool:
            host.store.forget_tail(self.random)
            return True

        self._impair("lost end of a log", lose)

    def _damage(self) -> None:
        """Lose records that were durable, while a replica runs or while it is down: often those of a leader."""
        whole = [host for host in self.hosts.values() if host.store.batches and not host.store.is_damaged]
        leaders = [host for host in self.leaders() if host in whole] if self.random.random() < 0.3 else []
        if not whole:
            return
        host = self.random.choice(leaders or whole)
        if host.core is not None and self.random.random() < 0.5:  # while it runs
            if may_lose_something(self, host) and host.store.damage(self.random, latent=True):
                self.count("damaged log")
                if self.random.random() < 0.7:
                    host.come_upon_damage()
            return
        self._impair("damaged log", lambda one: one.store.damage(self.random, latent=self.random.random() < 0.3), host)

    def _lose_snapshot(self) -> None:
        found = [
            (host, snapshot_id)
            for host in self.hosts.values()
            for snapshot_id in sorted(host.store.snapshots)
            if snapshot_id != BOOTSTRAP_SNAPSHOT
        ]
        if not found:
            return
        whole_logs = [(host, snapshot_id) for host, snapshot_id in found if snapshot_id.offset == host.store.end_offset]
        host, snapshot_id = self.random.choice(whole_logs if whole_logs and self.random.random() < 0.7 else found)
        if not may_lose_something(self, host):
            return
        self.count("lost snapshot")
        if host.core is None or self.random.random() < 0.4:
            if host.core is not None:
                self._end(host)
            host.store.set_aside(snapshot_id)
        else:
            host.tell(ev.SnapshotDamaged(snapshot_id, "fuzzed"))
        if self.random.random() < 0.5:
            self._depose()  # somebody asks for its vote soon

    def _full(self) -> None:
        if up := self.up():
            host = self.random.choice(up)
            host.is_full = not host.is_full
            self.count("full disk")
            host.tell(ev.DiskSpaceChanged(host.is_full))

    def _replace(self) -> None:
        host = self.random.choice(list(self.hosts.values()))
        if may_be_replaced(self, host):
            self.count("replaced disk")
            self._end(host)
            host.new_disk()

    # --- on purpose ---------------------------------------------------------------------------------------------------

    def _depose(self) -> None:
        """Cut a leader off that goes on to append; the others elect another one, and its log diverges."""
        leaders = [host for host in self.leaders() if host.running.voters.majority > 1]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        self.count("deposed leader")
        for _ in range(self.random.choice((1, 1, 2, 4))):
            if (
                leader.core is not None
                and leader in self.leaders()
                and leader.core.wants_records
                and not leader.is_full
            ):
                self.append_to(leader)
            if leader.store.flushes and self.random.random() < 0.8:
                leader.finish_flush()
        others = [number for number in self.hosts if number != leader.number]
        self._cut = frozenset((leader.number, other) for other in others) | frozenset(
            (other, leader.number) for other in others
        )
        self._refuses = self._answers_pass = False
        self._is_calm, self._phase_steps = True, self.random.randrange(60, 200)

    def _refuse(self) -> None:
        """Let the link between the leader and one voter be refused for long, while all others hear the leader."""
        leaders = [host for host in self.leaders() if len(host.running.voters) >= 3]
        if not leaders or self._then is not None:
            return
        leader = self.random.choice(leaders)
        others = [voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number]
        one = self.random.choice(others)
        self.count("refused link")
        self._cut = frozenset({(one, leader.number), (leader.number, one)})
        self._refuses, self._answers_pass = True, False
        self._is_calm, self._phase_steps = True, self.random.randrange(200, 500)
        host = self.hosts[one]
        if host.core is not None:
            host.tell(ev.ConnectionLost(leader.number, refused=False))

    def _mute(self) -> None:
        """Let nobody connect to one replica for long, best one that is wanted as leader, which reaches everybody."""
        numbers = [number for number, priority in self._priorities.items() if priority] or list(self.hosts)
        if self._then is not None:
            return
        one = self.random.choice(numbers)
        self.count("muted replica")
        self._cut = frozenset((other, one) for other in self.hosts if other != one)
        self._refuses, self._answers_pass = self.random.random() < 0.3, True
        self._is_calm, self._phase_steps = True, self.random.randrange(300, 900)

    def _corner(self) -> None:
        """Let one voter fall behind; then the leader dies, and a third one, which has everything, loses something.

        What is committed is on two disks by then: the one that is gone for a while, and the one that is hurt.
        """
        leaders = [host for host in self.leaders() if len(host.running.voters) >= 3]
        if not leaders or self._then is not None:
            return
        leader = self.random.choice(leaders)
        others = [voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number]
        behind = self.random.sample(others, len(others) // 2)
        cut = {(one, other) for one in behind for other in self.hosts if other not in behind}
        self._cut = frozenset(cut | {(other, one) for one, other in cut})
        self._refuses = self._answers_pass = False
        self._is_calm, self._phase_steps = True, self.random.randrange(60, 250)
        self._then = lambda: self._close_in(behind)

    def _close_in(self, behind: Sequence[ReplicaId]) -> None:
        self.count("last copies")
        rest = [host for host in self.up() if host.number not in behind and host.running.is_voter]
        leaders = [host for host in rest if isinstance(host.running.state.role_state, Leader)]
        hurt = [host for host in rest if host not in leaders]
        for leader in leaders:
            self._end(leader)
            leader.down_until_ms = self.now_ms + self.random.choice((0, 3_000, 3_000))
        if hurt:
            self._hurt(self.random.choice(hurt))
        self._cut = frozenset()
        self._is_calm, self._phase_steps = self.random.random() < 0.7, self.random.randrange(60, 200)

    def _hurt(self, host: CoreHost) -> None:
        """Take something from a replica, if the budget allows it, and let it run again at once."""
        kinds = [name for name in ("lose-election", "damage", "lose-snapshot", "stale-copy") if self._kinds[name]]
        kinds = kinds or ["lose-election"]
        if not may_lose_something(self, host):
            return
        kind = self.random.choice(kinds)
        newest = max(host.store.snapshots, default=BOOTSTRAP_SNAPSHOT)
        if kind == "lose-snapshot" and newest != BOOTSTRAP_SNAPSHOT:
            self.count("lost snapshot")
            host.tell(ev.SnapshotDamaged(newest, "fuzzed"))
            return
        self._end(host)
        if kind == "damage":
            host.store.damage(self.random, latent=self.random.random() < 0.3)
        elif kind == "stale-copy":
            host.store.forget_tail(self.random)
        else:
            host.store.lose_election()
        self.count("hurt " + kind)
        host.start()

    def _change_and_die(self) -> None:
        """Change the voters, and let the leader lose power soon after it has sent the record."""
        before = {host.number for host in self.leaders()}
        self._change()
        for leader in self.leaders():
            if leader.number not in before or leader.control is None or leader.core is None or leader.is_full:
                continue
            if leader.core.wants_records:
                self.append_to(leader)
            for _ in range(self.random.randrange(12)):
                letter = self._take()
                if letter is not None:
                    self.hand(letter)
                for host in self.up():
                    if host is not leader and host.store.flushes:
                        host.finish_flush()
            if leader.core is not None:
                self._end(leader)
            return

    def _change_source(self) -> None:
        """Let the leader from whom somebody fetches a snapshot lead no more."""
        loading = [host for host in self.up() if host.store.incoming is not None]
        if not loading:
            return
        leader = self.hosts.get(self.random.choice(loading).running.state.leader_id or 0)
        if leader is None or leader.core is None:
            return
        self.count("source of a download changed")
        if self.random.random() < 0.5:
            leader.tell(ev.ResignRequested(leader.core.epoch))
        else:
            self._end(leader)

    # --- operators ---------------------------------------------------------------------------------------------------

    def _resign(self) -> None:
        if leaders := self.leaders():
            host = self.random.choice(leaders)
            host.tell(ev.ResignRequested(host.running.epoch))

    def _transfer(self) -> None:
        if leaders := self.leaders():
            host = self.random.choice(leaders)
            host.tell(ev.TransferRequested(host.running.epoch, self.random.choice(list(self.hosts)), 500))

    def _change(self) -> None:
        leaders = [host for host in self.leaders() if host.running.high_watermark is not None]
        if not leaders or self.static_voters is not None:
            return
        leader, number = self.random.choice(leaders), self.random.choice(list(self.hosts))
        if len(leader.running.voters) == 2 and self.random.random() < 0.5:
            number = next(voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number)
        voter = leader.running.voters.get(number)
        request: AddRaftVoterRequest | RemoveRaftVoterRequest
        if voter is not None:
            request = RemoveRaftVoterRequest(
                cluster_id="fuzz", voter_id=number, voter_directory_id=voter.key.directory_id or uuid.UUID(int=0)
            )
        else:
            place = self.place(number)
            listener = AddRaftVoterRequest.Listener(name=self.listener_name, host=place.host, port=place.port)
            request = AddRaftVoterRequest(
                cluster_id="fuzz",
                timeout_ms=500,
                voter_id=number,
                voter_directory_id=self.hosts[number].key.directory_id or uuid.UUID(int=0),
                ack_when_committed=self.random.random() < 0.5,
                listeners=(listener,),
            )
        self.count("voter change")
        self.hand(Letter(OPERATOR, 0, leader.number, 0, 0, request))

    def operator_hears(self, host: CoreHost, request: Any, response: Any) -> None:
        """A voter change is answered: one that is done stands in the log of its leader."""
        if response is None or response.error_code != 0:
            return
        self.changes_done += 1
        if isinstance(request, RemoveRaftVoterRequest) or request.ack_when_committed:
            offset = host.running.state.log.voters.latest_offset
            if offset is None or offset >= self.promises.committed_end:
                raise BrokenPromiseError("V6", f"{host} says that a voter change is done, and it is not committed")
