"""Changes of the voter set: M1 to M12."""

from __future__ import annotations

from typing import Any, Final

from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import VotersRecord
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.trace import Step
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest
from tools.scenarios import handmade as msg
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Question, Story

scenario: Final = Chapter()


def ask_to_add(story: Story, leader: SimulatedNode, node: SimulatedNode) -> Question:
    """Ask a particular node to make another one a voter."""
    return story.puppet.ask(leader, msg.add_voter(node.key, node.endpoint, cluster_id=story.world.cluster_id))


def append_addition(story: Story, leader: SimulatedNode, node: SimulatedNode) -> Question:
    """Ask until the leader has appended it: one question in many is put in a version that says too little."""
    question = ask_to_add(story, leader, node)
    for _ in range(5):
        story.world.run_until(
            lambda asked=question: asked.is_over or node.key.id in voters_of(story, leader),  # type: ignore[misc]
            10 * story.config.request_timeout_ms,
        )
        if node.key.id in voters_of(story, leader):
            return question
        question = ask_to_add(story, leader, node)
    story.expect(False, f"{leader} never appends the addition of {node}: {question.answer}")
    return question


def ask_to_remove(story: Story, leader: SimulatedNode, node: SimulatedNode) -> Question:
    """Ask a particular node to remove a voter."""
    return story.puppet.ask(leader, msg.remove_voter(node.key, cluster_id=story.world.cluster_id))


def voters_of(story: Story, node: SimulatedNode) -> set[int]:
    """The ids of the voters in the log of a node, committed or not."""
    return {key.id for key in story.world.checker.voters_of(node)}


def hear_voters(story: Story, leader: SimulatedNode, joiner: SimulatedNode | None) -> None:
    """Wait until a leader has heard all voters in its epoch, and the joiner, if there is one, has all that it has."""
    role = story.state(leader).role_state

    def is_caught_up(node: SimulatedNode) -> bool:
        observer = role.observers.get(node.key)
        return observer is not None and observer.end_offset == leader.chain.end_offset

    def heard() -> bool:
        voters = all(progress.heard_ms is not None for progress in role.progress.values())
        return voters and (joiner is None or is_caught_up(joiner))

    story.happened("leader that hears all voters", story.world.run_until(heard, story.config.fetch_timeout_ms // 2))


def change(story: Story, kind: str, leader: SimulatedNode, fresh: list[SimulatedNode]) -> Question:
    """Request the addition of a fresh replica, or the removal of a follower."""
    if kind == "add":
        return ask_to_add(story, leader, fresh.pop())
    return ask_to_remove(story, leader, story.followers(leader)[0])


@scenario(
    "M1",
    "a leader is asked for a change before it has committed anything in its epoch, and so is the next one (Ongaro)",
    expected="refused until it has; two changes by two leaders never make two majorities without a common voter",
    kraft_version=1,
    voters=4,
    observers=2,
)
def change_before_own_commit(story: Story) -> None:
    story.leader()
    fresh = story.nodes[4:]
    for first, second in (("add", "remove"), ("remove", "add"), ("remove", "remove")):
        story.everybody_has_everything([node for node in story.nodes if story.world.is_voter(node)])
        # The voters fetch, so the leader knows that they live, and get nothing; the observers get everything.
        held = [
            story.meddling.drop(FetchResponse, target=node.key.id, where=msg.has_records)
            for node in story.nodes
            if story.world.is_voter(node)
        ]
        story.resign(story.leader())
        leader = story.just_elected()
        hear_voters(story, leader, fresh[-1] if first == "add" else None)
        before = voters_of(story, leader)
        question = change(story, first, leader, fresh[:])
        story.wait_for(question, wait_ms=20)
        story.happened("asked before it has committed anything", story.state(leader).high_watermark is None)
        story.expect(voters_of(story, leader) == before, f"{leader} changes the voters before its own commit")
        story.cut(leader)
        for rule in held:
            rule.stop()
        story.replaced(leader)
        new = story.leader()
        changed = change(story, second, new, fresh)
        story.wait_for(changed)
        story.happened("change by the next leader", changed.is_over)
        story.heal()
        story.leader()
        answered = question.answer.error_code if question.answer is not None else None
        story.expect(answered != ErrorCode.NONE, f"{leader} says that its change is done")


@scenario(
    "M2",
    "a second change is asked for while one is not committed",
    expected="refused; one change at a time",
    kraft_version=1,
    voters=5,
)
def one_change_at_a_time(story: Story) -> None:
    leader = story.leader()
    story.append(1)
    story.everybody_has_everything()
    first, second = story.followers(leader)[:2]
    deaf = story.meddling.drop(FetchRequest)
    one = ask_to_remove(story, leader, first)
    story.pass_ms(2)
    story.happened("change that is not committed", first.key.id not in voters_of(story, leader))
    two = ask_to_remove(story, leader, second)
    story.pass_ms(3)
    story.expect(two.answer is not None and two.answer.error_code != ErrorCode.NONE, "a second change is under way")
    story.expect(second.key.id in voters_of(story, leader), "two voters were removed at once")
    deaf.stop()
    story.until(lambda: one.is_over, story.patience_ms, "the first change has no end")


@scenario(
    "M3",
    "a leader appends a change of the voters, is cut off at once, and the record is truncated",
    expected="everybody who had it falls back to the set before it, at once",
    kraft_version=1,
    voters=5,
)
def truncated_change(story: Story) -> None:
    leader = story.leader()
    story.append(1)
    story.everybody_has_everything()
    follower, removed = story.followers(leader)[:2]
    before = voters_of(story, leader)
    for node in story.nodes:
        if node not in (leader, follower):
            story.cut(leader, node)
            story.cut(follower, node)
    ask_to_remove(story, leader, removed)
    story.until(lambda: removed.key.id not in voters_of(story, follower), story.patience_ms, "the change goes nowhere")
    story.happened("uncommitted change on two replicas", 2)
    story.until(lambda: story.world.leader() not in (None, leader, follower), story.patience_ms, "no other leader")
    truncated = story.world.trace.counts[Step.TRUNCATED]
    story.heal()
    story.everybody_has_everything()
    story.happened("logs cut back", story.world.trace.counts[Step.TRUNCATED] - truncated)
    for node in (leader, follower):
        known = {voter.key.id for voter in story.state(node).voters}
        story.expect(known == before, f"{node} takes {known} for the voters after the truncation, they are {before}")


@scenario(
    "M4",
    "a leader removes itself, and only part of the remaining voters is there",
    expected="the others alone are the majority: its own copy counts no more",
    kraft_version=1,
    voters=3,
)
def removed_leader_does_not_count(story: Story) -> None:
    leader = story.leader()
    story.append(1)
    story.everybody_has_everything()
    present, absent = story.followers(leader)
    story.cut(absent)
    end_offset = leader.chain.end_offset
    ask_to_remove(story, leader, leader)
    story.until(lambda: present.flushed_offset > end_offset, story.patience_ms, "the removal goes nowhere")
    story.pass_ms(story.config.fetch_timeout_ms // 4)
    story.happened("removal on the leader and one of the two that remain", leader.flushed_offset > end_offset)
    story.expect(story.committed <= end_offset, "committed by one of the two voters that remain")
    story.heal()
    story.until(lambda: not story.world.is_voter(leader), story.patience_ms, "the removal is never committed")
    story.replaced(leader)


@scenario(
    "M5",
    "the leader is removed",
    expected="it leads until that is committed, answers, and resigns; then another one leads",
    kraft_version=1,
    draw=lambda random: {"voters": random.choice((3, 4, 5))},
)
def leader_is_removed(story: Story) -> None:
    leader = story.leader()
    story.append(2)
    epoch = leader.leads
    question = ask_to_remove(story, leader, leader)
    gone = story.world.run_until(lambda: leader.leads != epoch, story.patience_ms)
    story.happened("leader removed", gone)
    story.expect(not story.world.is_voter(leader), f"{leader} resigned before its removal was committed")
    story.until(lambda: question.is_over, story.patience_ms, "its caller hears nothing")
    new = story.leader()
    story.expect(new is not leader, f"{leader} leads again, and is no voter")
    story.append(2)
    story.pass_ms(10 * story.config.fetch_timeout_ms)
    story.expect(story.role(leader) in (Role.FOLLOWER, Role.UNATTACHED), f"{leader} became {story.role(leader)}")


@scenario(
    "M6",
    "a quorum of one becomes two over slow links",
    expected="it is committed by both, and the leader is not deposed meanwhile",
    kraft_version=1,
    voters=1,
    observers=1,
    config={"fetch_timeout_ms": 400, "request_timeout_ms": 800},
)
def second_voter(story: Story) -> None:
    leader = story.leader()
    story.append(2)
    story.everybody_has_everything()
    for node in story.nodes:
        for link in story.links(node):
            link.delay_us, link.jitter_us = 30_000, 10_000
    elections = story.elections
    joiner = story.node(2)
    question = append_addition(story, leader, joiner)
    story.until(lambda: question.is_over, 4 * story.patience_ms, "the addition has no end")
    story.happened("second voter over slow links", story.world.is_voter(joiner))
    story.expect(question.answer is not None and question.answer.error_code == ErrorCode.NONE, "it was refused")
    story.expect(story.elections == elections, "the leader was deposed by its own second voter")
    story.append(2)


@scenario(
    "M7",
    "a voter comes back with its id and an empty disk",
    expected="it is an observer, its votes and acknowledgements do not count; it is added anew under its new key",
    kraft_version=1,
    voters=3,
)
def same_id_other_disk(story: Story) -> None:
    leader = story.leader()
    story.append(3)
    story.everybody_has_everything()
    wiped, other = story.followers(leader)
    old = wiped.key
    story.crash(wiped)
    wiped.wipe()
    story.start(wiped)
    story.happened("disk replaced", wiped.key != old)
    story.everybody_has_everything()
    # With the third voter gone, its acknowledgements would be needed.
    story.cut(other)
    calls = story.append(1, to=leader, wait=False)
    story.pass_ms(story.config.fetch_timeout_ms // 2)
    story.expect(bool(calls) and story.committed < leader.chain.end_offset, "an empty disk stood in for a voter's")
    story.crash(leader)
    story.pass_ms(20 * story.config.election_timeout_ms)
    story.expect(story.world.leader() is None, "an empty disk voted, or stood")
    story.start(leader)
    story.heal()
    story.leader()
    story.until(lambda: remove_and_add(story, old, wiped), 2 * story.patience_ms, "it never becomes a voter again")


def remove_and_add(story: Story, old: ReplicaKey, node: SimulatedNode) -> bool:
    """Go on towards the old key being out and the new one in, one step at a time; return whether that is done."""
    admin, voters = story.world.admin, story.world.current_voters()
    idle = not admin.changes or admin.changes[-1].error_code is not None
    if old in voters:
        if idle:
            admin.remove(old)
    elif node.key not in voters:
        if idle:
            admin.add(node)
    else:
        return True
    return False


@scenario(
    "M8",
    "records are appended behind an uncommitted addition of a voter",
    expected="a majority of the new set commits them, not of the old one",
    kraft_version=1,
    voters=3,
    observers=1,
)
def majority_of_the_latest_set(story: Story) -> None:
    leader = story.leader()
    story.append(1)
    story.everybody_has_everything()
    near, far = story.followers(leader)
    joiner = story.node(4)
    end_offset = leader.chain.end_offset
    # The joiner and one voter get nothing new: two of three have it, and two of four.
    held = [
        story.meddling.drop(FetchResponse, target=node.key.id, where=lambda answer: brings_voters(answer, end_offset))
        for node in (far, joiner)
    ]
    append_addition(story, leader, joiner)
    story.until(lambda: near.flushed_offset > end_offset, story.patience_ms, "the addition goes nowhere")
    story.pass_ms(story.config.fetch_timeout_ms // 4)
    story.happened("addition on two of three, which is two of four", near.flushed_offset - end_offset)
    story.expect(story.committed <= end_offset, "the old majority committed the new voter set")
    for rule in held:
        rule.stop()
    story.until(lambda: story.world.is_voter(joiner), story.patience_ms, "the addition is never committed")


def brings_voters(answer: FetchResponse, offset: int) -> bool:
    """Whether a Fetch answer brings records from `offset` on."""
    return msg.has_records(answer) and msg.first_offset(answer) >= offset


@scenario(
    "M9",
    "a voter is added and does not know it yet; the leader dies, and its vote is needed",
    expected="it answers by comparing logs, and its vote counts",
    kraft_version=1,
    voters=2,
    observers=1,
)
def voter_that_does_not_know(story: Story) -> None:
    leader = story.leader()
    story.append(1)
    story.everybody_has_everything()
    other = story.followers(leader)[0]
    joiner = story.node(3)
    end_offset = leader.chain.end_offset
    held = story.meddling.drop(
        FetchResponse,
        source=leader.key.id,
        target=joiner.key.id,
        where=lambda answer: brings_voters(answer, end_offset),
    )
    append_addition(story, leader, joiner)
    story.until(lambda: story.world.is_voter(joiner), story.patience_ms, "the addition is never committed")
    story.happened("voter that does not know it", joiner.key.id not in voters_of(story, joiner) and held.count)
    story.crash(leader)
    new = story.leader()
    story.expect(new is other, f"{new} leads")


@scenario(
    "M10",
    "observers want to join and cannot: no leader, a leader that answers nothing, a leader that refuses",
    expected="they ask again after pauses: no replica spins",
    kraft_version=1,
    voters=2,
    observers=2,
    config={"auto_join": True},
)
def joining_in_vain(story: Story) -> None:
    story.leader()
    began_ms = story.world.now_ms
    observers = story.nodes[2:]
    turns = {node: node.process.turns for node in observers if node.process is not None}
    refused = story.meddling.drop(AddRaftVoterRequest)
    story.pass_ms(10 * story.config.fetch_timeout_ms)
    for node in story.nodes[:2]:
        story.cut(node)
    story.pass_ms(20 * story.config.fetch_timeout_ms)
    seconds = (story.world.now_ms - began_ms) / 1_000
    for node, before in turns.items():
        each = (node.process.turns - before) / seconds if node.process is not None else 0
        story.expect(each < 500, f"{node} is called {each:.0f} times a second for nothing")
    story.happened("observers that cannot join", len(observers))
    story.happened("additions lost", refused.count)


@scenario(
    "M11",
    "messages of another cluster, and of none, reach every replica",
    expected="another cluster: refused, nothing changes; none: served as Kafka does, in strict mode broken off with",
    draw=lambda random: {"config": {"strict": random.random() < 0.5}, "kraft_version": random.choice((0, 1))},
)
def two_clusters_meet(story: Story) -> None:
    leader = story.leader()
    story.append(2)
    story.everybody_has_everything()
    end = OffsetAndEpoch(epoch=story.epoch, offset=10**9)
    for node in story.nodes:
        for asker in story.nodes:
            for epoch in (story.epoch, story.epoch + 3):
                foreign: list[Any] = [
                    msg.vote(asker.key, epoch, cluster_id="another-cluster", end=end),
                    msg.begin(asker.key.id, epoch, cluster_id="another-cluster"),
                    msg.end(leader.key.id, epoch, cluster_id="another-cluster"),
                    msg.fetch(asker.key, epoch, cluster_id="another-cluster", offset=end.offset, last_epoch=epoch),
                ]
                for request in foreign:
                    before = essence(story, node)
                    question = story.ask(node, request)
                    story.happened("message of another cluster", question.is_over)
                    code = getattr(question.answer, "error_code", None)
                    story.expect(code == ErrorCode.INCONSISTENT_CLUSTER_ID, f"{node} answers another cluster: {code}")
                    story.expect(essence(story, node) == before, f"another cluster has changed {node}")
    state = story.state(leader)
    nameless = msg.fetch(leader.key, state.epoch, cluster_id=None, offset=0, last_epoch=0)
    question = story.ask(story.followers(leader)[0], nameless)
    story.happened("message of no cluster", question.is_over)
    story.expect(
        question.failed == story.config.strict, "a message that names no cluster: answered, or broken off with"
    )


def essence(story: Story, node: SimulatedNode) -> tuple[Any, ...]:
    """The state that no message of another cluster may change."""
    state = story.state(node)
    return state.epoch, state.role, state.persisted, state.leader_id, state.log.end


@scenario(
    "M12",
    "the first leader of a new quorum is elected, and everybody restarts without the checkpoint of the format",
    expected="the voters stand in the log, in one batch with the first LeaderChange",
    kraft_version=1,
    observers=1,
)
def bootstrap_records_are_replicated(story: Story) -> None:
    leader = story.leader()
    story.everybody_has_everything()
    first = leader.chain.entries[0]
    named = [record for _, record in decode_control_batch(first.batch) if isinstance(record, VotersRecord)]
    story.expect(bool(named), "the first batch of the log names no voters")
    expected = {key.id for key in story.world.voter_keys}
    story.expect({voter.key.id for voter in VoterSet.from_record(named[0])} == expected, "it names other voters")
    observer = story.node(4)
    known = {voter.key.id for voter in story.state(observer).voters}
    story.expect(known == expected, f"{observer}, which was not formatted with the voters, knows {known}")
    story.kill(*story.nodes)
    story.start(*story.nodes)
    story.happened("restart of all", len(story.nodes))
