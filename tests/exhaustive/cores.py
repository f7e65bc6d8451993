"""Real cores as values: copied before each event, and turned into something that can be hashed.

Time stands still at 0: a timer that runs has its whole time left, whenever it was started, and may run out at any
moment. So cores that differ in nothing but how long ago something happened are equal, and there are few of them.

Replica ids, the ports and the directory ids are numbers that nothing else is (`IDS`), so whatever is turned into a
value can be renamed: two worlds that differ only in who is who are one. What is ordered by id is turned into a set.
"""

from __future__ import annotations

import enum
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from kraftlib.config import RaftConfig
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import History, Voter, VoterSet
from kraftlib.records.batch import Batch, read_batch
from kraftlib.records.control import decode_control, encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlib.types import ElectionState, Endpoint, EpochStart, ReplicaKey

IDS: Final = (7001, 7002, 7003)
LISTENER: Final = "CONTROLLER"
CLUSTER: Final = "c"
NOW: Final = 0
LATER: Final = 1
"""Any time that has not come."""

CORRELATION_FIRST: Final = 1_000_000
"""New requests are numbered from here; then each is called by its destination, since one is outstanding at most."""

Names = Mapping[int, int]
"""What each replica id is called instead."""


class Choices(random.Random):
    """Chance as a script: what is drawn among few is tried in every way, what is drawn among many is 0."""

    FEW = 3

    def __init__(self) -> None:
        super().__init__(0)
        self.script: list[int] = []
        self.asked: list[int] = []

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        if stop is not None or not 1 < start <= self.FEW:
            return 0
        place = len(self.asked)
        self.asked.append(start)
        return self.script[place] if place < len(self.script) else 0

    def next_script(self) -> list[int] | None:
        """The next way in which what was asked can come out; None after the last one."""
        drawn = [self.script[place] if place < len(self.script) else 0 for place in range(len(self.asked))]
        while drawn and drawn[-1] + 1 == self.asked[len(drawn) - 1]:
            drawn.pop()
        return [*drawn[:-1], drawn[-1] + 1] if drawn else None


CHOICES: Final = Choices()


def place(replica_id: int) -> Endpoint:
    return Endpoint("h", replica_id)


def key(replica_id: int) -> ReplicaKey:
    return ReplicaKey(replica_id, uuid.UUID(int=replica_id))


def static_voters(ids: Sequence[int]) -> VoterSet:
    return VoterSet.of(Voter(key=ReplicaKey(i), endpoints={LISTENER: place(i)}) for i in ids)


def dynamic_voters(ids: Sequence[int]) -> VoterSet:
    """The voters of a quorum that can change them (KIP-853)."""
    return VoterSet.of(Voter(key=key(i), endpoints={LISTENER: place(i)}, max_kraft_version=1) for i in ids)


def first_batch(ids: Sequence[int]) -> Batch:
    """The records with which the log of such a quorum begins."""
    records = [KRaftVersionRecord(kraft_version=1), dynamic_voters(ids).to_record()]
    return encode_control_batch(records, timestamp_ms=0, base_offset=0, epoch=1)


def new_core(
    replica_id: int, batches: Sequence[Batch], election: ElectionState | None, voters: VoterSet | None, *, seeks: bool
) -> Replica:
    """Return a core as it is when a replica starts. One that does not seek its leader waits until the leader comes."""
    servers = () if seeks else (place(replica_id),)
    starts: list[EpochStart] = []
    for batch in batches:
        if not starts or starts[-1].epoch != batch.epoch:
            starts.append(EpochStart(epoch=batch.epoch, start_offset=batch.base_offset))
    end_offset = batches[-1].end_offset if batches else 0
    view = LogView.build(end_offset=end_offset, epoch_starts=starts, static_voters=voters)
    for batch in batches:
        if batch.is_control:
            view.observe(batch)
    return Replica(
        RaftConfig(node_id=replica_id, bootstrap_servers=servers),
        key=key(replica_id),
        cluster_id=CLUSTER,
        log=view,
        election=election,
        random=CHOICES,
        endpoints={LISTENER: place(replica_id)},
    )


# --- copying ---------------------------------------------------------------------------------------------------------

SHARED: Final = (RaftConfig, VoterSet, random.Random)
_COPIERS: dict[type, Callable[[Any], Any] | None] = {}


def is_frozen(cls: type) -> bool:
    return cls.__setattr__.__name__ == "_frozen_setattrs"


def _copier(cls: type) -> Callable[[Any], Any] | None:
    """How to copy a value of this class; None if it never changes."""
    if cls is dict:
        return lambda value: {name: copied(inner) for name, inner in value.items()}
    if cls is list:
        return lambda value: [copied(inner) for inner in value]
    if cls is set:
        return set
    if cls in (Replica, History):
        names: Sequence[str] | None = None
    elif attrs.has(cls) and not is_frozen(cls) and not issubclass(cls, SHARED):
        names = [field.name for field in attrs.fields(cls)]
    else:
        return None

    def copy(value: Any) -> Any:
        twin = object.__new__(cls)
        for name in value.__dict__ if names is None else names:
            object.__setattr__(twin, name, copied(getattr(value, name)))
        return twin

    return copy


def copied(value: Any) -> Any:
    """Copy what may change; share the rest."""
    cls = type(value)
    if cls not in _COPIERS:
        _COPIERS[cls] = _copier(cls)
    copy = _COPIERS[cls]
    return value if copy is None else copy(value)


# --- turning into values ---------------------------------------------------------------------------------------------

NOT_SEEN: Final = {
    "config", "random", "refused", "now_ms", "wall_offset_ms", "controllers", "setbacks", "stalls",
    "_judged_voters", "_is_voter", "_next_correlation_id", "request_timeout_ms", "kept", "reads", "cluster_id",
}  # fmt: skip
"""Fields that do not belong to a core's value: constants, counters and what follows from other fields."""


_FIELDS: dict[type, tuple[str, ...]] = {}
_VOTERS: dict[tuple[int, tuple[int, ...]], tuple[VoterSet, Any]] = {}
"""Voter sets are few and stand everywhere: each is kept, and turned once for each way of naming."""


def frozen(value: Any, names: Names) -> Any:
    """Return a hashable twin of any value, with replicas called by other names."""
    cls = type(value)
    if cls is int:
        return names.get(value, value)
    if value is None or cls in (bool, str, bytes):
        return value
    if cls is list or isinstance(value, tuple):
        return tuple([frozen(inner, names) for inner in value])
    if cls is dict:
        return frozenset([(frozen(name, names), frozen(inner, names)) for name, inner in value.items()])
    if cls is set or cls is frozenset:
        return frozenset([frozen(inner, names) for inner in value])
    if cls is uuid.UUID:
        return ("uuid", names.get(value.int, value.int))
    if cls is Batch:
        return frozen_batch(bytes(value.data), names)
    if cls is VoterSet:
        place = (id(value), tuple(names.values()))
        if place not in _VOTERS:
            _VOTERS[place] = (value, frozenset([frozen(voter, names) for voter in value.voters]))
        return _VOTERS[place][1]
    if isinstance(value, enum.Enum):
        return value
    if cls is Replica:
        return frozen(value.state, names)
    if cls is LeaderChangeMessage:
        ids = [[voter.voter_id for voter in voters] for voters in (value.voters, value.granting_voters)]
        return (cls.__name__, frozen(value.leader_id, names), *[frozenset(frozen(row, names)) for row in ids])
    if cls is VotersRecord:
        return (cls.__name__, frozenset([frozen(voter, names) for voter in value.voters]))
    if cls is History:
        return (frozen(value.default, names), frozen(value.entries, names))
    fields = _FIELDS.get(cls)
    if fields is None:
        fields = tuple(field.name for field in attrs.fields(cls) if field.name not in NOT_SEEN)
        _FIELDS[cls] = fields
    return (
        cls.__name__,
        *[
            frozen_records(bytes(value.records or b""), names)
            if name == "records"
            else frozen(getattr(value, name), names)
            for name in fields
        ],
    )


_FROZEN_BATCHES: dict[tuple[bytes, tuple[int, ...]], Any] = {}


def frozen_batch(data: bytes, names: Names) -> Any:
    place = (data, tuple(names.values()))
    known = _FROZEN_BATCHES.get(place)
    if known is None:
        batch = read_batch(data, 0)
        records = list(batch.records())
        inner = (
            [decode_control(record) for record in records]
            if batch.is_control
            else [bytes(r.value or b"").hex() for r in records]
        )
        known = _FROZEN_BATCHES[place] = (batch.base_offset, batch.last_offset, batch.epoch, frozen(inner, names))
    return known


def frozen_records(data: bytes, names: Names) -> Any:
    """Batches one after the other, as they stand in a Fetch answer."""
    batches, position = [], 0
    while position < len(data):
        batch = read_batch(data, position)
        batches.append(frozen_batch(bytes(batch.data), names))
        position += len(batch.data)
    return tuple(batches)


# --- one form for equal cores ----------------------------------------------------------------------------------------


def settle(state: ReplicaState) -> set[int]:
    """Bring a core into the form that all equal ones have; return the destinations of its new requests.

    Requests are called by their destination, pauses are as long as the first one, and what is only counted is not.
    """
    connections = state.connections
    new = set()
    outstanding = {}
    for correlation_id, asked in connections.requests.items():
        if correlation_id >= CORRELATION_FIRST:
            new.add(asked.destination)
            asked = attrs.evolve(asked, correlation_id=asked.destination)
        outstanding[asked.destination] = asked
    connections.requests = outstanding
    connections._awaiting = {destination: destination for destination in outstanding}
    connections._next_correlation_id = CORRELATION_FIRST
    connections._backing_off = {dst: LATER for dst, until in connections._backing_off.items() if until > NOW}
    connections._failures = {dst: min(count, 2) for dst, count in connections._failures.items()}
    state.refused.clear()
    state.setbacks = state.stalls = 0
    return new


# --- timers ----------------------------------------------------------------------------------------------------------


def timers(state: ReplicaState) -> list[tuple[str, int]]:
    """Name the timers that run."""
    role = state.role_state
    running: list[tuple[str, int]] = [("pause", destination) for destination in state.connections._backing_off]
    if isinstance(role, Unattached | Prospective | Candidate | Resigned) and role.election_deadline_ms is not None:
        running.append(("election", 0))
    if isinstance(role, Follower) and state.may_stand and not role.writing_chunk:
        running.append(("fetch", 0))
    if isinstance(role, Leader):
        running += [("parked", request_id) for request_id in role.parked]
        if len(state.voters) > 1:
            running.append(("check quorum", 0))
        if any(progress.last_fetch_ms is None for progress in role.progress.values()):
            running.append(("begin epoch", 0))
    return running


def run_out(state: ReplicaState, timer: tuple[str, int]) -> None:
    """Let a timer run out: what comes next is TimeoutReached."""
    name, number = timer
    role: Any = state.role_state
    match name:
        case "pause":
            del state.connections._backing_off[number]
        case "election":
            role.election_deadline_ms = NOW
        case "fetch":
            role.fetch_deadline_ms = NOW
        case "parked":
            role.parked[number].deadline_ms = role.parked_deadline_ms = NOW
        case "check quorum":
            role.check_quorum_deadline_ms = NOW
        case "begin epoch":
            role.begin_epoch_due_ms = NOW
