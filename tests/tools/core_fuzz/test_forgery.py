"""What a liar puts among the messages: each kind of step is reached, and each finds what no other step finds."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.records.batch import check_kraft_header, encode_batch, read_batches
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.testing.campaign import Finding
from kraftlib.types import METADATA_TOPIC
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse
from kraftlib.wire.messages.vote import VoteRequest
from tests.simulation.hunt import coming_to_an_end
from tests.simulation.mutation import Edit, Mutant, planted
from tools.core_fuzz import forged_answers, forged_requests
from tools.core_fuzz.forged_requests import only
from tools.core_fuzz.fuzz import fuzz
from tools.core_fuzz.themes import THEMES
from tools.core_fuzz.world import CoreWorld
from tools.simulate.seeds import run_seed

SEEDS_MAX = 60


def bug(name: str, where: str, old: str, new: str) -> Mutant:
    """A bug that only a message shows which nobody sends by mistake."""
    return Mutant(name, "", (Edit(f"consensus.{where}", old, new),))


BUGS = [
    bug("A-far-epoch", "extensions.epoch_budget.raises_too_far", "<= left", "<= left + 1"),
    bug(
        "we-are-named-as-leader",
        "transitions.maybe_follow",
        "if leader_id == state.key.id and not (epoch == state.epoch and state.leader_id == leader_id):",
        "if leader_id == state.key.id and epoch > state.epoch:",
    ),
    bug(
        "two-leaders",
        "transitions.maybe_follow",
        "state.leader_id) and leader_id != state.leader_id",
        "state.leader_id) and leader_id < state.leader_id",
    ),
    bug("answer-for-another-partition", "responses.only_partition", "if getattr(partition, index) == 0 else None", ""),
    bug("Fetch-under-our-own-id", "fetch_leader.handle_fetch", "fetcher.id == state.key.id", "fetcher == state.key"),
    bug(
        "Fetch-from-an-epoch-to-come",
        "fetch_leader.handle_fetch",
        "or partition.last_fetched_epoch > partition.current_leader_epoch:",
        "or partition.last_fetched_epoch > partition.current_leader_epoch + 1:",
    ),
    bug(
        "A-piece-of-another-place",
        "fetch_snapshot._is_next_chunk",
        "(snapshot_id, partition.position) == (download.snapshot_id, download.position)",
        "snapshot_id == download.snapshot_id",
    ),
    bug(
        "A-vote-for-another-disk", "vote.grants_vote", "role.voted_key.matches(asker)", "role.voted_key.id == asker.id"
    ),
]


@pytest.mark.parametrize("mutant", BUGS, ids=lambda mutant: mutant.name)
def test_a_lie_shows_who_believes_it(mutant: Mutant) -> None:
    with planted(mutant):
        for seed in range(SEEDS_MAX):
            with coming_to_an_end():
                found = run_seed(seed, profile="core-lies")
            if isinstance(found, Finding):
                return
    pytest.fail(f"{mutant.name} is not found")


def test_lies_of_every_kind_are_told() -> None:
    counts: Counter[str] = Counter()
    for seed in range(4):
        counts.update(fuzz(seed, "core-lies").faults)

    assert min(counts[name] for name in ("forged request", "replayed request", "tampered answer", "doubled answer")) > 3


def test_each_request_and_answer_can_be_bent() -> None:
    wanted = {*forged_requests.BENDS[FetchRequest], *forged_requests.BENDS[VoteRequest]}
    bent: set[object] = set()
    worlds = (CoreWorld(seed, THEMES["core-lies"]) for seed in range(3, 9))
    for world in (world for world in worlds for _ in range(2_000)):
        if bent >= wanted:
            break
        world.step()
        for letter in world.wire:
            host = world.hosts.get(letter.target)
            bends = (forged_answers if letter.is_answer else forged_requests).BENDS.get(type(letter.body), ())
            if host is not None and host.core is not None:
                for bend in bends:
                    if bend(world.random, host, letter.body) is not None:
                        bent.add(bend)

    assert bent >= wanted


def test_a_batch_of_a_strange_header_is_sound_and_no_batch_of_a_quorum() -> None:
    """Of each of the ways some come about, and only the header says so: the checksum fits."""
    batches = [encode_batch([b"one", b"two"], timestamp_ms=0, base_offset=0, epoch=1)]
    batches.append(encode_control_batch([KRaftVersionRecord(kraft_version=1)], timestamp_ms=0, base_offset=2, epoch=1))
    partition = FetchResponse.PartitionData(records=b"".join(bytes(batch.data) for batch in batches))
    topic = FetchResponse.FetchableTopicResponse(partitions=(partition,))
    random, host = Random(1), CoreWorld(1, THEMES["core-lies"]).hosts[1]
    seen: Counter[str] = Counter()
    for _ in range(60):
        answer = forged_answers.of_a_strange_header(random, host, FetchResponse(responses=(topic,)))
        bent = [batch for batch in read_batches(only(answer).records) if batch not in batches]
        for batch in bent:
            with pytest.raises(CorruptBatchError) as error:
                check_kraft_header(batch)
            seen[str(error.value).split(" of ")[0][:10]] += 1

    assert len(seen) >= 3


def test_no_piece_is_said_to_be_the_last_one_of_a_shorter_file() -> None:
    """Nobody could tell before all of it is there and does not verify."""
    topic, partition = FetchSnapshotResponse.TopicSnapshot, FetchSnapshotResponse.PartitionSnapshot
    piece = partition(position=10, size=50, unaligned_records=b"ten bytes.")
    answer = FetchSnapshotResponse(topics=(topic(name=METADATA_TOPIC, partitions=(piece,)),))
    random, host = Random(1), CoreWorld(1, THEMES["core-lies"]).hosts[1]
    bends = set(forged_answers.AIMED[FetchSnapshotResponse]) - {forged_answers.of_another_piece}
    sizes = {only(bend(random, host, answer)).size for bend in bends for _ in range(100)}

    assert min(sizes) > 20
    assert len(sizes) > 4


def test_a_vote_that_binds_is_never_asked_for_with_a_longer_log() -> None:
    """Nobody could tell: the vote would be counted for a log that its asker does not have."""
    world = CoreWorld(3, THEMES["core-lies"])
    seen = 0
    for _ in range(1_500):
        world.step()
        for letter in world.wire:
            host = world.hosts[letter.target]
            if not isinstance(letter.body, VoteRequest) or host.core is None:
                continue
            asked = only(letter.body)
            for bend in forged_requests.BENDS[VoteRequest]:
                forged = bend(world.random, host, letter.body)
                if forged is None or len(forged.topics) != 1 or len(forged.topics[0].partitions) != 1:
                    continue
                said = only(forged)
                if said.pre_vote or said.replica_id != asked.replica_id or said.last_offset_epoch >= said.replica_epoch:
                    continue
                seen += 1
                jumps = said.replica_epoch - host.running.epoch > host.running.state.config.epoch_jump_max
                assert said.replica_epoch <= max(asked.replica_epoch, host.running.epoch - 1, 0) or jumps
                assert (said.last_offset_epoch, said.last_offset) <= (asked.last_offset_epoch, asked.last_offset)

    assert seen > 20
