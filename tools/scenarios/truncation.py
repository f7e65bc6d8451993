"""Logs that diverge and are cut back, and the high watermark: L1 to L3, L5, L6, L11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.trace import Step
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tools.scenarios import handmade as msg
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story

scenario: Final = Chapter()


def lonely_records(story: Story, leader: SimulatedNode, count: int) -> None:
    """Let the leader append records that no other replica gets, and replace it by another leader."""
    story.cut(leader)
    story.append(count, to=leader, wait=False, values=story.random.randint(1, 3))
    story.pass_ms(5)
    others = [node for node in story.nodes if node is not leader]
    story.until(lambda: story.world.leader() in others, story.patience_ms, "no other leader")


def truncations(story: Story) -> int:
    """Return how often a log has been truncated so far."""
    return story.world.trace.counts[Step.TRUNCATED]


def vouches_beyond(offset: int) -> Callable[[FetchRequest], bool]:
    """Return whether a Fetch says that more than this is durable at its sender."""
    return lambda request: request.topics[0].partitions[0].fetch_offset > offset


@scenario(
    "L1",
    "the answer that told a follower to cut its log back arrives again and again, and late",
    expected="an answer is used once: records that were appended since stay",
)
def diverging_answer_comes_again(story: Story) -> None:
    for _ in range(2):
        leader = story.leader()
        story.everybody_has_everything()
        rule = story.meddling.repeat(
            FetchResponse, after_ms=(1, 3, 10, 40, 90), where=msg.diverges, target=leader.key.id
        )
        lonely_records(story, leader, 4)
        story.append(2)
        before = truncations(story)
        story.heal()
        story.until(lambda rule=rule: rule.count > 0, story.patience_ms, "no divergence")  # type: ignore[misc]
        for _ in range(12):
            story.append(1)
            story.pass_ms(story.random.randint(0, 12))
        story.happened("diverging answers that came again", rule.count)
        story.expect(truncations(story) - before <= rule.count, "a log was cut back more often than it was told to")
        rule.stop()


@scenario(
    "L2",
    "leaders change over and over, each with records that only it has, and meet each other's logs",
    expected="a log is cut back to the end of the highest common epoch, as often as needed, and no further",
    voters=5,
)
def divergence_over_many_epochs(story: Story) -> None:
    before = truncations(story)
    behind: list[SimulatedNode] = []
    for _ in range(5):
        if len(behind) == 2:
            # It meets logs that have moved on by several epochs since.
            story.heal(behind.pop(0))
            for node in behind:
                story.cut(node)
        leader = story.leader()
        lonely_records(story, leader, story.random.randint(1, 4))
        behind.append(leader)
    story.heal()
    story.append(3)
    story.everybody_has_everything()
    story.happened("logs cut back", truncations(story) - before)


@scenario(
    "L3",
    "a leader tells a follower to cut off what is committed",
    expected="refused and counted, the own log kept; no hot loop, and no replica stops",
)
def truncation_below_the_high_watermark(story: Story) -> None:
    story.world.checker.alarms_expected = True
    leader = story.leader()
    victim = story.followers(leader)[0]
    story.append(5)
    story.everybody_has_everything()
    end_offset = victim.chain.end_offset
    epoch = story.epoch
    rule = story.meddling.alter(
        FetchResponse,
        lambda answer: msg.diverging(answer, epoch=epoch, end_offset=2),
        where=lambda answer: msg.fetched(answer) is not None,
        source=leader.key.id,
        target=victim.key.id,
    )
    story.append(1, to=leader)
    story.pass_ms(story.config.fetch_timeout_ms // 2)
    story.happened("told to cut off what is committed", rule.count)
    story.expect(victim.chain.end_offset >= end_offset, f"{victim} cut off what is committed")
    story.expect(story.refused(victim, "truncation below the high watermark") > 0, f"{victim} has not said so")
    limit = story.config.fetch_timeout_ms // (2 * story.config.retry_backoff_ms)
    story.expect(rule.count <= limit, f"{victim} asked {rule.count} times in a hot loop")
    rule.stop()
    story.expect(victim.is_up, f"{victim} has stopped because of what a peer said")


@scenario(
    "L5",
    "a new leader begins with records of older epochs that are not committed",
    expected="they are committed with its own first record, and appends go on",
)
def uncommitted_tail_does_not_stall(story: Story) -> None:
    for _ in range(3):
        leader = story.leader()
        first, second = story.followers(leader)
        # One follower gets the records, and its acknowledgement never arrives: nothing is committed.
        story.cut(second)
        story.everybody_has_everything([leader, first])
        before = story.committed
        silent = story.meddling.drop(FetchRequest, source=first.key.id, where=vouches_beyond(before))
        story.append(3, to=leader, wait=False)
        story.pass_ms(story.config.fetch_timeout_ms // 4)
        silent.stop()
        story.crash(leader)
        story.heal()
        story.happened("records of an older epoch that are not committed", first.chain.end_offset - before)
        new = story.leader()
        story.expect(new is first, f"{new} leads without them")
        story.append(2)
        story.start(leader)
        story.everybody_has_everything()


@scenario(
    "L6",
    "answers with older high watermarks arrive late, and leaders change",
    expected="no replica's high watermark ever falls",
)
def high_watermark_never_falls(story: Story) -> None:
    late = story.meddling.repeat(FetchResponse, after_ms=(5, 20, 60), where=lambda _: story.random.random() < 0.5)
    slow = story.meddling.delay(FetchResponse, 30, where=lambda _: story.random.random() < 0.3)
    for _ in range(4):
        leader = story.leader()
        for _ in range(6):
            story.append(1, to=leader, wait=False)
            story.pass_ms(story.random.randint(1, 10))
        follower = story.followers(leader)[0]
        story.crash(follower)
        story.resign(leader)
        story.pass_ms(story.random.randint(0, 20))
        story.start(follower)
    story.happened("answers that came late again", late.count)
    story.happened("answers that came late", slow.count)
    story.meddling.stop()


@scenario(
    "L11",
    "a leader insists that a committed offset belongs to another epoch than the follower's",
    expected="refused and counted like L3, with pauses that grow; the follower keeps its log and serves again later",
)
def same_offset_other_epoch(story: Story) -> None:
    story.world.checker.alarms_expected = True
    first = story.leader()
    story.append(3)
    story.resign(first)
    story.until(lambda: story.world.leader() is not None and story.epoch > 1, story.patience_ms, "no second epoch")
    leader = story.leader()
    victim = story.followers(leader)[0]
    story.append(3)
    story.everybody_has_everything()
    committed, epoch = story.committed, story.epoch
    rule = story.meddling.alter(
        FetchResponse,
        lambda answer: msg.diverging(answer, epoch=epoch - 1, end_offset=committed - 1),
        where=lambda answer: msg.fetched(answer) is not None,
        source=leader.key.id,
        target=victim.key.id,
    )
    story.pass_ms(20 * story.config.fetch_timeout_ms)
    story.happened("told that a committed record is of another epoch", rule.count)
    story.expect(victim.chain.end_offset >= committed, f"{victim} has dropped committed records")
    seconds = 20 * story.config.fetch_timeout_ms / 1_000
    story.expect(rule.count / seconds < 60, f"{victim} asks {rule.count / seconds:.0f} times a second")
    story.expect(story.refused(victim, "truncation below the high watermark") > 0, f"{victim} has not said so")
