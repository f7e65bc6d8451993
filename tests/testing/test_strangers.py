"""Messages of another cluster change nothing, and it is seen if they do."""

from __future__ import annotations

import itertools
import random

import pytest

from kraftlib.errors import KraftError
from kraftlib.testing import impossible, strangers
from kraftlib.wire.apis import ErrorCode
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world


def test_a_stranger_changes_nothing() -> None:
    with world() as made:
        for seed in range(40):
            for node in made.nodes.values():
                assert node.process is not None
                strangers.call(made, node.process, random.Random(seed))
        made.run_for(100)

        assert made.violation is None
        assert made.checker.elections == 1


def test_a_core_that_listens_to_strangers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as made:
        made.run_for(5)
        monkeypatch.setattr("kraftlib.consensus.responses.cluster_error", lambda *_: ErrorCode.NONE)
        follower = next(node for node in made.nodes.values() if node.leads is None)
        for seed in range(40):
            assert follower.process is not None
            strangers.call(made, follower.process, random.Random(seed))
            made.timeline.run(made.timeline.now_us + 1_000, lambda: made.violation is not None)

        assert made.violation is not None
        assert made.violation.invariant in ("I1", "I17")


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_what_nobody_could_mean_is_refused_and_changes_nothing(kraft_version: int) -> None:
    with world(observers=1, kraft_version=kraft_version) as made:
        made.workload.start()
        for seed in range(120):
            for node in made.nodes.values():
                assert node.process is not None
                strangers.ask_the_impossible(made, node.process, random.Random(seed))
            made.run_for(5)

        assert made.violation is None


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("vote.handle_vote", "voter_key_error(state, request.voter_id, partition.voter_directory_id)",
         "ErrorCode.NONE"),
        ("vote._vote_error", "partition.last_offset < 0", "False"),
        ("vote._vote_error", "partition.replica_epoch - 1", "partition.replica_epoch"),
        ("responses.voter_only_error", "epoch < state.epoch", "False"),
        ("responses.leader_only_error", "epoch > state.epoch", "False"),
        ("responses.leader_only_error", "epoch < state.epoch", "False"),
        ("extensions.epoch_budget.raises_too_far", "<= left", "<= 1 << 40"),
        ("fetch_leader.handle_fetch", "error is not ErrorCode.NONE:", "False:"),
        ("fetch_leader.handle_fetch", "partition.last_fetched_epoch > partition.current_leader_epoch", "False"),
        ("fetch_leader.handle_fetch", "fetcher.id == state.key.id", "False"),
        ("responses.only_partition", "getattr(partition, index) == 0", "True"),
    ],
)  # fmt: skip
def test_a_core_that_believes_the_impossible_is_caught(where: str, old: str, new: str) -> None:
    with planted(Mutant("one", "a check left out", (Edit(f"consensus.{where}", old, new),))), world() as made:
        made.run_for(50)
        for seed, name in itertools.product(range(60), impossible.KINDS):
            for node in made.nodes.values():
                assert node.process is not None
                try:
                    strangers.ask_the_impossible(made, node.process, random.Random(seed), name)
                    strangers.call(made, node.process, random.Random(seed))
                except KraftError:
                    return  # it even stumbled
            if made.violation is not None:
                return
            made.timeline.run(made.timeline.now_us + 1_000, lambda: made.violation is not None)
            if made.violation is not None:
                return
        pytest.fail("nobody noticed")
