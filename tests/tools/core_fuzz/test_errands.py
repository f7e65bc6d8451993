"""What a run of the core fuzzer brings about once: each errand comes about, and leads to where nothing else does."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.consensus.roles import Follower
from tools.core_fuzz.errands import ERRANDS
from tools.core_fuzz.late_errands import LATE_ERRANDS
from tools.core_fuzz.more_errands import MORE_ERRANDS, STRAY, UPGRADE
from tools.core_fuzz.themes import Theme
from tools.core_fuzz.world import CoreWorld

THEME = Theme(
    name="errands",
    what="three voters, and little goes wrong",
    steps=dict.fromkeys(("lose", "crash", "resign", "transfer", "replace", "full", "power", "late", "aim"), 0.0),
    voters=(3,),
    replicas=(4,),
    dynamic=1.0,
)
SEEDS_MAX = 60


COUNTED = {
    "supersede": "change that no other replica has",
    "outlive": "retention at a commit",
    "outrun": "outrun leader",
    "come-back": "leader that came back",
    "leave": "read from a leader that leaves",
    "bereave": "quorum without one",
    "lag": "questions amid a download",
    "part": "answers after a good-bye",
    "shear": "lost end of what is common",
    "patch": "interrupted patch",
    UPGRADE: "upgrade of all voters",
    STRAY: "states that are compared late",
    "starve": "starved leader",
    "falter": "candidate without records",
}
"""What stands in the counts of a run once an errand has led to it."""


def is_here(world: CoreWorld, errand: str) -> bool:
    """Whether an errand has led to what it is for."""
    if errand in COUNTED:
        return bool(world.counts[COUNTED[errand]])
    for host in world.up():
        state = host.running.state
        role = state.role_state
        if not isinstance(role, Follower):
            continue
        if errand == "rejoin" and role.predecessor_silence >= 2:
            return True
        if errand == "forget" and state.amnesia is not None and state.amnesia.leader_epoch == state.epoch:
            return bool(state.log.holes)
        if errand == "resume" and role.download is not None and role.download.unproven:
            return True
    return False


@pytest.mark.parametrize("errand", [*ERRANDS, *MORE_ERRANDS, *LATE_ERRANDS, STRAY, UPGRADE])
def test_an_errand_comes_about(errand: str) -> None:
    theme = attrs.evolve(THEME, dynamic=0.0) if errand == UPGRADE else THEME
    for seed in range(SEEDS_MAX):
        world = CoreWorld(seed, theme)
        if errand not in world.errands.wanted:
            continue
        world.errands.wanted = [errand]
        for _ in range(2_500):
            world.step()
            if is_here(world, errand):
                assert not world.errands.wanted
                return

    raise AssertionError(f"{errand}: not in {SEEDS_MAX} seeds")


def test_some_runs_have_none() -> None:
    wanted = [CoreWorld(seed, THEME).errands.wanted for seed in range(90)]

    assert 1 < sum(not errands for errands in wanted) < 15
    assert {errand for errands in wanted for errand in errands} == {*ERRANDS, *MORE_ERRANDS, *LATE_ERRANDS, STRAY}
