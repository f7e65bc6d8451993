"""Scenarios of disks and files: E3, M13, S1 to S4, S12 to S14."""

from __future__ import annotations

from typing import Final

from kraftlib.consensus.fetch_leader import WENT_BACK
from kraftlib.errors import CorruptBatchError
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from tools.scenarios import handmade as msg
from tools.scenarios.elections import vote_of
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story
from tools.storage_proof import platter

scenario: Final = Chapter()


@scenario(
    "E3",
    "a voter that has voted loses its election file, and is asked by another candidate of that epoch",
    expected="it fetches, but neither votes nor stands nor helps to commit until it is safe; then it does again",
)
def lost_vote(story: Story) -> None:
    story.append(2)
    story.everybody_has_everything()
    leader = story.leader()
    voter, rival = story.followers(leader)
    epoch = story.state(voter).epoch + 1
    first = story.ask(voter, vote_of(story, rival, epoch))
    story.happened("vote cast", msg.grants(first.answer))
    story.crash(voter)
    voter.lose_vote()
    story.cut(voter)
    story.start(voter)
    story.happened("vote lost", story.state(voter).amnesia is not None)
    for asked in (epoch, epoch + 1):
        again = story.ask(voter, vote_of(story, leader, asked))
        story.expect(again.answer is not None, f"{voter} does not answer")
        story.expect(not msg.grants(again.answer), f"{voter} votes in {asked}, and does not know how it voted before")
    story.pass_ms(20 * story.config.election_timeout_ms)
    story.expect(story.state(voter).amnesia is not None, f"{voter} believes to know its votes, and has heard no voter")
    # A majority is not enough: the one that has not answered may be the one that it voted for.
    story.heal()
    silent = next(node for node in story.nodes if node not in (voter, story.leader()))
    story.cut(voter, silent)
    story.pass_ms(5 * story.config.fetch_timeout_ms)
    story.expect(story.state(voter).amnesia is not None, f"{voter} votes again without a word from {silent}")
    story.heal()
    story.until(lambda: story.state(voter).amnesia is None, story.patience_ms, f"{voter} never votes again")
    # And now its vote is needed.
    story.crash(story.leader() if story.leader() is not voter else rival)
    story.leader()


@scenario(
    "S1",
    "bits of records that were flushed flip, and a sector was never written, on one disk after the other",
    expected="never taken for a torn tail: nothing is cut, and that replica does not begin with a shorter log",
)
def damaged_log(story: Story) -> None:
    for damage in ("flipped bit", "lost write", "lost end"):
        story.append(4, values=2)
        story.everybody_has_everything()
        victim = story.followers()[0]
        story.crash(victim)
        found: CorruptBatchError | None = None
        try:
            platter.recovery_of(victim.log, story.random, damage=platter.DAMAGES[damage], noted=1.0)
        except CorruptBatchError as error:
            found = error
        story.happened(f"damage: {damage}", found is not None)
        story.expect("nothing was cut" in str(found), f"the log of {victim} was cut: {found}")
        # And so its next life knows what is missing, and fetches it.
        story.expect(victim.damage_log(latent=False), f"{victim} has nothing to lose")
        asker = story.leader()
        story.cut(victim)
        story.start(victim)
        story.pass_ms(story.config.fetch_timeout_ms)
        shorter = OffsetAndEpoch(epoch=story.epoch, offset=victim.chain.end_offset - 1)
        request = msg.vote(
            ReplicaKey(asker.key.id), story.state(victim).epoch + 1, cluster_id=story.world.cluster_id, end=shorter
        )
        answer = story.ask(victim, request).answer
        story.expect(not msg.grants(answer), f"{victim} votes for a log that is shorter than its own was")
        story.heal()
        story.until(lambda victim=victim: not victim.is_damaged, story.patience_ms, f"{victim} is not repaired")  # type: ignore[misc]
        story.append(2)
        story.everybody_has_everything()
    story.happened("records lost and fetched again", 3)


@scenario(
    "S2",
    "machines lose power while batches are written: their segments end at any byte, with rubbish behind it",
    expected="cut back to the last whole batch, by the recovery of real files, and nothing acknowledged is missing",
    real_files=1.0,
    draw=lambda random: {"voters": random.choice((1, 3))},
)
def torn_tail(story: Story) -> None:
    torn = 0
    for _ in range(6):
        leader = story.leader()
        story.append(1, to=leader)
        victims = story.nodes if story.random.random() < 0.5 else [leader]
        for node in victims:
            node.disk.spread_us = 2_000
        story.append(4, to=leader, wait=False, values=3)
        story.pass_ms(story.random.randint(0, 1))
        story.crash(*victims)
        torn += sum(bool(node.log.torn_tail) for node in victims)
        for node in victims:
            node.disk.spread_us = story.world.disk_spread_us
        story.start(*victims)
        story.everybody_has_everything()
    story.happened("tails torn", torn)


@scenario(
    "S3",
    "a machine loses power twice: the second time in what it has appended where the first tail was torn",
    expected="the first tail was cut physically: nothing of it comes back, and nothing behind it is swallowed",
    real_files=1.0,
    voters=1,
)
def torn_twice(story: Story) -> None:
    torn = 0
    for _ in range(8):
        leader = story.leader()
        story.append(1, to=leader)
        leader.disk.hung = True
        story.append(2, to=leader, wait=False, values=4)
        story.pass_ms(1)
        story.crash(leader)
        torn += bool(leader.log.torn_tail)
        leader.disk.unhang()
        story.start(leader)
    story.happened("tails torn, one behind the other", torn)


@scenario(
    "S4",
    "a write lands in the wrong place of a log, over records that were flushed",
    expected="seen at the next start, though each batch may be whole: by offsets, epochs and the sync point",
)
def misdirected_write(story: Story) -> None:
    for _ in range(4):
        story.append(3, values=2)
        story.everybody_has_everything()
        victim = story.followers()[0]
        story.crash(victim)
        found: CorruptBatchError | None = None
        try:
            platter.recovery_of(victim.log, story.random, damage=platter.misdirect_write, noted=1.0)
        except CorruptBatchError as error:
            found = error
        story.happened("misdirected write", found is not None)
        victim.wipe()
        story.start(victim)
        story.everybody_has_everything()


@scenario(
    "M13",
    "two directories with one and the same identity, cloned from one another",
    expected="the leader says so as soon as both of them fetch, and counts nothing that only one of them has",
)
def cloned_disk(story: Story) -> None:
    story.append(2)
    story.everybody_has_everything()
    leader = story.leader()
    original, other = story.followers(leader)
    cloned_at = original.chain.end_offset
    last_epoch = original.chain.entries[-1].epoch
    story.append(3)
    story.everybody_has_everything()
    story.expect(story.refused(leader, WENT_BACK) == 0, f"{leader} complains of an honest voter")
    clone = msg.fetch(
        original.key, story.epoch, cluster_id=story.world.cluster_id, offset=cloned_at, last_epoch=last_epoch
    )
    answer = story.ask(leader, clone).answer
    story.happened("fetched by a clone", answer is not None and msg.has_records(answer))
    story.expect(story.refused(leader, WENT_BACK) > 0, f"{leader} does not notice that {original} is there twice")
    # With the other one silent, and the original too, nothing is committed that the clone does not have.
    story.kill(original)
    story.cut(other)
    committed = story.committed
    story.append(1, to=leader, wait=False)
    story.ask(leader, clone)
    story.expect(story.committed == committed, f"{leader} counts what the clone does not have")
    story.heal()
    story.start(original)
    story.append(2)
    story.everybody_has_everything()


@scenario(
    "S14",
    "an old backup is put back under a living voter",
    expected="its leader says so at its first Fetch, and counts it for what it has now",
)
def restored_backup(story: Story) -> None:
    story.append(2)
    story.everybody_has_everything()
    leader = story.leader()
    victim = story.followers(leader)[0]
    story.kill(victim)
    backup, election = victim.log.batches(), victim.elections.read()
    story.start(victim)
    story.append(3)
    story.everybody_has_everything()
    story.kill(victim)
    lost = victim.chain.end_offset
    victim.log, victim.elections = MemoryReplicatedLog(), MemoryQuorumStateStore(election)
    victim.log.append(backup)
    victim.log.flush()
    victim.chain.truncate(victim.log.end_offset)
    story.happened("records that the backup lacks", lost - victim.log.end_offset)
    before = story.refused(leader, WENT_BACK)
    story.start(victim)
    story.until(
        lambda: story.refused(leader, WENT_BACK) > before,
        story.patience_ms,
        f"{leader} does not notice that {victim} is back in time",
    )
    story.everybody_has_everything()
