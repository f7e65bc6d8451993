"""Our core in the place of each replica of two real quorums: it answers what that one did, and asks what it asked.

Two lives of Kafka (4.3.1, dynamic; 3.9.2, static; tests/data) are played once per replica, with that replica's part
taken by our core: first elections, a broker as observer, kill -9 of a leader, a split vote, a restarted leader that
resigns, a graceful hand-over, a snapshot downloaded, a voter added and one removed. Messages are compared whole.

What may differ, and nothing else:

answers
    HELD_SHORTER    a held Fetch is answered without records as soon as the high watermark moves, or 2 ms after it came
                    if it tells first of records that are committed by now. 3.9.2 holds it on.
    HELD_LONGER     4.3.1 answered some held Fetches without records and without news; ours waits for the records.
    FASTER_DISK     our disk takes no time here, so the high watermark may be ahead of what the real leader knew.
    CLOCK           wall-clock times in DescribeQuorum, by a few milliseconds, and the order of its observers.
    GAVE_WAY        two of 4.3.1 asked each other, stood at once and split the vote; ours lets the other one go first.
    HEARD_BEFORE    ours waits for that other one to lead, asks who does, and hears of it before it is asked to vote.
questions of ours that the real replica did not ask
    DOWN            the other was down: a capture has no refused connections.
    SEARCHING       a Fetch to find the leader, at another time or to another server than chance had it there.
                    (It is asked under nobody's name and once more of the leader itself; one Fetch of Kafka's is both.)
    NEWER_KAFKA     3.9.2 knows no pre-vote and no UpdateRaftVoter with kraft.version 0; 4.3.1 sends both.
questions of the real replica that ours did not ask
    ITSELF          Kafka also asks itself who leads.
    IN_VAIN         Kafka repeats a Fetch that was refused at once, thousands of times a second; ours pauses.
    REPEATED        the same question twice, where a BeginQuorumEpoch made the real replica ask anew.
    OLDER_KAFKA     3.9.2 sends BeginQuorumEpoch each second even to voters that fetch (KAFKA-16926).
    GAVE_WAY        the Vote of the one that was let go first no more; see above.
never seen here
    ConnectionLost is not told to the core: what it then does sooner than Kafka has tests of its own.
"""

from __future__ import annotations

import enum
from collections import Counter
from functools import cache
from typing import Any

import attrs
import pytest

from kraftlib.consensus import vote
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.batch import read_batches
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage, VotersRecord
from kraftlib.storage.election.line import election_of, parse_line
from kraftlib.storage.log.epochs import decode_epochs
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest
from tests.captured import DATA
from tests.conversations.life import Pair, fetch_error, fetch_partition, life
from tests.conversations.stage import Answered, Asked, Stage, is_pre_vote

PARTS = [
    # release, replica, least number of equal answers, of equal questions
    ("kafka-4.3.1", 1, 560, 250),
    ("kafka-4.3.1", 2, 8_980, 195),
    ("kafka-4.3.1", 3, 395, 185),
    ("kafka-4.3.1", 4, 0, 81),
    ("kafka-4.3.1", 10, 0, 315),
    ("kafka-3.9.2", 1, 285, 95),
    ("kafka-3.9.2", 2, 175, 95),
    ("kafka-3.9.2", 3, 35, 65),
    ("kafka-3.9.2", 10, 0, 130),
]
IDS = [f"{release} replica {node_id}" for release, node_id, *_ in PARTS]
REPLICAS = [(release, node_id) for release, node_id, *_ in PARTS]


class Reason(enum.Enum):
    """Why two messages may differ, or one have no counterpart; see above."""

    EQUAL = enum.auto()
    UNANSWERED = enum.auto()
    HELD_SHORTER = enum.auto()
    HELD_LONGER = enum.auto()
    FASTER_DISK = enum.auto()
    CLOCK = enum.auto()
    DOWN = enum.auto()
    SEARCHING = enum.auto()
    NEWER_KAFKA = enum.auto()
    ITSELF = enum.auto()
    IN_VAIN = enum.auto()
    REPEATED = enum.auto()
    OLDER_KAFKA = enum.auto()
    GAVE_WAY = enum.auto()
    HEARD_BEFORE = enum.auto()


@cache
def played(release: str, node_id: int) -> Stage:
    """The part of a replica, played to its end."""
    return Stage(life(release), node_id).play()


# --- answers ---------------------------------------------------------------------------------------------------------


def judge_answer(answered: Answered) -> Reason | None:
    """Why our answer may stand beside the real one; None if it may not."""
    ours, real = answered.response, answered.pair.response
    if real is None:
        return Reason.UNANSWERED
    if ours is None:
        return None
    if isinstance(answered.pair.request, DescribeQuorumRequest):
        return Reason.CLOCK if without_clock(ours) == without_clock(real) else None
    if isinstance(answered.pair.request, VoteRequest) and ours != real:
        return judge_vote(answered)
    if not isinstance(answered.pair.request, FetchRequest):
        return Reason.EQUAL if ours == real else None
    if fetch_error(ours):
        return Reason.EQUAL if ours == real else None
    is_told_later = answered.pair.answered_ms is not None and answered.at_ms < answered.pair.answered_ms - 1
    if fetch_error(real):
        # The leader resigned while it held the Fetch; ours had news to tell before.
        return Reason.HELD_SHORTER if not answered.records and is_told_later else None
    return judge_fetched(answered, is_told_later)


def judge_vote(answered: Answered) -> Reason | None:
    """The same for a Vote that two answered differently."""
    asked = answered.pair.request.topics[0].partitions[0]
    (mine, theirs) = (each.topics[0].partitions[0] for each in (answered.response, answered.pair.response))
    if gave_way(answered):
        return Reason.GAVE_WAY
    follows = mine.leader_id == asked.replica_id and mine.leader_epoch >= asked.replica_epoch
    return Reason.HEARD_BEFORE if follows and theirs.vote_granted else None


def gave_way(answered: Answered) -> bool:
    """Whether ours voted for the asker where the real replica had voted for itself, in the same epoch."""
    if not isinstance(answered.pair.request, VoteRequest) or answered.pair.response is None:
        return False
    asked = answered.pair.request.topics[0].partitions[0]
    (mine, theirs) = (each.topics[0].partitions[0] for each in (answered.response, answered.pair.response))
    return bool(
        not asked.pre_vote
        and (mine.leader_epoch, mine.leader_id) == (theirs.leader_epoch, theirs.leader_id) == (asked.replica_epoch, -1)
        and mine.vote_granted
        and not theirs.vote_granted
    )


def judge_fetched(answered: Answered, is_told_later: bool) -> Reason | None:
    """The same for a Fetch that both leaders served: all but records and high watermark is equal."""
    ours, real = answered.response, answered.pair.response
    if without_progress(ours) != without_progress(real):
        return None
    mine, theirs = fetch_partition(ours), fetch_partition(real)
    sent = b"".join(bytes(batch.data) for batch in answered.records)
    wanted = bytes(theirs.records or b"")
    if mine.high_watermark < theirs.high_watermark:
        return None
    if same_batches(sent, wanted):
        return Reason.EQUAL if mine.high_watermark == theirs.high_watermark else Reason.FASTER_DISK
    if not sent and is_told_later:
        return Reason.HELD_SHORTER
    return Reason.HELD_LONGER if not wanted else None


def same_batches(ours: bytes, real: bytes) -> bool:
    """Byte for byte; but the first batch of an epoch, which our core wrote itself, by its place."""
    mine, theirs = read_batches(ours), read_batches(real)
    return len(mine) == len(theirs) and all(
        one.data == other.data or (one.is_control and (one.base_offset, one.epoch) == (other.base_offset, other.epoch))
        for one, other in zip(mine, theirs, strict=True)
    )


def without_progress(response: FetchResponse) -> FetchResponse:
    """An answer to Fetch without what depends on when exactly it was given."""
    (topic,) = response.responses
    partition = attrs.evolve(topic.partitions[0], records=b"", high_watermark=0)
    return attrs.evolve(response, responses=(attrs.evolve(topic, partitions=(partition,)),))


def without_clock(response: DescribeQuorumResponse) -> DescribeQuorumResponse:
    """A description with times to a fiftieth of a second, and its replicas in order."""

    def rows(table: Any) -> Any:
        return tuple(
            attrs.evolve(
                row,
                last_fetch_timestamp=round(row.last_fetch_timestamp, -2),
                last_caught_up_timestamp=round(row.last_caught_up_timestamp, -2),
            )
            for row in sorted(table, key=lambda row: row.replica_id)
        )

    (topic,) = response.topics
    (partition,) = topic.partitions
    partition = attrs.evolve(
        partition, current_voters=rows(partition.current_voters), observers=rows(partition.observers)
    )
    nodes = tuple(sorted(response.nodes, key=lambda node: node.node_id))
    return attrs.evolve(response, topics=(attrs.evolve(topic, partitions=(partition,)),), nodes=nodes)


@pytest.mark.parametrize(("release", "node_id", "least", "_"), PARTS, ids=IDS)
def test_our_core_answers_what_the_real_replica_answered(release: str, node_id: int, least: int, _: int) -> None:
    """Error codes, leaders, epochs, votes, endpoints, divergences, snapshots, records, high watermarks."""
    judged = [(judge_answer(answered), answered) for answered in played(release, node_id).answered]
    unexplained = [(str(a.pair), a.at_ms, a.response, a.pair.response) for reason, a in judged if reason is None]

    assert unexplained == []
    assert Counter(reason for reason, _ in judged)[Reason.EQUAL] >= least


@pytest.mark.parametrize(("release", "node_id"), REPLICAS, ids=IDS)
def test_our_core_answers_everything_that_the_real_replica_answered(release: str, node_id: int) -> None:
    """Nothing is left open but what a replica had not answered itself when it was killed."""
    stage = played(release, node_id)
    answered = {answer.pair for answer in stage.answered}
    missing = [
        pair for pair in life(release).asked_of(node_id) if pair.answered_ms is not None and pair not in answered
    ]

    assert [str(pair) for pair in missing] == []


# --- questions -------------------------------------------------------------------------------------------------------


def judge_question(stage: Stage, asked: Asked) -> Reason | None:
    """Why our core may ask this; None if it may not."""
    if asked.pair is not None:
        return Reason.EQUAL
    if not stage.life.listens(asked.target, asked.at_ms):
        return Reason.DOWN
    if stage.life.is_static and (is_pre_vote(asked.request) or isinstance(asked.request, UpdateRaftVoterRequest)):
        return Reason.NEWER_KAFKA
    if isinstance(asked.request, FetchRequest) and asked.target != asked.follows:
        return Reason.SEARCHING
    return None


def judge_silence(stage: Stage, pair: Pair) -> Reason | None:
    """Why our core may not have asked this; None if it should have."""
    if pair.target == stage.node_id:
        return Reason.ITSELF
    if isinstance(pair.request, FetchRequest) and pair.response is not None and fetch_error(pair.response):
        return Reason.IN_VAIN
    if isinstance(pair.request, VoteRequest):
        epoch = pair.request.topics[0].partitions[0].replica_epoch
        granted = (a for a in stage.answered if gave_way(a))
        if any(a.pair.request.topics[0].partitions[0].replica_epoch == epoch for a in granted):
            return Reason.GAVE_WAY
    if stage.life.is_static and isinstance(pair.request, BeginQuorumEpochRequest):
        epoch = pair.request.topics[0].partitions[0].leader_epoch
        introduced = [a.pair for a in stage.asked if isinstance(a.request, BeginQuorumEpochRequest) and a.pair]
        led = {begin.request.topics[0].partitions[0].leader_epoch for begin in introduced}
        return Reason.OLDER_KAFKA if epoch in led else None
    same = (a for a in stage.asked if a.target == pair.target and a.pair and a.pair.request == pair.request)
    return Reason.REPEATED if any(same) else None


@pytest.mark.parametrize(("release", "node_id", "_", "least"), PARTS, ids=IDS)
def test_our_core_asks_what_the_real_replica_asked(release: str, node_id: int, _: int, least: int) -> None:
    """The very same bytes: epochs, offsets, last epochs, high watermarks, candidates, endpoints, limits."""
    stage = played(release, node_id)
    judged = [(judge_question(stage, asked), asked) for asked in stage.asked]
    unexplained = [(asked.at_ms, asked.target, asked.request) for reason, asked in judged if reason is None]

    assert unexplained == []
    assert Counter(reason for reason, _ in judged)[Reason.EQUAL] >= least


@pytest.mark.parametrize(("release", "node_id"), REPLICAS, ids=IDS)
def test_our_core_asks_all_that_the_real_replica_asked(release: str, node_id: int) -> None:
    """What it leaves out is in vain, or a repetition."""
    stage = played(release, node_id)
    asked = {question.pair for question in stage.asked}
    silent = [pair for pair in stage.told if pair not in asked]

    assert [str(pair) for pair in silent if judge_silence(stage, pair) is None] == []


def test_our_core_does_not_split_the_vote_that_two_of_kafka_split() -> None:
    """Both had lost their leader at once, and lost another second and a quarter by standing at once."""
    given = [judge_answer(answered) for answered in played("kafka-4.3.1", 2).answered]

    assert given.count(Reason.GAVE_WAY) == 1


def test_our_core_does_not_ask_in_a_hot_loop() -> None:
    """An observer of 4.3.1 asked a leader that had resigned 8,251 times in five seconds; ours asks now and then."""
    stage = played("kafka-4.3.1", 1)
    last_ms = 70_600
    assert sum(pair.sent_ms > last_ms for pair in stage.told) > 8_000

    assert sum(asked.at_ms > last_ms for asked in stage.asked) < 200


# --- what is left in the end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "node_id"), REPLICAS, ids=IDS)
def test_the_log_in_the_end_is_that_of_the_real_quorum(release: str, node_id: int) -> None:
    """Byte for byte; the first batch of an own epoch says the same, at its own time."""
    stage = played(release, node_id)
    ours = list(stage.log.read(stage.log.start_offset, 1 << 30))
    real = [b for b in life(release).batches if stage.log.start_offset <= b.base_offset < stage.log.end_offset]

    assert len(ours) == len(real) > 0
    for one, other in zip(ours, real, strict=True):
        assert one.data == other.data or [meaning(record) for record in controls(one)] == [
            meaning(record) for record in controls(other)
        ]


def controls(batch: Any) -> list[Any]:
    """The control records of a batch; none of a batch of data."""
    return [control for _, control in decode_control_batch(batch)] if batch.is_control else []


def meaning(control: Any) -> object:
    """What a control record says, whatever the order of the voters in it."""
    if isinstance(control, LeaderChangeMessage):
        voters = sorted(voter.voter_id for voter in control.voters)
        return control.leader_id, voters, sorted(voter.voter_id for voter in control.granting_voters)
    return VoterSet.from_record(control) if isinstance(control, VotersRecord) else control


@pytest.mark.parametrize(("release", "node_id"), [("kafka-4.3.1", 1), ("kafka-4.3.1", 4), ("kafka-3.9.2", 1)])
def test_election_and_epochs_in_the_end_are_those_on_the_real_disk(release: str, node_id: int) -> None:
    """`quorum-state` and `leader-epoch-checkpoint` of the controllers whose directories we have."""
    stage = played(release, node_id)
    directory = DATA / release / f"n{node_id}/__cluster_metadata-0"
    assert stage.election is not None

    assert stage.election == election_of(parse_line((directory / "quorum-state").read_bytes()))
    assert stage.log.epoch_starts() == decode_epochs((directory / "leader-epoch-checkpoint").read_bytes())


def test_the_voters_that_our_leader_submits_are_those_that_the_real_one_wrote() -> None:
    """After AddRaftVoter and RemoveRaftVoter (KIP-853)."""
    stage = played("kafka-4.3.1", 2)
    written = [
        VoterSet.from_record(control)
        for batch in life("kafka-4.3.1").batches
        if batch.epoch == 4
        for control in controls(batch)
        if isinstance(control, VotersRecord)
    ]

    assert [VoterSet.from_record(record) for record in stage.submitted] == written
    assert [voters.ids for voters in written] == [(1, 2, 3, 4), (2, 3, 4)]


# --- the comparison itself -------------------------------------------------------------------------------------------


def test_a_core_that_forgets_to_vote_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that excuses everything would find nothing."""
    monkeypatch.setattr(vote, "grants_vote", lambda *_: False)
    stage = Stage(life("kafka-3.9.2"), 2).play()

    assert None in [judge_answer(answered) for answered in stage.answered]


def test_every_reason_occurs() -> None:
    """Else it is none, and goes."""
    seen = {Reason.EQUAL}
    for release, node_id in REPLICAS:
        stage = played(release, node_id)
        asked = {question.pair for question in stage.asked}
        seen |= {reason for answered in stage.answered if (reason := judge_answer(answered))}
        seen |= {reason for question in stage.asked if (reason := judge_question(stage, question))}
        seen |= {reason for pair in stage.told if pair not in asked and (reason := judge_silence(stage, pair))}

    assert seen == set(Reason)
