"""Checklist sections 2 and 6: what a client's calls refuse, over real replicas in one process."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import RefuseAppends
from kraftlib.consensus.replica import Replica
from kraftlib.errors import ConfigError, NotLeaderError
from tests.consensus.build import begin_request, leader, tell, vote_request
from tests.runtime.quorum import quorum, until
from tests.runtime.test_appends import Rig


async def test_resigning_is_for_the_leader_and_for_its_epoch() -> None:
    """testResignInOlderEpochIgnored, testCannotResignWithLargerEpochThanCurrentEpoch, testCannotResignIfNotLeader."""
    async with quorum(engine="inline") as three:
        leading = await three.leader()
        epoch = leading.leader_and_epoch().epoch
        following = next(client for client in three.clients.values() if client is not leading)
        await until(lambda: following.leader_and_epoch() == leading.leader_and_epoch())
        leading.resign(epoch - 1)
        for wrong in (epoch + 1, -1):
            with pytest.raises(ConfigError, match="cannot be resigned"):
                leading.resign(wrong)
        with pytest.raises(NotLeaderError):
            following.resign(epoch)
        assert leading.leader_and_epoch().leader_id == leading.node_id

        leading.resign(epoch)
        await until(lambda: leading.leader_and_epoch().leader_id != leading.node_id)


def follow(core: Replica) -> list[Any]:
    """Another leads a newer epoch."""
    return tell(core, begin_request(epoch=core.epoch + 1, leader_id=3))


def vote(core: Replica) -> list[Any]:
    """Another stands in a newer epoch, and gets our vote."""
    return tell(core, vote_request(epoch=core.epoch + 1, last=(9, core.epoch)), version=2)


def detach(core: Replica) -> list[Any]:
    """Another stands in a newer epoch, with too short a log."""
    return tell(core, vote_request(epoch=core.epoch + 1, last=(0, 0)), version=2)


@pytest.mark.parametrize(
    "change",
    [follow, vote, detach],
    ids=[
        "testAccumulatorClearedAfterBecomingFollower",
        "testAccumulatorClearedAfterBecomingVoted",
        "testAccumulatorClearedAfterBecomingUnattached",
    ],
)
def test_what_was_not_written_is_dropped_when_leadership_is_lost(change: Any) -> None:
    """The core says so, and the accumulator is closed and gone."""
    core = leader(1)
    epoch = core.epoch
    assert RefuseAppends(epoch) in change(core)
    rig = Rig()
    rig.lead()
    rig.appends.prepare([b"a"], epoch=rig.appends.epoch)
    rig.appends.schedule_prepared()
    assert rig.appends.pending
    rig.appends.refuse(rig.appends.epoch, 0)

    assert not rig.appends.leads
    assert not rig.appends.pending
    assert rig.appends.drain(0) == ()
