"""The receivers of Vote, BeginQuorumEpoch, EndQuorumEpoch and Fetch against slow twins of the reference's tables.

Each twin is one function that reads like the numbered list of a procedure (KIP-595, Vote, BeginQuorumEpoch,
EndQuorumEpoch and Fetch): a situation and a request in, everything that may be seen in the outcome out. Hypothesis
draws pairs of them, impossible values included.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.consensus.actions import PersistElection, SendRecords, SendResponse
from kraftlib.consensus.events import RequestReceived, TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Leader
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID, ElectionState, EpochStart, OffsetAndEpoch, ReplicaKey
from tests.consensus.build import (
    answer_vote,
    begin_request,
    end_request,
    fetch_request,
    fetch_response,
    partition_of,
    replica,
    reply,
    vote_request,
    voter_set,
)

DISK, OTHER_DISK = uuid.UUID(int=1_001), uuid.UUID(int=2_002)
OWN: Final = ReplicaKey(1, DISK)
FENCED, UNKNOWN, NOT_LEADER, INVALID, OTHER_CLUSTER, WRONG_KEY, SERVER = 74, 75, 6, 42, 104, 125, -1


@attrs.frozen(kw_only=True)
class Situation:
    """A replica 1 of the voters 1, 2, 3, as the tables see it."""

    role: str
    epoch: int
    records: tuple[int, ...]
    """Epoch of each record of its log, from `start` on."""
    start: int = 0
    snapshots: tuple[tuple[int, int], ...] = ()
    """(offset, epoch), ascending; the first stands where the log starts."""
    leader: int | None = None
    voted: ReplicaKey | None = None

    @property
    def log(self) -> tuple[int, ...]:
        """The records, and that with which a leader opens its epoch."""
        return (*self.records, self.epoch) if self.role == "leader" else self.records

    @property
    def end(self) -> tuple[int, int]:
        """(epoch of the last record, log end offset): as logs are compared."""
        if self.log:
            return self.log[-1], self.start + len(self.log)
        return next((epoch for offset, epoch in reversed(self.snapshots) if offset == self.start), 0), self.start


def core_in(situation: Situation) -> Replica:
    """A core in that situation."""
    starts: list[EpochStart] = []
    for offset, epoch in enumerate(situation.records, situation.start):
        if not starts or starts[-1].epoch != epoch:
            starts.append(EpochStart(epoch=epoch, start_offset=offset))
    log = LogView.build(
        start_offset=situation.start,
        end_offset=situation.start + len(situation.records),
        epoch_starts=starts,
        snapshots=[OffsetAndEpoch(offset=offset, epoch=epoch) for offset, epoch in situation.snapshots],
        static_voters=voter_set(1, 2, 3),
    )
    is_elected = situation.role == "leader"
    election = ElectionState(
        epoch=situation.epoch - 1 if is_elected else situation.epoch,
        leader_id=None if is_elected else situation.leader,
        voted_key=OWN if situation.role == "candidate" else situation.voted,
    )
    core = replica(log=log, election=election, directory_id=DISK)
    if situation.role == "fetched":
        reply(core, 2, fetch_response(epoch=situation.epoch, leader_id=2, high_watermark=-1))
    elif situation.role in ("prospective", "leader"):
        core.handle(TimeoutReached(), core.deadline_ms() or 0)
        for number in range(20):
            if core.role.value != "prospective":
                core.handle(TimeoutReached(), 10_000 * (number + 1))
    if is_elected:
        answer_vote(core, 2, granted=True, pre_vote=True)
        answer_vote(core, 2, granted=True, pre_vote=False)
    assert core.epoch == situation.epoch
    return core


ROLES = [
    "unattached",
    "leader unknown by place",
    "voted",
    "follower",
    "fetched",
    "prospective",
    "candidate",
    "resigned",
]


@st.composite
def situations(draw: st.DrawFn, *, roles: tuple[str, ...] = (*ROLES, "leader")) -> Situation:
    """Any role, with any log that its epoch allows."""
    role = draw(st.sampled_from(roles))
    epoch = draw(st.integers(2, 7))
    newest = epoch - 1 if role == "leader" else epoch
    records = tuple(sorted(draw(st.lists(st.integers(1, newest), max_size=6))))
    start, snapshots = 0, ()
    if draw(st.booleans()):
        start = draw(st.integers(1, 4))
        first = draw(st.integers(1, records[0] if records else newest))
        snapshots = ((start, first),)
        if len(records) >= 2 and draw(st.booleans()):
            snapshots = (*snapshots, (start + 1, records[0]))
    leader = {"leader unknown by place": 9, "follower": 2, "fetched": 2, "resigned": 1}.get(role)
    if role == "prospective":
        leader = draw(st.sampled_from([None, 2]))
    voted = None
    if role in ("voted", "follower", "fetched", "prospective", "leader unknown by place"):
        voted = draw(st.sampled_from([None, ReplicaKey(2), ReplicaKey(2, OTHER_DISK), ReplicaKey(3, OTHER_DISK)]))
    if role == "voted" and voted is None:
        voted = ReplicaKey(3)
    return Situation(
        role=role, epoch=epoch, records=records, start=start, snapshots=snapshots, leader=leader, voted=voted
    )


@attrs.frozen(kw_only=True)
class Seen:
    """What anybody can see of how a request was handled."""

    top_level: int = 0
    error: int = 0
    granted: bool = False
    epoch: int
    leader: int | None = None
    voted: ReplicaKey | None = None
    written: bool = False
    closes: bool = False


def see(core: Replica, request: Any, version: int) -> Seen:
    """Let a core handle a request, and look."""
    actions = core.handle(RequestReceived(77, request, version), core.state.now_ms)
    (response,) = [
        action.response for action in actions if isinstance(action, SendResponse) and action.request_id == 77
    ]
    written = any(isinstance(action, PersistElection) for action in actions)
    after = {"epoch": core.epoch, "leader": core.state.leader_id, "voted": core.state.election.voted_key}
    if response is None:
        return Seen(closes=True, written=written, **after)
    if response.error_code:
        assert response.topics == ()
        return Seen(top_level=response.error_code, written=written, **after)
    partition = partition_of(response)
    assert (partition.leader_epoch, partition.leader_id) == (after["epoch"], after["leader"] or -1)
    granted = getattr(partition, "vote_granted", False)
    return Seen(error=partition.error_code, granted=granted, written=written, **after)


# --- Vote ------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Ballot:
    """The fields of a Vote that matter."""

    cluster_id: str | None
    topic: str
    epoch: int
    candidate: int
    disk: uuid.UUID
    voter: int
    voter_disk: uuid.UUID
    last_epoch: int
    last_offset: int
    pre_vote: bool


ballots = st.builds(
    Ballot,
    cluster_id=st.sampled_from(["cluster", "cluster", "cluster", None, "other", ""]),
    topic=st.sampled_from(["__cluster_metadata"] * 5 + ["other"]),
    epoch=st.integers(-1, 9),
    candidate=st.sampled_from([2, 2, 3, 5, 1, -1]),
    disk=st.sampled_from([ZERO_UUID, OTHER_DISK, OTHER_DISK, DISK]),
    voter=st.sampled_from([1, 1, -1, 2]),
    voter_disk=st.sampled_from([DISK, ZERO_UUID, OTHER_DISK]),
    last_epoch=st.integers(-1, 9),
    last_offset=st.integers(-1, 12),
    pre_vote=st.booleans(),
)


def vote_twin(here: Situation, ballot: Ballot) -> Seen:
    """KIP-595, Vote, and KIP-996."""
    epoch, leader, role = here.epoch, here.leader, here.role
    leader = 1 if role == "leader" else leader
    voted = OWN if role == "candidate" else here.voted
    same = {"epoch": epoch, "leader": leader, "voted": voted}
    # 1. cluster id; topic/partition
    if ballot.cluster_id not in (None, "cluster"):
        return Seen(top_level=OTHER_CLUSTER, **same)
    if ballot.topic != "__cluster_metadata":
        return Seen(top_level=INVALID, **same)
    # 2. an impossible log
    beyond = ballot.last_epoch > ballot.epoch if ballot.pre_vote else ballot.last_epoch >= ballot.epoch
    if ballot.last_offset < 0 or ballot.last_epoch < 0 or beyond:
        return Seen(error=INVALID, **same)
    # 3. voter only
    if ballot.epoch < epoch:
        return Seen(error=FENCED, **same)
    if ballot.candidate < 0:
        return Seen(error=INVALID, **same)
    # 4. a higher epoch is taken over, durably, by a pre-vote as well
    written = ballot.epoch > epoch
    if written:
        epoch, leader, voted, role = ballot.epoch, None, None, "unattached"
        same = {"epoch": epoch, "leader": leader, "voted": voted}
    # 5. voter key
    if ballot.voter >= 0 and (ballot.voter != 1 or ballot.voter_disk not in (ZERO_UUID, DISK)):
        return Seen(error=WRONG_KEY, written=written, **same)
    # 6. the table
    up_to_date = (ballot.last_epoch, ballot.last_offset) >= here.end
    if ballot.candidate == OWN.id:
        granted = False  # KIP-595, Vote: a vote for oneself is never given by being asked
    elif ballot.pre_vote:
        granted = role not in ("leader", "fetched") and up_to_date
    elif role in ("leader", "follower", "fetched", "candidate", "resigned"):
        granted = False
    elif voted is not None:
        known_disk = voted.directory_id is None or voted.directory_id == ballot.disk
        granted = voted.id == ballot.candidate and known_disk
    else:
        granted = leader is None and up_to_date
    # 7. granted and binding: persisted
    if granted and not ballot.pre_vote and voted is None:
        written = True
        same["voted"] = ReplicaKey(ballot.candidate, None if ballot.disk == ZERO_UUID else ballot.disk)
    return Seen(granted=granted, written=written, **same)


@settings(max_examples=5 * settings.default.max_examples)
@given(situations(), ballots, st.integers(1, 2))
def test_vote_is_answered_as_the_table_says(here: Situation, ballot: Ballot, version: int) -> None:
    """Every role, every log, every field."""
    request = vote_request(
        epoch=ballot.epoch,
        replica_id=ballot.candidate,
        last=(ballot.last_offset, ballot.last_epoch),
        pre_vote=ballot.pre_vote,
        cluster_id=ballot.cluster_id,
        topic_name=ballot.topic,
        replica_directory_id=ballot.disk,
        voter_id=ballot.voter,
        voter_directory_id=ballot.voter_disk,
    )

    assert see(core_in(here), request, version) == vote_twin(here, ballot)


# --- BeginQuorumEpoch and EndQuorumEpoch -----------------------------------------------------------------------------


def news_twin(here: Situation, *, epoch: int, leader: int, places: bool, voter: int = -1) -> Seen:
    """KIP-595, BeginQuorumEpoch and EndQuorumEpoch: what of a leader is taken over, and what is answered."""
    known = 1 if here.role == "leader" else here.leader
    voted = OWN if here.role == "candidate" else here.voted
    same = {"epoch": here.epoch, "leader": known, "voted": voted}
    # voter only
    if epoch < here.epoch:
        return Seen(error=FENCED, **same)
    if leader < 0:
        return Seen(error=INVALID, **same)
    # maybe-transition, 1: consistency. What is fatal in Kafka closes the connection and changes nothing.
    if leader == 1 and not (epoch == here.epoch and known == 1):
        return Seen(closes=True, **same)
    if epoch == here.epoch and known is not None and known != leader:
        return Seen(closes=True, **same)
    # 2., 3.: a newer epoch; the leader of ours, so far unknown. Without any place it is remembered by id.
    has_place = places or leader in (1, 2, 3)
    wrong = WRONG_KEY if voter >= 0 and voter != 1 else 0
    if epoch > here.epoch:
        return Seen(error=wrong, epoch=epoch, leader=leader, written=True)
    if leader == 1 or here.role in ("follower", "fetched"):
        return Seen(error=wrong, **same)
    if has_place and (known is None or here.role in ("prospective", "leader unknown by place")):
        return Seen(error=wrong, epoch=epoch, leader=leader, voted=voted, written=known is None)
    return Seen(error=wrong, **same)


@settings(max_examples=3 * settings.default.max_examples)
@given(
    situations(), st.integers(-1, 9), st.sampled_from([2, 2, 3, 1, 9, -1]), st.booleans(), st.sampled_from([-1, 1, 2])
)
def test_begin_is_answered_as_the_reference_says(
    here: Situation, epoch: int, leader: int, places: bool, voter: int
) -> None:
    """Who is followed, and what is refused without a change."""
    more = {} if places else {"leader_endpoints": ()}
    request = begin_request(epoch=epoch, leader_id=leader, voter_id=voter, **more)

    assert see(core_in(here), request, 1) == news_twin(here, epoch=epoch, leader=leader, places=places, voter=voter)


@settings(max_examples=3 * settings.default.max_examples)
@given(
    situations(),
    st.integers(-1, 9),
    st.sampled_from([2, 2, 3, 1, 9, -1]),
    st.lists(st.sampled_from([1, 2, 3, 4]), unique=True),
)
def test_end_is_answered_as_the_reference_says(here: Situation, epoch: int, leader: int, successors: list[int]) -> None:
    """As Begin; and a follower of that leader stands after the pause that its place in the list gives."""
    core = core_in(here)
    expected = news_twin(here, epoch=epoch, leader=leader, places=False)
    request = end_request(epoch=epoch, leader_id=leader, candidates=tuple(successors))
    now_ms = core.state.now_ms
    seen = see(core, request, 1)

    # The first successor, and everybody if there is no list, asks for pre-votes within the same turn.
    assert seen == expected
    if expected.error == 0 and not expected.closes and isinstance(core.state.role_state, Follower):
        place = successors.index(1) if 1 in successors else -1
        pause = 1_000 if place < 0 else min(1_000, (1_000 >> (len(successors) - 1)) << (place - 1))
        assert core.state.role_state.fetch_deadline_ms == now_ms + pause


# --- Fetch -----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Question:
    """The fields of a Fetch that matter."""

    cluster_id: str | None
    topic: uuid.UUID
    version: int
    epoch: int
    offset: int
    last_epoch: int
    max_wait_ms: int
    replica: int
    high_watermark: int


questions = st.builds(
    Question,
    cluster_id=st.sampled_from(["cluster"] * 6 + [None, "other"]),
    topic=st.sampled_from([METADATA_TOPIC_ID] * 7 + [uuid.UUID(int=2)]),
    version=st.sampled_from([18, 18, 17, 13, 12]),
    epoch=st.integers(1, 8),
    offset=st.integers(-1, 13),
    last_epoch=st.integers(-1, 8),
    max_wait_ms=st.sampled_from([500, 500, 0, -1]),
    replica=st.sampled_from([2, 2, 3, 9, -1, 1]),
    high_watermark=st.sampled_from([-1, 0, 2**63 - 1]),
)


def judge_twin(here: Situation, offset: int, epoch: int) -> tuple[str, tuple[int, int] | None]:
    """KIP-595, Fetch: the check of (offset, epoch), over a plain list of records."""
    places = dict(enumerate(here.log, here.start))
    earliest, latest = (here.snapshots[0], here.snapshots[-1]) if here.snapshots else (None, None)
    # b. an empty replica starts from the snapshot
    if offset == 0 and latest is not None:
        return "snapshot", latest
    # 1.
    if here.start == 0 and offset == 0:
        return "valid", None
    # 2.
    if earliest is not None and (
        offset < here.start or (offset == here.start and epoch != earliest[1]) or epoch < earliest[1]
    ):
        return "snapshot", latest
    # 3. the largest known epoch <= epoch, and where it ends
    known = sorted(set(places.values()))
    if epoch in known and epoch != known[-1]:
        end = (epoch, max(place for place in places if places[place] == epoch) + 1)
    elif not known or epoch >= known[-1]:
        end = here.end
    elif epoch < known[0]:
        # Nothing of it is here: the position right before the first record.
        end = (epoch, here.start)
    else:
        floor = max(number for number in known if number <= epoch)
        end = (floor, max(place for place in places if places[place] == floor) + 1)
    if end[0] == epoch and earliest is not None and end[1] == earliest[0]:
        end = (earliest[1], earliest[0])
    return ("valid", None) if end[0] == epoch and end[1] >= offset else ("diverging", (end[1], end[0]))


def fetch_twin(here: Situation, question: Question) -> tuple[Any, ...]:
    """KIP-595, Fetch: what is answered at once, or "held"."""
    if question.cluster_id not in (None, "cluster"):
        return ("top level", OTHER_CLUSTER)
    if question.topic != METADATA_TOPIC_ID or question.version < 13:
        return ("top level", INVALID)
    if question.max_wait_ms < 0 or question.offset < 0 or question.last_epoch < 0:
        return ("error", INVALID)
    if question.last_epoch > question.epoch:
        return ("error", INVALID)
    if question.epoch < here.epoch:
        return ("error", FENCED)
    if question.epoch > here.epoch:
        return ("error", UNKNOWN)
    if here.role != "leader":
        return ("error", NOT_LEADER)
    kind, where = judge_twin(here, question.offset, question.last_epoch)
    if question.replica == 1:
        return ("error", SERVER)
    if kind != "valid":
        return (kind, where)
    if question.offset < here.end[1]:
        return ("records", question.offset)
    return ("empty",) if question.max_wait_ms == 0 else ("held",)


def see_fetch(core: Replica, question: Question) -> tuple[Any, ...]:
    """Let a core handle a Fetch, and look."""
    request = fetch_request(
        epoch=question.epoch,
        offset=question.offset,
        last_epoch=question.last_epoch,
        replica_id=question.replica,
        max_wait_ms=question.max_wait_ms,
        high_watermark=question.high_watermark,
        cluster_id=question.cluster_id,
        topic_id=question.topic,
    )
    actions = core.handle(RequestReceived(77, request, question.version), core.state.now_ms)
    sent = [action for action in actions if isinstance(action, SendResponse | SendRecords) and action.request_id == 77]
    if not sent:
        assert isinstance(core.state.role_state, Leader)
        assert 77 in core.state.role_state.parked
        return ("held",)
    response = sent[0].response
    if response.error_code:
        return ("top level", response.error_code)
    partition = partition_of(response)
    leader = -1 if core.state.leader_id is None else core.state.leader_id
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (leader, core.epoch)
    assert partition.log_start_offset == core.state.log.start_offset
    if partition.error_code:
        return ("error", partition.error_code)
    if isinstance(sent[0], SendRecords):
        return ("records", sent[0].start_offset)
    if partition.diverging_epoch.epoch >= 0:
        return ("diverging", (partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch))
    if partition.snapshot_id.epoch >= 0:
        return ("snapshot", (partition.snapshot_id.end_offset, partition.snapshot_id.epoch))
    return ("empty",)


@settings(max_examples=5 * settings.default.max_examples)
@given(situations(roles=("leader",) * 6 + ("fetched", "resigned", "candidate")), questions, st.booleans())
def test_fetch_is_answered_as_the_reference_says(here: Situation, question: Question, is_of_our_epoch: bool) -> None:
    """Valid, diverging or snapshot; at once or held; and an epoch is never taken over."""
    if is_of_our_epoch:
        question = attrs.evolve(question, epoch=here.epoch, last_epoch=min(question.last_epoch, here.epoch))
    core = core_in(here)

    assert see_fetch(core, question) == fetch_twin(here, question)
    assert core.epoch == here.epoch


@settings(max_examples=3 * settings.default.max_examples)
@given(situations(roles=("leader",)), st.lists(st.tuples(st.sampled_from([2, 3, 9]), st.integers(0, 8)), max_size=8))
def test_the_high_watermark_is_what_counting_says(here: Situation, fetches: list[tuple[int, int]]) -> None:
    """KIP-595, Fetch: index n // 2 of the end offsets in descending order, above the start of the epoch only.

    Nothing is flushed here: our own copy counts from the snapshot's end, or 0, that is not at all.
    """
    core = core_in(here)
    reached = {1: 0, 2: -1, 3: -1}
    high_watermark: int | None = None
    for number, (who, back) in enumerate(fetches):
        offset = here.end[1] - back
        if offset <= here.start:
            continue
        last_epoch = here.log[offset - here.start - 1]
        request = fetch_request(epoch=core.epoch, offset=offset, last_epoch=last_epoch, replica_id=who)
        core.handle(RequestReceived(100 + number, request, 18), core.state.now_ms)
        if who in reached and judge_twin(here, offset, last_epoch)[0] == "valid":
            reached[who] = offset
        majority = sorted(reached.values(), reverse=True)[len(reached) // 2]
        if majority > here.end[1] - 1 and (high_watermark is None or majority > high_watermark):
            high_watermark = majority

        assert core.high_watermark == high_watermark
