"""Elections and epochs: E1 to E11."""

from __future__ import annotations

from typing import Final

from kraftlib.consensus.actions import Action, PersistElection, SendResponse
from kraftlib.consensus.roles import Role
from kraftlib.testing.node import SimulatedNode
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tools.scenarios import handmade as msg
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story

scenario: Final = Chapter()


def writes_election(action: Action) -> bool:
    """Whether the election state is about to be written."""
    return isinstance(action, PersistElection)


def speaks_of_vote(action: Action) -> bool:
    """Whether the answer to a Vote is about to leave."""
    return isinstance(action, SendResponse) and isinstance(action.response, VoteResponse)


def vote_of(story: Story, asker: SimulatedNode, epoch: int, **more: bool | int) -> VoteRequest:
    """A Vote as `asker` could send it, whose log is better than all others."""
    end = OffsetAndEpoch(epoch=epoch - 1, offset=story.committed + 1_000)
    key = asker.key if story.world.kraft_version else ReplicaKey(asker.key.id)
    return msg.vote(key, epoch, cluster_id=story.world.cluster_id, end=end, **more)  # type: ignore[arg-type]


@scenario(
    "E1",
    "a voter goes down around the write of its vote, is back at once, and is asked again",
    expected="it votes for no other candidate in that epoch, if its vote may have been heard",
)
def vote_survives_a_crash(story: Story) -> None:
    for point in ("before the write", "during the write", "before the answer", "after the answer"):
        leader = story.leader()
        voter, rival = story.followers(leader)
        epoch = story.state(voter).epoch + 1
        if point == "before the write":
            story.crash_before(voter, writes_election)
        elif point == "during the write":
            story.crash_during(voter, writes_election)
        elif point == "before the answer":
            story.crash_before(voter, speaks_of_vote)
        first = story.ask(voter, vote_of(story, rival, epoch))
        if point == "after the answer":
            story.crash(voter)
        story.happened(f"crash {point}", not voter.is_up)
        story.start(voter)
        second = story.ask(voter, vote_of(story, leader, epoch))
        story.expect(second.answer is not None, f"{voter} does not answer after its restart")
        if point == "after the answer":
            story.expect(msg.grants(first.answer), f"{voter} refuses a candidate with a better log")
        if point in ("before the answer", "after the answer"):
            story.expect(not msg.grants(second.answer), f"{voter} voted twice in epoch {epoch}: crash {point}")


@scenario(
    "E2",
    "a voter goes down between taking over a newer epoch and voting in it, and the older candidate asks again",
    expected="epoch and vote are one record: never the new epoch with the old vote",
)
def epoch_and_vote_are_one(story: Story) -> None:
    for crash in (story.crash_before, story.crash_during):
        leader = story.leader()
        voter, rival = story.followers(leader)
        epoch = story.state(voter).epoch + 1
        story.expect(msg.grants(story.ask(voter, vote_of(story, rival, epoch)).answer), "a good candidate is refused")
        crash(voter, writes_election)
        story.ask(voter, vote_of(story, leader, epoch + 1))
        story.happened("crash with an older vote on disk", not voter.is_up)
        found = voter.elections.read()
        story.expect(found is not None, "the election state is gone")
        if found is not None and found.epoch == epoch + 1:
            old = found.voted_key is not None and found.voted_key.id == rival.key.id
            story.expect(not old, f"{voter} has the vote of epoch {epoch} in epoch {epoch + 1}")
        story.start(voter)
        again = story.ask(voter, vote_of(story, rival, epoch + 1))
        story.happened("the old candidate asked in the new epoch", again.is_over)


@scenario(
    "E4",
    "a leader loses power with records that its disk does not have, and is back at once",
    expected="it is Resigned in its epoch and never leads it again",
)
def leader_does_not_resume(story: Story) -> None:
    leader = story.leader()
    epoch = leader.leads
    story.cut(leader, ways="sends" if story.random.random() < 0.5 else "both")
    leader.disk.hung = True
    story.append(3, to=leader, wait=False)
    story.pass_ms(2)
    story.happened("records that are not flushed", leader.chain.end_offset - leader.flushed_offset)
    story.crash(leader)
    leader.disk.unhang()
    story.heal()
    story.start(leader)
    story.expect(story.role(leader) is Role.RESIGNED, f"{leader} begins as {story.role(leader)} after leading {epoch}")
    story.until(lambda: story.epoch > (epoch or 0), story.patience_ms, "no replica leads a newer epoch")


@scenario(
    "E5",
    "a voter that missed what was committed stands for election",
    expected="the voter with the better log leads",
)
def stale_log_loses(story: Story) -> None:
    leader = story.leader()
    stale, fresh = story.followers(leader)
    story.cut(stale)
    story.append(5)
    story.everybody_has_everything([leader, fresh])
    story.crash(leader)
    story.kill(fresh)
    story.heal()
    # It asks the voters that have just started, know no leader, and could grant anything.
    story.until(lambda: story.role(stale) is Role.PROSPECTIVE, story.patience_ms, f"{stale} never stands")
    story.start(fresh)
    story.happened("records that the stale voter lacks", fresh.chain.end_offset - stale.chain.end_offset)
    story.expect(story.leader() is fresh, f"{stale} leads with a log that ends at {stale.chain.end_offset}")


@scenario(
    "E6",
    "answers to Votes arrive several times, and late, while a candidate reaches one of four others",
    expected="voters are counted, not answers, and only in the epoch that was asked for",
    voters=5,
)
def voters_are_counted_once(story: Story) -> None:
    leader = story.leader()
    candidate, friend, *rest = story.followers(leader)
    for node in (leader, *rest):
        story.cut(node)
    late_ms = story.config.election_timeout_ms
    rule = story.meddling.repeat(VoteResponse, after_ms=(0, 1, late_ms, 3 * late_ms))
    before = story.elections
    story.pass_ms(15 * late_ms)
    story.happened("answers to Votes that came several times", rule.count)
    rule.stop()
    story.expect(story.elections == before, f"{candidate} or {friend} leads with two of five votes")
    story.heal()
    late = story.meddling.delay(VoteResponse, 3 * late_ms // 2, where=lambda _: story.random.random() < 0.7)
    story.crash(*story.followers(story.leader())[:1])
    story.resign(story.leader())
    story.pass_ms(10 * late_ms)
    story.happened("answers to Votes that came late", late.count)


@scenario(
    "E7",
    "a leader is cut off from everybody, or only what it sends, or only what it hears",
    expected="it gives up within one and a half fetch timeouts, and acknowledges nothing",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def cut_off_leader_gives_up(story: Story) -> None:
    for ways in ("both", "sends", "hears"):
        leader = story.leader()
        story.everybody_has_everything()
        epoch = leader.leads
        story.cut(leader, ways=ways)
        calls = story.append(2, to=leader, wait=False)
        known = story.state(leader).high_watermark
        story.until(
            lambda leader=leader, epoch=epoch: leader.leads != epoch,  # type: ignore[misc]
            4 * story.config.fetch_timeout_ms,
            f"{leader} has not given up, cut: {ways}",
        )
        story.happened(f"leader cut off: {ways}")
        if ways != "sends":
            story.expect(story.state(leader).high_watermark in (known, None), "it committed though no voter heard it")
        story.pass_ms(5 * story.config.fetch_timeout_ms)
        new = story.leader()
        story.expect(new is not leader, f"{leader} leads again though no voter hears it, cut: {ways}")
        story.heal()
        story.everybody_has_everything()
        story.happened("appends to a leader that is cut off", len(calls))


@scenario(
    "E8",
    "followers go on fetching, but can append nothing of what the leader sends",
    expected="it does not go on for ever: another voter leads before long, and each append is committed or lost",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def fetching_without_progress(story: Story) -> None:
    leader = story.leader()
    story.everybody_has_everything()
    before = story.committed
    # Followers of ours leave a leader whose records are damaged; one that sends nothing at all they must trust.
    damaged = story.random.random() < 0.5
    useless = story.meddling.alter(
        FetchResponse,
        lambda answer: msg.with_partition(answer, records=msg.flipped(answer, place=30) if damaged else b""),
        where=msg.has_records,
        source=leader.key.id,
    )
    story.append(2, to=leader, wait=False)
    story.replaced(leader)
    story.happened("answers that no follower could append", useless.count)
    story.expect(story.committed > before, "the new leader has committed nothing")


@scenario(
    "E9",
    "a voter is cut off for a hundred election timeouts and comes back",
    expected="its epoch has not grown, and no replica loses its leader",
    draw=lambda random: {"voters": random.choice((3, 4, 5))},
)
def returning_voter_disturbs_nobody(story: Story) -> None:
    leader = story.leader()
    lonely = story.followers(leader)[0]
    story.everybody_has_everything()
    epoch, elections = story.epoch, story.elections
    ways = story.random.choice(("both", "hears"))
    story.cut(lonely, ways=ways)
    limit_ms = 10 * story.config.fetch_timeout_ms
    wants = story.world.run_until(lambda: story.role(lonely) is Role.PROSPECTIVE, limit_ms)
    story.happened("voter alone, wanting to stand", wants)
    story.pass_ms(100 * story.config.election_timeout_ms)
    story.expect(story.state(lonely).epoch == epoch, f"{lonely} came to epoch {story.state(lonely).epoch} alone")
    story.heal()
    story.pass_ms(5 * story.config.fetch_timeout_ms)
    story.append(2)
    story.everybody_has_everything()
    story.expect(story.elections == elections, f"{lonely} came back and {leader} was deposed")


@scenario(
    "E10",
    "a leader vanishes right after its election, when some have fetched from it and some have not",
    expected="the others do not wait for each other for ever: a leader within the bound of V1",
    draw=lambda random: {"voters": random.choice((3, 5))},
)
def no_ping_pong(story: Story) -> None:
    for _ in range(3):
        story.resign(story.leader())
        new = story.just_elected()
        story.pass_ms(story.random.randint(0, 3))
        story.crash(new) if story.random.random() < 0.5 else story.cut(new)
        story.happened("leader lost right after its election")
        story.replaced(new)
        story.heal()
        story.start(new)
        story.everybody_has_everything()


@scenario(
    "E11",
    "a leader of five voters shuts down gracefully",
    expected="exactly one election, and no fetch timeout is waited for",
    voters=5,
)
def graceful_handover(story: Story) -> None:
    leader = story.leader()
    story.append(3)
    story.everybody_has_everything()
    elections, began_ms = story.elections, story.world.now_ms
    story.shut_down(leader)
    gone = story.world.run_until(lambda: not leader.is_up, story.patience_ms)
    story.happened("leader shut down", gone)
    story.until(lambda: story.world.leader() is not None, story.config.fetch_timeout_ms, "no successor")
    story.pass_ms(5 * story.config.fetch_timeout_ms)
    story.expect(story.elections == elections + 1, f"{story.elections - elections} elections after a graceful end")
    story.happened("ms until it was gone", story.world.now_ms - began_ms)
