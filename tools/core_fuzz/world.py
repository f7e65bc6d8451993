"""The world of the core fuzzer: replicas, messages in any order, a clock that jumps, and operators.

Nothing moves but by a step, and each step is drawn: which message arrives next, whose flush ends, whose time is up. So
answers come after the next question, and one connection of two to the same replica is slower than the other, without
any of it being modelled.
"""

from __future__ import annotations

import random as chance
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader, Resigned
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import ensure
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from tools.core_fuzz.coverage import Coverage, outcome
from tools.core_fuzz.errands import Errands
from tools.core_fuzz.forgery import Forger
from tools.core_fuzz.host import NO_LIFE, OPERATOR, VERSIONS, CoreHost, Letter
from tools.core_fuzz.inquiries import Inquiries
from tools.core_fuzz.oddities import Oddities, draw_habits
from tools.core_fuzz.phase import Phase
from tools.core_fuzz.plots import Plots
from tools.core_fuzz.promises import BrokenPromiseError, Promises
from tools.core_fuzz.states import States
from tools.core_fuzz.store import CoreStore, StoredSnapshot
from tools.core_fuzz.suppositions import Suppositions
from tools.core_fuzz.themes import Theme
from tools.core_fuzz.trouble import Trouble

FIRST_PORT: Final = 9_000

PORTS_APART: Final = 100
"""The distance between the ports of a replica before and after it moves. Every old address still leads to it."""

WITH_UPSTREAMS: Final = 0.8
"""The share of the seeds whose observers fetch from other replicas than the leader, unless they are to vote."""

WITH_ID_0: Final = 0.25
"""The share of the seeds whose first replica has the id 0, which Kafka allows, too. In the others it has 1."""


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
        """Messages that are held back until a step lets them go on: they come very late."""
        self.phase = Phase()
        self.forger, self.trouble, self.plots = Forger(self), Trouble(self), Plots(self)
        self.inquiries = Inquiries(self, seed)
        self.states = States(self, seed)
        self.suppositions = Suppositions(self, seed)
        self._blobs: dict[tuple[OffsetAndEpoch, bytes], StoredSnapshot] = {}
        self._number = 0
        self.dying = 0.0
        first = 0 if chance.Random(f"first id of {theme.name}/{seed}").random() < WITH_ID_0 else 1
        numbers = range(first, first + random.choice(theme.replicas))
        self.first_voters = tuple(numbers)[: random.choice(theme.voters)]
        self.is_dynamic = is_dynamic = random.random() < theme.dynamic
        """Whether the voters stand in the log from the beginning."""
        self.errands = Errands(self, seed)
        self.batches_at_once = random.choice((1, 2, 100))
        self.oddities = Oddities.of(seed, theme.name)
        self._moved: Counter[ReplicaId] = Counter()
        self._auto_join = is_dynamic and (random.random() < 0.25 or "rejoin" in self.errands.wanted)
        self.priorities = {i: random.choice((0, 50)) if random.random() < theme.priorities else 0 for i in numbers}
        self._bootstrap = tuple(self.place(number) for number in numbers)
        self._leaves_failed = chance.Random(f"failed machines of {theme.name}/{seed}").random() < 0.7
        """Whether whose state machine has failed is not restarted at the end, while another voter may lead."""
        self._habits = draw_habits(chance.Random(f"habits of {theme.name}/{seed}"))
        self._upstreams = self._draw_upstreams(chance.Random(f"upstreams of {theme.name}/{seed}"))
        self.dies_at_once = random.choice((0.0, 0.0005, 0.002, 0.01))
        self._hold_back = random.choice((0.0, 0.02, 0.1))
        self._patience = random.choice((1, 2, 5))
        if "rejoin" in self.errands.wanted:
            self._patience = 1  # a replica asks once in a fetch timeout
        self._in_order = random.choice((0.2, 0.5, 0.8, 0.95))
        self._skips = random.choice((0.0, 0.05, 0.3))
        self._calm_share = random.choice((0.0, 0.3, 0.6, 0.8))
        self.kinds = weights = theme.draw(random)
        self._cut_share = random.choice((0.0, 0.3, 0.6))
        self.forgets = random.choice((0.0, 0.3, 1.0)) if weights["lose-election"] else 0.0
        self.forgetful: CoreHost | None = None
        self._steps = [self.step_named(name) for name in weights]
        self._weights = list(weights.values())
        voters = self._voter_set()
        self.static_voters = None if is_dynamic else voters
        if not is_dynamic and chance.Random(f"static voters of {theme.name}/{seed}").random() < 0.7:
            voters = self.static_voters = _without_disks(voters)
        self.promises = Promises(voters)
        record = voters.to_record()
        if chance.Random(f"names of {theme.name}/{seed}").random() < 0.3:
            record = _with_small_names(record)
        bootstrap = StoredSnapshot(b"", (KRaftVersionRecord(kraft_version=1), record))
        self.hosts = {
            number: CoreHost(self, number, CoreStore(bootstrap if is_dynamic and number in self.first_voters else None))
            for number in numbers
        }
        for host in self.hosts.values():
            host.start()

    # --- what there is -----------------------------------------------------------------------------------------------

    def place(self, number: ReplicaId) -> Endpoint:
        """Return where a replica listens, and says so."""
        return Endpoint(f"node-{number}", FIRST_PORT + number + PORTS_APART * self._moved[number])

    def places_of(self, number: ReplicaId) -> dict[str, Endpoint]:
        """Return where a replica says that it listens, by the names of its listeners."""
        own, is_listening_twice = self.place(number), self.oddities.random.random() < self.oddities.listens_twice
        other = {"OTHER": Endpoint("elsewhere", own.port)} if is_listening_twice else {}
        return {self.listener_name: own, **other}

    def may_move(self, number: ReplicaId) -> None:
        """Give a replica that starts another address, now and then: the voters of its log name the old one."""
        if self.oddities.random.random() < self.oddities.moves:
            self.count("moved replica")
            self._moved[number] += 1

    def number_at(self, endpoint: Endpoint) -> ReplicaId:
        """Return which replica listens there."""
        port = endpoint.port - FIRST_PORT
        return port % PORTS_APART if port >= 0 and endpoint.host.startswith("node-") else -1

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
            "election_priority": self.priorities[host.number],
            "fetch_timeout_ms": 200 * self._patience,
            "election_timeout_ms": 100 * self._patience,
            "request_timeout_ms": 300 * self._patience,
            "fetch_max_wait_ms": 50,
            "priority_takeover_ms": 200,
            **self._habits,
            "yield_to": self._yields(host.number),
            "upstreams": self._upstreams_of(host.number),
        }

    def _draw_upstreams(self, random: chance.Random) -> Mapping[ReplicaId, tuple[ReplicaId, ...]]:
        """Draw which observers fetch from which others, in this order, and perhaps in a circle: mostly none does."""
        if random.random() >= WITH_UPSTREAMS or self._auto_join or not self._habits.get("private_apis", True):
            return {}
        found = {}
        for number in set(self.priorities) - set(self.first_voters):
            others = [other for other in self.priorities if other != number]
            if random.random() < 0.8:
                found[number] = tuple(random.sample(others, random.randint(1, min(3, len(others)))))
        return found

    def _upstreams_of(self, number: ReplicaId) -> tuple[Endpoint, ...]:
        return tuple(self.place(other) for other in self._upstreams.get(number, ()))

    def _yields(self, number: ReplicaId) -> tuple[ReplicaId, ...] | None:
        others = tuple(other for other in self._habits.get("yield_to", ()) if other != number)
        return others or None

    def up(self) -> list[CoreHost]:
        """Return the replicas that run."""
        return [host for host in self.hosts.values() if host.core is not None]

    def leaders(self) -> list[CoreHost]:
        """Return the replicas that lead an epoch, as they believe."""
        return [host for host in self.up() if isinstance(host.running.state.role_state, Leader)]

    def leader_of(self, host: CoreHost) -> CoreHost | None:
        """Return the leader that a replica knows, which need not run."""
        leader_id = host.running.state.leader_id
        return None if leader_id is None else self.hosts.get(leader_id)

    def is_durable_at(self, key: ReplicaKey, batch: Batch) -> bool:
        """Whether a voter has this batch on its disk, or a snapshot in its place; a replaced disk counts as it was."""
        host = self.hosts[key.id]
        disks = ((host.key, host.store), *host.lost_disks)
        return any(key.matches(own) and self._is_durable_on(store, batch) for own, store in disks)

    def _is_durable_on(self, store: CoreStore, batch: Batch) -> bool:
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
        return self.dying > 0.0 and self.random.random() < self.dying

    def calm_down(self) -> None:
        """No more trouble: all messages arrive, in their order, and all replicas start."""
        self.dying, self.phase.cut = 0.0, frozenset()
        self.states.compare_again()
        self.oddities = attrs.evolve(
            self.oddities,
            identifies=0.0,
            hides_places=0.0,
            breaks=0.0,
            lacks_space=0.0,
            reads_badly=0.0,
            spoils_repairs=0.0,
            mixes_epochs=0.0,
            counts_others=0.0,
            strange_headers=0.0,
        )
        self.wire += self.plate
        self.plate = []
        are_restarted = not self._leaves_failed or not self._is_any_voter_sound()
        for host in self.hosts.values():
            if host.is_full:
                host.is_full = False
                host.tell(ev.DiskSpaceChanged(False))
            state = None if host.core is None else host.core.state
            has_failed = state is not None and state.machine_failed_ms is not None and state.digests.quarantine is None
            if state is not None and (state.shutting_down or (has_failed and are_restarted)):
                host.crash()
            if host.core is None:
                host.start()
            host.come_upon_damage()

    def _is_any_voter_sound(self) -> bool:
        voters = [host.core.state for host in self.hosts.values() if host.core is not None and host.core.is_voter]
        down = [host for host in self.hosts.values() if host.core is None and host.number in self.first_voters]
        is_any_down = any(not host.disks for host in down)  # one with another disk is no voter, it may be
        return is_any_down or any(state.machine_failed_ms is None for state in voters)

    # --- the steps ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing, whatever chance says: in a calm phase one that brings the quorum on."""
        self.suppositions.maybe_suppose()
        if self.phase.steps <= 0 and self.phase.then is not None:
            then, self.phase.then = self.phase.then, None
            then()
        if self.errands.is_urgent:
            self.errands.interrupt()
        if self.inquiries.is_urgent:
            self.inquiries.prune()
        if self.phase.steps <= 0 and self.errands.is_due():
            self.errands.begin()
        elif self.phase.steps <= 0:
            self.phase.is_calm = self.random.random() < self._calm_share
            self.phase.steps = self.random.randrange(20, 200)
            self.phase.cut = self._draw_cut() if self.random.random() < self._cut_share else frozenset()
            self.phase.is_still = self.phase.refuses = self.phase.answers_pass = False
        self.phase.steps -= 1
        if self.forgetful is not None:
            host, self.forgetful = self.forgetful, None
            self.trouble.forget_and_go_back(host)
        if self.plots.is_under_way:
            self.plots.follow_up()
        if self.phase.cut and self.random.random() < 0.1:
            self.time()  # or a cut would be over before any replica is missed
        elif self.phase.is_calm:
            self._calm()
        else:
            self.random.choices(self._steps, self._weights)[0]()

    def step_named(self, name: str) -> Callable[[], None]:
        """Return the step of this name, of the part that has it."""
        parts = (self, self.trouble, self.plots, self.forger, self.inquiries)
        found = [getattr(part, name.replace("-", "_"), None) for part in parts]
        steps: list[Callable[[], None]] = [step for step in found if step is not None]
        ensure(len(steps) == 1, f"{len(steps)} parts know a step {name}")
        return steps[0]

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
        if (letter.source, letter.target) not in self.phase.cut or (letter.is_answer and self.phase.answers_pass):
            return False
        if self.phase.refuses:
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
            self.flush()
        elif self.phase.is_still:
            if any(host.control is not None for host in self.up()):
                self.append()
        elif chance < 0.97:
            self.append()
        elif not self.wire:
            self.random.choice((self.trouble.start, self.change, self.snapshot, self.read))()
        if not self.wire and not any(host.store.flushes for host in self.up()):
            self.pass_time(whole=True)

    def post(self, letter: Letter) -> None:
        """Put a message on its way."""
        if (body := self.oddities.as_said(letter.body)) is not letter.body:
            letter = attrs.evolve(letter, body=body)
        if letter.is_answer:
            letter = self.forger.pass_on(letter)
        else:
            self.forger.note(letter)
        self.wire.append(letter)

    def take(self) -> Letter | None:
        wire = self.wire
        if not wire:
            return None
        return wire.pop(0 if self.random.random() < self._in_order else self.random.randrange(len(wire)))

    def deliver(self) -> None:
        letter = self.take()
        if letter is None:
            if any(host.store.flushes or host.slow for host in self.up()):
                self.flush()
            else:
                self.time()
        elif letter.is_answer and self.random.random() < self._held_back(letter):
            self.plate.append(letter)
        else:
            self.hand(letter)

    def _held_back(self, letter: Letter) -> float:
        """How likely an answer comes very late: more so, if it would cut a log back or replace it."""
        if not self._hold_back or not isinstance(letter.body, FetchResponse):
            return self._hold_back
        return 0.4 if outcome(letter.body) in ("diverging", "snapshot") else self._hold_back

    def late(self) -> None:
        if self.plate:
            self.count("late answer")
            self.hand(self.plate.pop(self.random.randrange(len(self.plate))))

    def hand(self, letter: Letter) -> None:
        """Let a message arrive."""
        host = self.hosts.get(letter.target)
        if host is None or (self.phase.cut and self._is_lost(letter)):
            return
        if self.states.is_kept_apart(letter):
            self._fail(letter, refused=False)
            return
        if letter.is_answer:
            if host.core is None or host.life != letter.life:
                return
            number = letter.correlation_id
            failure = ev.Failure.DISCONNECTED if letter.body is None else letter.body
            is_failure = isinstance(failure, ev.Failure)
            host.tell(ev.RequestFailed(number, failure) if is_failure else ev.ResponseReceived(number, letter.body))
        elif host.core is None:
            self._fail(letter, refused=True)
        elif isinstance(letter.body, ApiVersionsRequest):
            least, newest = self.oddities.versions_of(host.number)
            kind = ApiVersionsResponse.SupportedFeatureKey
            feature = kind(name="kraft.version", min_version=least, max_version=newest)
            host.requests[number := self.next_number()] = letter
            host.answer(number, ApiVersionsResponse(supported_features=(feature,)))
        else:
            host.hear_request(letter, VERSIONS.get(type(letter.body).__name__, 0))

    def arrive(self, source: ReplicaId, host: CoreHost, body: Any, *, version: int | None = None) -> None:
        """Let a request of any sender arrive at a replica that runs; its answer is dropped."""
        newest = VERSIONS.get(type(body).__name__, 0)
        host.hear_request(Letter(source, NO_LIFE, host.number, 0, 0, body), newest if version is None else version)

    def lose(self) -> None:
        letter = self.take()
        if letter is None:
            return
        self.count("message lost")
        if self.random.random() < 0.7:
            self._fail(letter, refused=self.random.random() < 0.2)

    def _fail(self, letter: Letter, *, refused: bool) -> None:
        asker = self.hosts.get(letter.target if letter.is_answer else letter.source)
        if asker is None or asker.core is None or asker.life != letter.life:
            return
        asker.tell(ev.RequestFailed(letter.correlation_id, ev.Failure.DISCONNECTED))
        if asker.core is not None and (refused or self.random.random() < 0.5):
            asker.tell(ev.ConnectionLost(letter.destination, refused))

    def flush(self) -> None:
        busy = [host for host in self.up() if host.store.flushes or host.slow]
        if not busy:
            return
        host = self.random.choice(busy)
        if host.slow and (not host.store.flushes or self.random.random() < 0.3):
            host.hear_slow_disk()
        else:
            host.finish_flush()

    def time(self) -> None:
        self.pass_time(whole=False)

    def pass_time(self, *, whole: bool) -> None:
        """Let time go to the next moment that a replica waits for; with `whole`, no one's is passed over."""
        random = self.random
        due = [(at_ms, host.number) for host in self.up() if (at_ms := host.wakes_ms) is not None]
        if not due:
            return
        at_ms, _ = random.choice(due) if not whole and random.random() < self._skips else min(due)
        if at_ms > self.now_ms:
            self.now_ms = (
                at_ms if whole or random.random() < 0.5 else min(at_ms, self.now_ms + random.choice((1, 5, 20)))
            )
        if self.oddities.random.random() < self.oddities.identifies:
            self._identify()
        if self.oddities.breaks and self.oddities.random.random() < self.oddities.breaks:
            self._break_connection()
        for host in self.up():
            wakes_ms = None if host.core is None else host.wakes_ms
            if wakes_ms is not None and wakes_ms <= self.now_ms:
                host.tell(ev.TimeoutReached())

    def _identify(self) -> None:
        """Let a replica hear from another one whether it is a controller of Kafka."""
        random = self.oddities.random
        host, other = random.choice(self.up()), random.choice(list(self.hosts))
        self.count("identified peer")
        host.tell(ev.PeerIdentified(self.place(other), random.random() < 0.6))

    def _break_connection(self) -> None:
        """Let a connection break: often that of one that has just given up its leadership."""
        random, up = self.oddities.random, self.up()
        leaving = [host for host in up if isinstance(host.running.state.role_state, Resigned)]
        host = random.choice(leaving if leaving and random.random() < 0.5 else up)
        other = random.choice(list(self.hosts))
        for _ in range(random.choice((1, 1, 2))):  # a proxy accepts a new one, and closes it
            self.count("broken connection")
            host.tell(ev.ConnectionLost(other, refused=random.random() < 0.3))

    def append(self) -> None:
        for host in self.leaders():
            if host.running.wants_records and not host.is_full:
                self.append_to(host)

    def append_to(self, host: CoreHost, records: int | None = None) -> None:
        """Let a leader append: the control records that wait, or a few others, or so many."""
        core, submitted = host.running, host.control
        if submitted is None and core.state.machine_failed_ms is not None:
            return  # its runtime takes nothing any more
        host.control = None
        end_offset = host.store.end_offset
        if submitted is not None and host.control_epoch == core.epoch:
            batch = encode_control_batch(
                list(submitted.records), timestamp_ms=0, base_offset=end_offset, epoch=core.epoch
            )
        else:
            values = [b"%d" % self.random.getrandbits(40)] * (records or self.random.choice((1, 1, 3)))
            batch = encode_batch(values, timestamp_ms=0, base_offset=end_offset, epoch=core.epoch)
            self.appends += 1
        host.tell(ev.RecordsSubmitted((batch,), core.epoch))

    def read(self) -> None:
        if up := self.up():
            self.read_at(self.random.choice(up))

    def read_at(self, host: CoreHost) -> None:
        """Ask a replica for the offset at which to begin to read."""
        number = self.next_number()
        host.reads[number] = self.promises.committed_end
        host.tell(ev.ReadBarrierRequested(number, 1_000))

    def learn(self) -> None:
        """Tell a replica that a record is committed, as the answer to an append that it forwarded does, or later."""
        up, known = self.up(), self.promises.committed
        if up and known:
            committed = known[self.random.choice(list(known)[-4:])]
            end = OffsetAndEpoch(epoch=committed.epoch, offset=committed.end_offset)
            self.random.choice(up).tell(ev.CommitLearned(end))

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> None:
        if up := self.up():
            host = self.random.choice(up)
            self.take_snapshot(host)
            newest = max(host.store.snapshots, default=None)
            if newest is not None and self.oddities.random.random() < 0.3:
                for other in self.up():
                    self.take_snapshot(other, newest)  # of the same id, perhaps in other bytes

    def take_snapshot(self, host: CoreHost, wanted: OffsetAndEpoch | None = None, *, slowly: bool = False) -> None:
        """Let a replica take a snapshot of something that is committed, or this one, if there is anything new."""
        store, view, random = host.store, host.running.state.log, self.random
        # Committed records may be applied before their flush: after a power loss a snapshot is ahead of its log.
        known_from = max(host.applied_from + 1, view.voters_known_from)
        ends = [batch for batch in store.batches if known_from <= batch.end_offset <= host.high_watermark]
        if wanted is not None:
            ends = [batch for batch in ends if (batch.end_offset, batch.epoch) == (wanted.offset, wanted.epoch)]
        if not ends or store.is_damaged:
            return
        batch = ends[-1] if random.random() < 0.5 else random.choice(ends[-3:])
        snapshot_id = OffsetAndEpoch(offset=batch.end_offset, epoch=batch.epoch)
        if any(kept.offset >= snapshot_id.offset for kept in store.snapshots):
            return
        kraft_version, voters = view.kraft_version.at(snapshot_id.offset - 1), view.voters.at(snapshot_id.offset - 1)
        controls: tuple[object, ...] = ()
        if self.static_voters is None or kraft_version >= 1:
            if not len(voters) or kraft_version < 1:
                raise BrokenPromiseError("I14", f"{host} knows no voters for the snapshot {snapshot_id}")
            controls = (KRaftVersionRecord(kraft_version=kraft_version), voters.to_record())
        # The state is the same everywhere; its bytes need not be, in Kafka's replicas.
        data = (b"%d-" % (host.number if random.random() < 0.6 else 0)) * random.choice((5, 15, 25))
        snapshot = self._blobs.setdefault((snapshot_id, data), StoredSnapshot(data, controls))
        if str(snapshot.controls) != str(controls):
            raise BrokenPromiseError("I14", f"{host} has other voters in snapshot {snapshot_id} than another replica")
        self.count("snapshot")
        if slowly or self.oddities.random.random() < self.oddities.writes_slowly:
            host.write_slowly(snapshot_id, snapshot)
            return
        store.snapshots[snapshot_id] = snapshot
        host.tell(ev.SnapshotCreated(snapshot_id))
        if host.core is not None and random.random() < 0.7:
            host.tell(ev.RetentionDue(snapshot_id))

    def snapshot_of(self, host: CoreHost, snapshot_id: OffsetAndEpoch, data: bytes) -> StoredSnapshot:
        """Return the snapshot that a download has made; it must be one that a replica took."""
        snapshot = self._blobs.get((snapshot_id, data))
        if snapshot is None:
            raise BrokenPromiseError("I14", f"the download of {snapshot_id} at {host} is made of two files")
        return snapshot

    # --- operators ---------------------------------------------------------------------------------------------------

    def resign(self) -> None:
        if leaders := self.leaders():
            host = self.random.choice(leaders)
            host.tell(ev.ResignRequested(self._epoch_named_to(host)))

    def transfer(self) -> None:
        if leaders := self.leaders():
            host = self.random.choice(leaders)
            host.tell(ev.TransferRequested(self._epoch_named_to(host), self.random.choice(list(self.hosts)), 500))

    def _epoch_named_to(self, host: CoreHost) -> int:
        """Return the epoch of a leader, as its application says it: that may have been told of it too late."""
        return host.running.epoch - (1 if self.random.random() < 0.25 else 0)

    def change(self) -> None:
        """Ask some leader for a change of the voters."""
        leaders = [host for host in self.leaders() if host.running.high_watermark is not None]
        if leaders and (self.static_voters is None or any(self.is_dynamic_at(leader) for leader in leaders)):
            self.change_at(self.random.choice(leaders))

    def is_dynamic_at(self, host: CoreHost) -> bool:
        """Whether the voters stand in the log of this replica."""
        return self.static_voters is None or host.running.kraft_version >= 1

    def change_at(self, leader: CoreHost, number: ReplicaId | None = None) -> None:
        """Ask a leader to add a voter, or to remove one: this one, if it is named."""
        is_named = number is not None
        if number is None:
            number = self.random.choice(list(self.hosts))
        if not is_named and len(leader.running.voters) == 2 and self.random.random() < 0.5:
            number = next(voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number)
        request = self.request_to_change(leader, number, waits=None)
        self.count("voter change")
        letter = Letter(OPERATOR, 0, leader.number, 0, 0, request)
        self.forger.note(letter)
        self.hand(letter)

    def request_to_change(
        self, leader: CoreHost, number: ReplicaId, *, waits: bool | None
    ) -> AddRaftVoterRequest | RemoveRaftVoterRequest:
        """Return the request by which a voter is removed, or a replica added; chance decides whether that waits for the
        commit, unless the caller does."""
        voter = leader.running.voters.get(number)
        if voter is not None:
            disk = voter.key.directory_id or uuid.UUID(int=0)
            return RemoveRaftVoterRequest(cluster_id="fuzz", voter_id=number, voter_directory_id=disk)
        place = self.place(number)
        listener = AddRaftVoterRequest.Listener(name=self.listener_name, host=place.host, port=place.port)
        return AddRaftVoterRequest(
            cluster_id="fuzz",
            timeout_ms=500,
            voter_id=number,
            voter_directory_id=self.hosts[number].key.directory_id or uuid.UUID(int=0),
            ack_when_committed=self.random.random() < 0.5 if waits is None else waits,
            listeners=(listener,),
        )

    def operator_hears(self, host: CoreHost, request: Any, response: Any) -> None:
        """A voter change is answered: one that is done stands in the log of its leader."""
        if response is None or response.error_code != 0:
            return
        self.changes_done += 1
        if isinstance(request, RemoveRaftVoterRequest) or request.ack_when_committed:
            offset = host.running.state.log.voters.latest_offset
            if offset is None or offset >= self.promises.committed_end:
                raise BrokenPromiseError("V6", f"{host} says that a voter change is done, and it is not committed")


def _without_disks(voters: VoterSet) -> VoterSet:
    """Return voters as they are configured: their disks, and what they support, are not known."""
    return VoterSet.of(Voter(key=ReplicaKey(voter.key.id), endpoints=voter.endpoints) for voter in voters)


def _with_small_names(record: VotersRecord) -> VotersRecord:
    """Return a Voters record whose listeners are named in small letters: Kafka writes names as they are configured."""

    def renamed(voter: VotersRecord.Voter) -> VotersRecord.Voter:
        places = tuple(attrs.evolve(place, name=place.name.lower()) for place in voter.endpoints)
        return attrs.evolve(voter, endpoints=places)

    return attrs.evolve(record, voters=tuple(renamed(voter) for voter in record.voters))
