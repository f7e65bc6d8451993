"""Disks, processes, time and the network: S2, S5, S6, S10 to S12, P1, P2, P4, P12, P13."""

from __future__ import annotations

from typing import Final

from kraftlib.consensus.roles import Role
from kraftlib.testing.clock import MILLION
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending
from kraftlib.testing.workload import Outcome
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story, is_settled

scenario: Final = Chapter()


@scenario(
    "S5",
    "an fsync fails: of the leader's log, of a follower's, and of a vote",
    expected="never tried again: that replica stops and acknowledges nothing; flushed records are there after it",
)
def fsync_fails(story: Story) -> None:
    for who in ("leader", "follower"):
        leader = story.leader()
        story.everybody_has_everything()
        victim = leader if who == "leader" else story.followers(leader)[0]
        victim.disk.failing = True
        calls = story.append(3, to=leader, wait=False)
        story.until(lambda victim=victim: not victim.is_up, story.patience_ms, f"{victim} goes on")  # type: ignore[misc]
        story.happened(f"fsync failed on a {who}", victim.ended is Ending.FAILED)
        story.pass_ms(story.config.fetch_timeout_ms)
        story.leader()
        story.expect(who == "leader" or is_settled(calls), "two good disks do not acknowledge")
        story.start(victim)
        story.everybody_has_everything()
    leader = story.leader()
    voter = story.followers(leader)[0]
    voter.disk.failing = True
    story.crash(leader)
    story.pass_ms(4 * story.config.fetch_timeout_ms)
    story.happened("fsync of an election failed", voter.ended is Ending.FAILED)
    story.start(leader, voter)


@scenario(
    "S6",
    "the disk is full: at an append, a new segment, a snapshot, a vote",
    expected="appends are refused; it leads on unless a majority has space; votes are cast; no other election",
)
def full_disk(story: Story) -> None:
    full = story.leader()
    leader = _hands_over_for_space(story, full)
    elections = story.elections

    # One full follower delays no append; with both, appends wait, and no caller gives up for less than an age.
    end_offset = full.chain.end_offset
    story.append(2, to=leader)
    story.pass_ms(5 * story.config.fetch_timeout_ms)
    story.expect(full.chain.end_offset == end_offset, f"{full} has taken records though its disk is full")
    story.expect(story.elections == elections, f"{full} has left its leader because its disk is full")
    follower, other = story.followers(leader)
    story.fill(follower, other)
    calls = story.append(2, to=leader, wait=False)
    story.pass_ms(story.config.fetch_timeout_ms)
    story.expect(not is_settled(calls), "acknowledged by disks that have no space")
    story.expect(story.elections == elections, f"{leader} was deposed because its followers have no space")
    story.happened("records that wait for space", len(calls))
    story.fill(follower, other, full=False)
    story.until(lambda: is_settled(calls), story.patience_ms, "appends that waited for space are not settled")
    story.everybody_has_everything()

    # Votes are cast all the same: the old leader dies while the others have no space but what votes need. It is a
    # leader without a record that the other one takes, until there is space.
    story.fill(follower, other)
    story.crash(leader)
    story.happened("leader elected by full disks", story.just_elected() in (follower, other))
    story.pass_ms(story.random.randint(0, 5 * story.config.fetch_timeout_ms))
    story.fill(follower, other, full=False)
    story.leader()
    story.start(leader)


def _hands_over_for_space(story: Story, leader: SimulatedNode) -> SimulatedNode:
    """Fill the disk of a leader: it leads while no majority has space, then hands over once. Return the new leader."""
    others = story.followers(leader)
    story.everybody_has_everything()
    elections, before = story.elections, story.committed
    story.fill(leader)
    asked = len(story.world.workload.appends)
    story.append(3, to=leader, wait=False)
    refused = [call.outcome is Outcome.REFUSED for call in story.world.workload.appends[asked:]]
    story.happened("appends refused", sum(refused))
    story.expect(all(refused), "a leader with a full disk has taken an append")
    # Not before the fetch timeout. By then the others have told that their disks are full, too.
    story.pass_ms(story.config.fetch_timeout_ms // 2)
    story.fill(*others)
    story.pass_ms(5 * story.config.fetch_timeout_ms)
    story.expect(story.elections == elections, "a leader was deposed because of a full disk, and no voter has space")
    story.expect(story.committed == before, "something was committed that was refused")
    story.fill(others[0], full=False)
    story.pass_ms(5 * story.config.fetch_timeout_ms)
    story.expect(story.elections == elections, "a full disk cost an election, and no majority has space")
    story.fill(*others, full=False)
    successor = story.replaced(leader)
    story.expect(successor.key.id in story.state(leader).hand_overs, f"{successor} was not handed the leadership")
    story.happened("hand-over to a voter with space")
    story.expect(story.elections == elections + 1, "a full disk took more than one election")
    story.expect(story.committed == before + 1, "more was committed than the first record of the new leader")
    return successor


@scenario(
    "S10",
    "the disk of a follower, then of the leader, is slow; then the leader's hangs",
    expected="below the fetch timeout no leader is deposed; one whose flush hangs for longer gives up",
)
def slow_disk(story: Story) -> None:
    leader = story.leader()
    follower = story.followers(leader)[0]
    story.everybody_has_everything()
    elections = story.elections
    for node in (follower, leader):
        node.disk.spread_us = story.config.fetch_timeout_ms * 1_000 // 2
        began_ms = story.world.now_ms
        for _ in range(4):
            story.append(1)
        story.pass_ms(2 * story.config.fetch_timeout_ms)
        story.happened("ms on a slow disk", story.world.now_ms - began_ms)
        node.disk.spread_us = story.world.disk_spread_us
        story.everybody_has_everything()
    story.expect(story.elections == elections, f"{story.elections - elections} elections because of a slow disk")
    leader.disk.hung = True
    # Its followers have what it appends and go on asking: only it can notice.
    story.append(2, to=leader, wait=False)
    story.until(lambda: leader.leads is None, 3 * story.config.fetch_timeout_ms, "a leader with a hung disk leads on")
    story.happened("disk that hangs")
    story.replaced(leader)


@scenario(
    "S11",
    "all machines lose power at once, in the midst of appends, with torn tails",
    expected="every acknowledged record is there, and a leader is elected soon",
    draw=lambda random: {"voters": random.choice((1, 3, 5))},
)
def power_loss_everywhere(story: Story) -> None:
    torn = lost = 0
    for _ in range(6):
        story.leader()
        story.world.workload.rate = 2_000
        story.world.workload.start()
        story.pass_ms(20)
        story.world.workload.stop()
        ends = {node: node.chain.end_offset for node in story.nodes}
        story.crash(*story.nodes, silently=story.random.random() < 0.5)
        lost += sum(end - node.chain.end_offset for node, end in ends.items())
        torn += sum(bool(node.log.torn_tail) for node in story.nodes)
        story.start(*story.nodes)
    story.happened("power lost everywhere", 6)
    story.happened("records lost that no replica had acknowledged", lost)
    story.happened("torn tails", torn)


@scenario(
    "P1",
    "a leader stands still for longer than all timeouts and goes on with work waiting for it",
    expected="it notices how late it is before it serves any client, and acknowledges nothing on its own",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def paused_leader(story: Story) -> None:
    for _ in range(4):
        leader = story.leader()
        story.everybody_has_everything()
        before = story.append(2, to=leader, wait=False)
        if leader.process is not None:
            leader.process.pause()
        epoch = leader.leads
        story.pass_ms(story.random.choice((1, 3, 10)) * story.config.fetch_timeout_ms)
        story.leader() if story.world.run_until(lambda: story.world.leader() is not None, story.patience_ms) else None
        story.append(1)
        known = leader.process.replica.high_watermark if leader.process is not None else None
        if leader.process is not None:
            leader.process.resume()
        queued = story.append(2, to=leader, wait=False)
        story.pass_ms(3)
        acknowledged = [call for call in queued if call.outcome is Outcome.ACKNOWLEDGED]
        story.expect(not acknowledged or leader.leads != epoch, f"{leader} acknowledges alone, from {known}")
        story.until(lambda leader=leader, epoch=epoch: leader.leads != epoch, story.patience_ms, "it leads on")  # type: ignore[misc]
        story.until(lambda calls=(*before, *queued): is_settled(calls), story.patience_ms, "callers hear nothing")  # type: ignore[misc]
        story.happened("leader stood still")


@scenario(
    "P2",
    "monotonic clocks run a fifth too fast or too slow, and wall clocks jump by days",
    expected="nothing but timestamps depends on the wall; no leader is deposed, and timestamps do not fall in a log",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def clocks_run_wrong(story: Story) -> None:
    leader = story.leader()
    story.everybody_has_everything()
    elections = story.elections
    for number, node in enumerate(story.nodes):
        node.clock.rate_ppm = MILLION + (-200_000, 200_000, 0)[number % 3]
    for _ in range(12):
        node = story.random.choice(story.nodes)
        node.clock.wall_offset_ms += story.random.choice((-1, 1)) * story.random.randrange(86_400_000)
        story.append(1)
        story.pass_ms(story.config.fetch_timeout_ms // 2)
        story.happened("wall clock jumped")
    story.expect(story.elections == elections, f"{story.elections - elections} elections because of clocks")
    story.expect(leader.leads is not None, f"{leader} gave up")
    for node in story.nodes:
        node.clock.rate_ppm = MILLION


@scenario(
    "P4",
    "connections are reset over and over, between connecting and the first answer, too",
    expected="requests fail and are made again; no error reaches the core as an exception, nothing is lost",
    draw=lambda random: {"voters": random.choice((3, 5)), "kraft_version": random.choice((0, 1))},
)
def connections_are_reset(story: Story) -> None:
    story.leader()
    story.world.workload.rate = 200
    story.world.workload.start()
    for _ in range(150):
        a, b = story.random.sample(story.nodes, 2)
        story.world.network.reset(a.key.id, b.key.id)
        story.happened("connections reset")
        story.pass_ms(story.random.choice((0, 1, 2, 5)))
    story.world.workload.stop()
    story.expect(all(node.lives == 1 for node in story.nodes), "a replica has stopped because of a connection")


@scenario(
    "P12",
    "every message is written in a version that is drawn, old or new, and read back",
    expected="all work together, in static and in dynamic quorums",
    recode_one_in=1,
    observers=1,
    draw=lambda random: {"kraft_version": random.choice((0, 1))},
)
def mixed_versions(story: Story) -> None:
    for _ in range(3):
        leader = story.leader()
        story.append(3)
        story.snapshot(leader)
        story.crash(leader)
        story.append(1)
        story.start(leader)
    if story.world.kraft_version:
        observer = story.node(4)
        story.world.admin.add(observer)
        story.pass_ms(10 * story.config.request_timeout_ms)
    story.everybody_has_everything()
    story.happened("messages written and read back", story.world.network.recoder.recoded)


@scenario(
    "P13",
    "links become so slow that a round trip takes more than half of the fetch timeout",
    expected="progress is slow and goes on; no election while answers still arrive",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def slow_links(story: Story) -> None:
    story.leader()
    story.everybody_has_everything()
    elections = story.elections
    for share in (8, 4):
        for node in story.nodes:
            for link in story.links(node):
                link.delay_us = link.jitter_us = story.config.fetch_timeout_ms * 1_000 // (2 * share)
        story.append(1)
        story.append(3)
        story.pass_ms(10 * story.config.fetch_timeout_ms)
        story.happened("slow links", len(story.world.network.links))
    story.expect(story.elections == elections, f"{story.elections - elections} elections while answers arrive")
    story.expect(all(story.role(node) in (Role.LEADER, Role.FOLLOWER) for node in story.nodes), "a replica stands")
