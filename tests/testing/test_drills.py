"""What a quorum must stand once it is well, and that it is seen if it does not."""

from __future__ import annotations

import random

import pytest

from kraftlib.testing.drills import DRILLS
from kraftlib.testing.violation import InvariantViolation
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world

CONFIG = {"digest_interval_ms": 200}


@pytest.mark.parametrize("name", DRILLS)
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_healthy_quorum_stands_it(name: str, kraft_version: int) -> None:
    for voters in (1, 3, 5):
        with world(voters=voters, observers=1, kraft_version=kraft_version, config=CONFIG) as made:
            made.run_for(5_000)
            DRILLS[name](made, random.Random(voters))
            made.run_for(5_000)

            assert made.violation is None
            assert made.leader() is not None
            assert all(node.process is not None for node in made.nodes.values())
            assert not any(link.cut for link in made.network.links.values())


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("V5", Edit("consensus.quorum_epoch.successor_backoff_ms", "return 0", "return longest")),
        ("FAILOVER", Edit("consensus.fetch_follower.handle_connection_lost", "role.link = Link.REFUSED", "return []")),
        ("HUNG", Edit("consensus.vote._let_go_first", "role.gave_way_ms = state.now_ms", "pass")),
        ("TRANSFER", Edit("consensus.poll.preferred_successors", "replica_id != wanted", "False")),
        ("NEWS", Edit("consensus.fetch_leader.update_high_watermark", "for parked in role.parked.values():",
                      "for parked in ():")),
    ],
)  # fmt: skip
def test_a_quorum_that_does_not_is_found(name: str, edit: Edit) -> None:
    with (
        planted(Mutant("one", "one that a drill must find", (edit,))),
        pytest.raises(InvariantViolation, match=f"^{name} "),
    ):
        tried(name)


def test_a_leader_whom_a_minority_keeps_is_found() -> None:
    """Of five voters one other is no majority; of three it would be."""
    one = Edit(
        "consensus.deadlines.note_voter",
        "needed = state.log.voters.latest.majority - (1 if state.is_voter else 0)",
        "needed = 1",
    )
    with planted(Mutant("one", "one that a drill must find", (one,))), pytest.raises(InvariantViolation, match=r"^E7 "):
        tried("V4", voters=5)


def tried(name: str, *, voters: int = 3) -> None:
    for seed in range(12):
        with world(seed, voters=voters, observers=2, config=CONFIG) as made:
            made.run_for(5_000)
            DRILLS[name](made, random.Random(seed))
