"""What is looked at where a core is called: whether that is in time, and what it takes on a full disk."""

from __future__ import annotations

import pytest

from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.workload import NAMES_EPOCH
from kraftlib.testing.world import World
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted
from tests.testing.worlds import world

BUGS = {mutant.name: mutant for mutant in MUTANTS}
APPENDS = 60


def fill_the_disk_of_the_leader(made: World) -> None:
    """Let it become full while appends wait, more than its reserve has room for."""
    leader = made.leader()
    assert leader is not None
    assert leader.process is not None
    for _ in range(APPENDS):
        made.workload.append_to(leader)
    leader.disk.full = True
    leader.process.look_at_space()
    made.run_for(10)
    for _ in range(NAMES_EPOCH):  # of which one names its epoch, and is looked at closely
        made.workload.append_to(leader)
    made.run_for(2_000)


def test_a_leader_whose_disk_is_full_accepts_nothing_and_writes_what_its_reserve_has_room_for() -> None:
    with world(config={"disk_reserve_bytes": 400}) as made:
        fill_the_disk_of_the_leader(made)
        assert made.violation is None


@pytest.mark.parametrize(
    ("bug", "reserve_bytes", "said"),
    [
        ("full-leader-stays", 400, r"S6 .*on a full disk, after"),
        ("full-leader-accepts", 20_000, r"S6 .*accepts append"),
    ],
)
def test_a_leader_that_takes_more_is_seen(bug: str, reserve_bytes: int, said: str) -> None:
    with (
        planted(BUGS[bug]),
        pytest.raises(InvariantViolation, match=said),
        world(config={"disk_reserve_bytes": reserve_bytes}) as made,
    ):
        fill_the_disk_of_the_leader(made)


def lose_all_and_look_for_a_leader() -> None:
    for seed in range(20):
        with world(seed, config={"retry_backoff_ms": 2, "leader_loss_stagger_ms": 2}) as made:
            made.network.unreachable.update(made.nodes)
            made.run_for(5_000)


def test_a_core_that_is_called_late_is_seen() -> None:
    with planted(BUGS["alarm-after-its-deadline"]), pytest.raises(InvariantViolation, match=r"V13 .*was not called"):
        lose_all_and_look_for_a_leader()


def test_a_pause_of_the_process_or_a_busy_disk_excuses_it() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        leader.process.pause()
        made.run_for(5_000)
        leader.process.resume()
        made.run_for(100)
        leader.disk.hung = True
        made.run_for(5_000)
        leader.disk.unhang()
        made.run_for(5_000)
        assert made.violation is None
