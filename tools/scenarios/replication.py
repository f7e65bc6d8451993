"""Scenarios of replication and acknowledgement: L4, L7 to L10, L12 to L14, L17."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.workload import Outcome
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tools.scenarios import handmade as msg
from tools.scenarios.scenario import Chapter, WorldFields
from tools.scenarios.story import Story

scenario: Final = Chapter()


@scenario(
    "L4",
    "a record of an older epoch reaches a majority, its leader dies, and a voter without it can still win (figure 8)",
    expected="it does not count as committed before a record of the new epoch is on a majority, too",
    voters=5,
    config={"fetch_max_bytes": 1},
)
def older_epoch_is_not_counted(story: Story) -> None:
    first = story.leader()
    story.everybody_has_everything()
    second, *others = story.followers(first)
    base = story.committed
    # Only `second` gets the record: two of five.
    for node in others:
        story.cut(node)
    story.append(1, to=first, wait=False)
    story.until(lambda: second.flushed_offset > base, story.patience_ms, "the record reaches no follower")
    story.crash(first, second)
    # One of the others leads, and no follower gets its first record.
    story.heal()
    rival = story.just_elected()
    story.cut(rival)
    story.pass_ms(1)
    story.crash(rival)
    story.happened("two uncommitted records of different epochs at one offset", rival.chain.end_offset > base)
    # The voter with the older record leads again and spreads it, and nothing else.
    held = story.meddling.drop(FetchResponse, where=begins_beyond(base))
    story.start(first, second)
    story.heal()
    winner = story.just_elected()
    story.world.run_until(lambda: sum(node.flushed_offset > base for node in others) == 2, story.patience_ms)
    story.pass_ms(5)
    holders = sum(node.flushed_offset > base for node in story.nodes if node is not rival)
    story.happened("record of an older epoch on a majority", holders >= 3 and held.count > 0)
    story.expect(story.committed == base, f"{winner} counts a record of an older epoch as committed")
    # And now a voter that never had it leads after all.
    story.crash(first, second)
    held.stop()
    story.start(rival)
    new = story.just_elected()
    story.expect(new is rival, f"{new} leads with a log that is behind that of {rival}")


def begins_beyond(offset: int) -> Callable[[FetchResponse], bool]:
    """Return whether a Fetch answer brings records from beyond this offset."""
    return lambda answer: msg.has_records(answer) and msg.first_offset(answer) > offset


@scenario(
    "L7",
    "a voter fetches from further back than before; another one comes back empty, where no directory ids are known",
    expected="their Fetches are served, and the high watermark does not fall",
    voters=4,
)
def fetch_offset_goes_back(story: Story) -> None:
    leader = story.leader()
    story.append(3)
    story.everybody_has_everything()
    victim, absent, _ = story.followers(leader)
    story.cut(absent)
    story.append(5, to=leader)
    before = story.state(leader).high_watermark
    # Without this voter fewer than a majority have what is committed, as far as the leader can see.
    request = msg.fetch(
        ReplicaKey(victim.key.id), story.epoch, cluster_id=story.world.cluster_id, offset=1, last_epoch=story.epoch
    )
    question = story.ask(leader, request)
    story.happened("Fetch from further back", question.answer is not None and msg.has_records(question.answer))
    story.expect(story.state(leader).high_watermark >= before, "the high watermark fell")
    story.heal()
    story.everybody_has_everything()
    story.crash(victim)
    victim.wipe()
    story.start(victim)
    again = story.world.run_until(lambda: story.state(victim).log.end_offset >= before, story.patience_ms)
    story.happened("voter fetched from 0 again", again)
    story.expect(story.state(leader).high_watermark >= before, "the high watermark fell")
    story.append(2)


@scenario(
    "L8",
    "followers have received records that their disks do not have yet, and all of them lose power",
    expected="a follower fetches on only from what is flushed: all acknowledged records are still there",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def followers_lose_what_is_not_flushed(story: Story) -> None:
    leader = story.leader()
    followers = story.followers(leader)
    story.everybody_has_everything()
    for node in followers:
        node.disk.hung = True
    calls = story.append(4, to=leader, wait=False)
    story.pass_ms(story.config.fetch_max_wait_ms)
    unflushed = sum(node.chain.end_offset - node.flushed_offset for node in followers)
    story.happened("records received and not flushed", unflushed)
    story.expect(
        all(call.outcome is not Outcome.ACKNOWLEDGED for call in calls),
        "acknowledged though no follower has it on disk",
    )
    story.crash(*followers)
    for node in followers:
        node.disk.unhang()
    story.start(*followers)


@scenario(
    "L9",
    "a leader has records that its own disk does not have yet, one follower has them, and then it loses power",
    expected="its own copy does not count before it is flushed",
)
def leader_loses_what_is_not_flushed(story: Story) -> None:
    leader = story.leader()
    first, second = story.followers(leader)
    story.everybody_has_everything()
    story.cut(second)
    leader.disk.hung = True
    calls = story.append(4, to=leader, wait=False)
    story.pass_ms(story.config.fetch_max_wait_ms)
    story.happened("records not flushed by the leader", leader.chain.end_offset - leader.flushed_offset)
    story.happened("records flushed by one follower", first.flushed_offset - leader.flushed_offset)
    story.expect(
        all(call.outcome is not Outcome.ACKNOWLEDGED for call in calls), "acknowledged with one of three disks"
    )
    story.crash(leader, first)
    leader.disk.unhang()
    story.heal()
    story.start(leader)


def truncated_batch(answer: FetchResponse) -> FetchResponse:
    """The records, cut short in their first batch."""
    return msg.with_partition(answer, records=bytes(msg.fetched(answer).records)[:50])


def other_epoch(answer: FetchResponse) -> FetchResponse:
    """The first batch with an epoch that never was: the checksum does not cover it."""
    data = bytearray(msg.fetched(answer).records)
    data[12:16] = (10**6).to_bytes(4, "big")
    return msg.with_partition(answer, records=bytes(data))


def other_offset(answer: FetchResponse) -> FetchResponse:
    """The first batch with an offset that leaves a gap: it stands outside of the checksum, too."""
    data = bytearray(msg.fetched(answer).records)
    data[0:8] = (int.from_bytes(data[0:8], "big") + 3).to_bytes(8, "big")
    return msg.with_partition(answer, records=bytes(data))


def other_magic(answer: FetchResponse) -> FetchResponse:
    """The first batch in a format that does not exist."""
    data = bytearray(msg.fetched(answer).records)
    data[16] = 9
    return msg.with_partition(answer, records=bytes(data))


def flipped_bit(answer: FetchResponse) -> FetchResponse:
    """The first batch with a bit of its body flipped."""
    return msg.with_partition(answer, records=msg.flipped(answer, place=61))


DAMAGES: Final = (truncated_batch, other_epoch, other_offset, other_magic, flipped_bit)


@scenario(
    "L10",
    "batches arrive with a flipped bit, cut short, in an unknown format, with a foreign epoch or a gap before them",
    expected="nothing of it is appended, it is counted and fetched anew",
)
def damaged_batches_on_the_way(story: Story) -> None:
    story.world.checker.alarms_expected = True
    for damage in DAMAGES:
        leader = story.leader()
        victim = story.followers(leader)[0]
        story.everybody_has_everything()
        end_offset = victim.chain.end_offset
        rule = story.meddling.alter(
            FetchResponse, damage, where=msg.has_records, source=leader.key.id, target=victim.key.id, times=2
        )
        story.append(1, to=leader)
        story.until(lambda rule=rule: rule.count > 0, story.patience_ms, "no records to damage")  # type: ignore[misc]
        story.happened(damage.__name__.replace("_", " "), rule.count)
        if rule.count < 2:
            story.expect(victim.chain.end_offset <= end_offset + 1, "a damaged batch was taken")
        story.until(
            lambda victim=victim: victim.chain.end_offset == story.committed,  # type: ignore[misc]
            story.patience_ms,
            f"{victim} does not get over {damage.__name__}",
        )


@scenario(
    "L12",
    "Fetches are limited to one byte, to less than a batch, or to a batch less one byte",
    expected="at least one whole batch comes all the same",
    draw=lambda random: {"config": {"fetch_max_bytes": random.choice((1, 100, 1_060))}},
)
def batches_larger_than_the_limit(story: Story) -> None:
    story.world.workload.value_bytes = 1_000
    leader = story.leader()
    victim = story.followers(leader)[0]
    story.cut(victim)
    story.append(6, values=4)
    story.heal()
    big = max(len(entry.batch.data) for entry in leader.chain.entries)
    story.happened("batch larger than the limit", big > story.config.fetch_max_bytes)
    story.everybody_has_everything()


@scenario(
    "L13",
    "all lose power while a batch of several records is being written, and part of it reaches the disk",
    expected="records that were appended together are there together, or not at all",
)
def torn_batch(story: Story) -> None:
    torn = 0
    for _ in range(5):
        leader = story.leader()
        story.everybody_has_everything()
        story.append(3, to=leader, wait=False, values=5)
        story.pass_ms(story.random.randint(0, 1))
        story.crash(*story.nodes)
        torn += sum(bool(node.log.torn_tail) for node in story.nodes)
        story.start(*story.nodes)
    story.happened("batches torn", torn)


@scenario(
    "L14",
    "a leader loses its leadership while Fetches of all others wait with it",
    expected="all of them are answered at once, with the new epoch or without a leader",
    draw=lambda random: {"voters": 3, "observers": random.choice((0, 2)), "config": {"fetch_max_wait_ms": 190}},
)
def waiting_fetches_are_answered(story: Story) -> None:
    for _ in range(3):
        leader = story.leader()
        story.everybody_has_everything()
        story.pass_ms(20)
        waiting = [
            story.puppet.ask(leader, waiting_fetch(story, leader, story.world.nodes[other.key.id]))
            for other in story.nodes
            if other is not leader
        ]
        story.pass_ms(5)
        held = sum(not question.is_over for question in waiting)
        story.happened("Fetch that waits", held)
        story.resign(leader)
        story.until(
            lambda waiting=waiting: all(question.is_over for question in waiting),  # type: ignore[misc]
            20,
            "a Fetch waits on with a replica that leads no more",
        )
        story.leader()


def waiting_fetch(story: Story, leader: SimulatedNode, asker: SimulatedNode) -> FetchRequest:
    """A Fetch at the end of the leader's log, which waits."""
    state = story.state(leader)
    key = asker.key if story.world.kraft_version else ReplicaKey(asker.key.id)
    return msg.fetch(
        key,
        state.epoch,
        cluster_id=story.world.cluster_id,
        offset=state.log.end_offset,
        last_epoch=state.log.last_epoch,
        max_wait_ms=10_000,
    )


NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 2, 3, 99, 2**31 - 1)
OFFSETS: Final = (-(2**63), -1, 0, 1, 5, 1_000, 2**31, 2**63 - 1)


def random_request(story: Story) -> Any:
    """Any request of a replica, with numbers that no replica would send."""
    draw = story.random.choice
    key = ReplicaKey(draw((1, 2, 3, 9, -1, 2**31 - 1)))
    # An epoch that could be real would be taken for real; a huge or past one must do nothing.
    epoch = draw([number for number in NUMBERS if number <= 0 or number > 10**6])
    cluster_id = draw((story.world.cluster_id, None, "another-cluster", ""))
    end = OffsetAndEpoch(epoch=draw(NUMBERS), offset=draw(OFFSETS))
    made: Callable[[], Any] = draw(
        (
            lambda: msg.vote(key, epoch, cluster_id=cluster_id, end=end, pre_vote=draw((True, False))),
            lambda: msg.begin(key.id, epoch, cluster_id=cluster_id),
            lambda: msg.end(key.id, epoch, cluster_id=cluster_id),
            lambda: msg.fetch(key, epoch, cluster_id=cluster_id, offset=end.offset, last_epoch=end.epoch),
            lambda: msg.fetch_snapshot(key, epoch, cluster_id=cluster_id, snapshot=end, position=draw(OFFSETS)),
        )
    )
    request = made()
    if isinstance(request, FetchRequest) and draw((True, False)):
        return attrs.evolve(request, topics=draw(((), request.topics * 2)), max_bytes=draw(NUMBERS))
    if draw((True, False, False)):
        return attrs.evolve(request, topics=draw(((), request.topics * 2)))
    return request


@scenario(
    "L17",
    "requests and answers arrive whose numbers make no sense: negative, huge, of epochs that never were",
    expected="answered with an error, or not at all; never an exception, and no replica stops",
)
def senseless_numbers(story: Story) -> None:
    story.world.checker.alarms_expected = True
    story.leader()
    story.append(3)
    for _ in range(150):
        node = story.random.choice(story.nodes)
        question = story.ask(node, random_request(story), wait_ms=0 if story.random.random() < 0.5 else 3)
        story.happened("senseless request", question is not None)
        story.expect(node.is_up, f"{node} has stopped because of what a peer said")
    altered = story.meddling.alter(
        FetchResponse,
        lambda answer: msg.with_partition(answer, **senseless_fields(story)),
        where=lambda answer: bool(answer.responses) and story.random.random() < 0.3,
    )
    story.pass_ms(20 * story.config.fetch_timeout_ms)
    story.happened("senseless answer", altered.count)
    altered.stop()
    story.expect(all(node.is_up for node in story.nodes), "a replica has stopped because of what a peer said")


def senseless_fields(story: Story) -> WorldFields:
    """Some field of the partition of a Fetch answer, with a value that no leader would send."""
    draw = story.random.choice
    return draw(
        (
            {"diverging_epoch": FetchResponse.EpochEndOffset(epoch=draw(NUMBERS), end_offset=draw((-5, 0, 2**63 - 1)))},
            {"snapshot_id": FetchResponse.SnapshotId(epoch=draw(NUMBERS), end_offset=-draw((1, 7, 2**62)))},
            {"high_watermark": draw((-(2**63), -1, 0))},
            {"error_code": draw((-1, 3, 6, 74, 75, 32_000))},
            {"records": draw((b"", bytes(5), bytes(100), b"\xff" * 200))},
        )
    )
