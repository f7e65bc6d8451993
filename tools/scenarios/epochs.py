"""Elections and epochs, continued: E12 to E20."""

from __future__ import annotations

import random as chance
from typing import Final

from kraftlib.consensus.roles import Role
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tools.scenarios import handmade as msg
from tools.scenarios.elections import vote_of
from tools.scenarios.scenario import Chapter, WorldFields
from tools.scenarios.story import Story

scenario: Final = Chapter()


@scenario(
    "E12",
    "a replica asks a leader and its followers for pre-votes over and over",
    expected="no timer, no epoch and nothing on disk changes, and the leader stays",
)
def pre_vote_changes_nothing(story: Story) -> None:
    leader = story.leader()
    story.everybody_has_everything()
    elections = story.elections
    for _ in range(20):
        for node in story.nodes:
            asker = story.random.choice([other for other in story.nodes if other is not node])
            state = story.state(node)
            before = (state.epoch, state.role, state.persisted, node.elections.read())
            timer = getattr(state.role_state, "election_deadline_ms", None)
            question = story.ask(node, vote_of(story, asker, story.epoch, pre_vote=True))
            story.happened("pre-vote asked for", question.answer is not None)
            story.expect(not msg.grants(question.answer), f"{node} grants a pre-vote while it hears its leader")
            after = (state.epoch, state.role, state.persisted, node.elections.read())
            story.expect(after == before, f"a pre-vote changed {before} to {after} on {node}")
            story.expect(
                timer == getattr(state.role_state, "election_deadline_ms", None), f"a pre-vote moved a timer of {node}"
            )
        story.pass_ms(story.config.election_timeout_ms // 10)
    # A pre-vote is no sign of life of the leader either: a voter that hears only pre-votes stands all the same.
    others = story.followers(leader)

    def keep_asking() -> None:
        for node, asker in (others, others[::-1]):
            story.puppet.ask(node, vote_of(story, asker, story.epoch, pre_vote=True))
        story.later(story.config.election_timeout_ms / 10, keep_asking)

    keep_asking()
    story.crash(leader)
    story.leader()
    story.expect(story.elections > elections, "no voter noticed that the leader is gone")


@scenario(
    "E13",
    "an observer, and a voter that was removed, are left alone for long",
    expected="neither ever stands for election",
    kraft_version=1,
    voters=4,
    observers=1,
)
def only_voters_stand(story: Story) -> None:
    story.leader()
    removed = story.followers()[0]
    observer = story.node(5)
    story.world.admin.remove(removed.key)
    story.until(lambda: not story.world.is_voter(removed), story.patience_ms, "the removal is not done")
    story.everybody_has_everything()
    epoch = story.epoch
    for node in story.nodes:
        story.cut(node)
    for _ in range(30):
        story.pass_ms(story.config.election_timeout_ms)
        for node in (removed, observer):
            role = story.role(node)
            story.expect(role in (Role.FOLLOWER, Role.UNATTACHED), f"{node} is no voter and became {role}")
    story.happened("alone for long", 2)
    story.expect(story.state(observer).epoch == epoch == story.state(removed).epoch, "an epoch grew")


@scenario(
    "E14",
    "another voter asks a leader for its vote in the very epoch that it leads",
    expected="never granted, and it leads on",
)
def leader_votes_for_nobody(story: Story) -> None:
    leader = story.leader()
    elections = story.elections
    for pre_vote in (True, False):
        for asker in story.followers(leader):
            question = story.ask(leader, vote_of(story, asker, leader.leads or 0, pre_vote=pre_vote))
            story.happened("leader asked for a vote in its epoch", question.answer is not None)
            story.expect(not msg.grants(question.answer), f"{leader} votes against itself")
    story.pass_ms(3 * story.config.fetch_timeout_ms)
    story.expect(story.elections == elections and leader.leads is not None, f"{leader} was deposed by a question")


TOPOLOGIES: Final = ("hub", "chain", "triangle")


@scenario(
    "E15",
    "partial partitions: all but one node lose sight of each other; a chain with the leader at its end; a triangle",
    expected="where one node reaches a majority both ways, it leads before long, and stays",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def partial_partitions(story: Story) -> None:
    for topology in TOPOLOGIES:
        leader = story.leader()
        story.everybody_has_everything()
        _, *rest = story.followers(leader)
        others = [leader, *rest]
        if topology == "hub":
            gone = [(a, b) for a in others for b in others if a is not b]
        elif topology == "chain":
            gone = [(leader, other) for other in rest] + [(other, leader) for other in rest]
        else:
            gone = [(leader, rest[0])]
        for a, b in gone:
            story.cut(a, b, ways="sends")
        story.happened(f"partial partition: {topology}", len(gone))
        story.pass_ms(10 * story.config.fetch_timeout_ms)
        story.leader()
        elections = story.elections
        story.pass_ms(60 * story.config.election_timeout_ms)
        story.expect(story.elections <= elections, f"{story.elections - elections} elections go on, {topology}")
        story.append(2)
        story.heal()
        story.everybody_has_everything()


def strict_or_not(random: chance.Random) -> WorldFields:
    """Draw whether messages for another replica are refused before any of their content is used."""
    return {"config": {"strict": random.random() < 0.5}}


@scenario(
    "E16",
    "a Vote reaches another node than it was meant for, or comes from another cluster",
    expected="of another cluster or in strict mode it changes nothing; else, as in Kafka, its epoch is taken over",
    draw=strict_or_not,
)
def misdirected_vote(story: Story) -> None:
    leader = story.leader()
    voter, meant = story.followers(leader)
    epoch = story.state(voter).epoch
    foreign = msg.vote(
        ReplicaKey(meant.key.id), epoch + 7, cluster_id="another-cluster", end=OffsetAndEpoch(epoch=epoch, offset=10**6)
    )
    question = story.ask(voter, foreign)
    story.happened("Vote of another cluster", question.is_over)
    story.expect(story.state(voter).epoch == epoch, f"another cluster brought {voter} to {story.state(voter).epoch}")
    question = story.ask(voter, vote_of(story, leader, epoch + 1, voter_id=meant.key.id))
    story.happened("Vote for another replica", question.is_over)
    story.expect(not msg.grants(question.answer), f"{voter} grants what {meant} was asked for")
    if story.config.strict:
        story.expect(question.failed, "a misdirected Vote is answered, not broken off with")
        story.expect(story.state(voter).epoch == epoch, "a misdirected Vote raised the epoch in strict mode")


@scenario(
    "E17",
    "a peer names an epoch far beyond all others, up to the largest there is",
    expected="refused and counted, whatever message it comes in; the epoch stays where it was",
)
def epoch_poisoning(story: Story) -> None:
    story.world.checker.alarms_expected = True
    leader = story.leader()
    voter = story.followers(leader)[0]
    epoch, cluster_id = story.epoch, story.world.cluster_id
    for huge in (epoch + story.config.epoch_jump_max + 1, msg.HUGE_EPOCH):
        for node in (leader, voter):
            asker = story.random.choice([other for other in story.nodes if other is not node])
            for request in (
                vote_of(story, asker, huge),
                vote_of(story, asker, huge, pre_vote=True),
                msg.begin(asker.key.id, huge, cluster_id=cluster_id),
                msg.end(asker.key.id, huge, cluster_id=cluster_id),
                msg.fetch(asker.key, huge, cluster_id=cluster_id, offset=1, last_epoch=huge),
            ):
                question = story.ask(node, request)
                story.happened("huge epoch in a request", question.is_over)
    altered = story.meddling.alter(
        FetchResponse,
        lambda answer: msg.with_partition(
            answer, current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=voter.key.id, leader_epoch=msg.HUGE_EPOCH)
        ),
        where=lambda answer: bool(answer.responses),
        times=3,
    )
    story.append(2)
    story.pass_ms(story.config.fetch_timeout_ms)
    story.happened("huge epoch in an answer", altered.count)
    for node in story.nodes:
        story.expect(story.state(node).epoch <= epoch + 5, f"{node} believes in epoch {story.state(node).epoch}")
    story.happened("epochs refused", sum(story.refused(node, "epoch jump") for node in story.nodes))


@scenario(
    "E18",
    "a voter is removed while it is cut off, and comes back",
    expected="it costs at most one election",
    kraft_version=1,
    draw=lambda random: {"voters": random.choice((3, 4, 5))},
)
def removed_voter_disturbs_little(story: Story) -> None:
    leader = story.leader()
    removed = story.followers(leader)[0]
    story.everybody_has_everything()
    story.cut(removed)
    while story.world.is_voter(removed):
        story.world.admin.remove(removed.key)
        story.pass_ms(story.config.request_timeout_ms)
        story.leader()
    story.pass_ms(20 * story.config.election_timeout_ms)
    story.happened("it does not know that it was removed", removed.chain.end_offset < story.committed)
    elections = story.elections
    story.heal()
    story.everybody_has_everything()
    story.pass_ms(10 * story.config.fetch_timeout_ms)
    story.expect(story.elections <= elections + 1, f"{removed} cost {story.elections - elections} elections")


@scenario(
    "E19",
    "EndQuorumEpoch is lost, comes twice and late, or is of an epoch long over",
    expected="lost, it costs a timeout; late, it changes nothing and is fenced",
)
def end_of_epoch_lost_or_late(story: Story) -> None:
    leader = story.leader()
    lost = story.meddling.drop(EndQuorumEpochRequest)
    story.shut_down(leader)
    story.world.run_until(lambda: not leader.is_up, story.patience_ms)
    story.leader()
    story.happened("EndQuorumEpoch lost", lost.count)
    lost.stop()
    story.start(leader)
    leader = story.leader()
    story.everybody_has_everything()
    late_ms = 6 * story.config.fetch_timeout_ms
    repeated = story.meddling.repeat(EndQuorumEpochRequest, after_ms=(0, late_ms))
    story.resign(leader)
    story.pass_ms(late_ms // 2)
    story.leader()
    elections = story.elections
    story.pass_ms(2 * late_ms)
    story.happened("EndQuorumEpoch repeated, and late", repeated.count)
    story.expect(story.elections == elections, "a late EndQuorumEpoch ended an epoch that it does not name")
    for node in story.nodes:
        before = story.state(node).epoch
        old = msg.end(story.leader().key.id, before - 1, cluster_id=story.world.cluster_id)
        question = story.ask(node, old)
        partition = question.answer.topics[0].partitions[0] if question.answer is not None else None
        story.expect(
            partition is not None and partition.error_code == ErrorCode.FENCED_LEADER_EPOCH, "an old end is not fenced"
        )
        story.happened("EndQuorumEpoch of an older epoch")
        story.expect(story.state(node).epoch == before, "an old end moved the epoch")


@scenario(
    "E20",
    "the first BeginQuorumEpochs are lost, and so are the Fetches of those who look for a leader",
    expected="it is repeated until each voter has fetched; the leader stays the only one",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def begin_is_repeated(story: Story) -> None:
    first = story.leader()
    story.everybody_has_everything()
    lost = story.meddling.drop(BeginQuorumEpochRequest, where=lambda _: story.random.random() < 0.7)
    blind = [
        story.meddling.drop(FetchRequest, source=node.key.id, where=lambda _: story.random.random() < 0.3)
        for node in story.nodes
    ]
    story.crash(first)
    story.leader()
    story.pass_ms(20 * story.config.election_timeout_ms)
    story.happened("BeginQuorumEpoch lost", lost.count)
    story.happened("Fetch lost", sum(rule.count for rule in blind))
    story.meddling.stop()
    story.leader()
