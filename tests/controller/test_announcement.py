"""A standby asks to be registered until the log says so, and less often each time."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.controller import ClusterState
from kraftlib.controller.announcement import FIRST_RETRY_MS, LAST_RETRY_MS, Announcement
from kraftlib.controller.versions import METADATA_VERSION
from kraftlib.metadata import FeatureLevelRecord, RegisterControllerRecord
from tests.controller.world import World

ME = RegisterControllerRecord(
    controller_id=2,
    incarnation_id=UUID(int=9),
    end_points=(
        RegisterControllerRecord.ControllerEndpoint(name="CONTROLLER", host="b", port=9093, security_protocol=3),
    ),
    features=(
        RegisterControllerRecord.ControllerFeature(
            name=METADATA_VERSION, min_supported_version=7, max_supported_version=30
        ),
    ),
)


def cluster(level: int = 30) -> ClusterState:
    state = ClusterState()
    state.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
    return state


def test_a_standby_asks_until_its_own_process_is_registered() -> None:
    announcement, state = Announcement(ME), cluster()
    assert announcement.due(state, 0) is not None
    state.replay(attrs.evolve(ME, incarnation_id=UUID(int=1)))  # an earlier life
    assert announcement.due(state, FIRST_RETRY_MS) is not None
    state.replay(ME)
    assert announcement.due(state, 10 * LAST_RETRY_MS) is None


def test_an_active_controller_writes_what_the_standby_says() -> None:
    world = World()
    request = Announcement(ME).due(world.state, 0)
    assert world.ask(request).error_code == 0
    assert world.state.cluster.controllers[2] == ME


def test_it_asks_less_and_less_often_and_a_new_leader_at_once() -> None:
    announcement, state = Announcement(ME), cluster()
    asked = [now_ms for now_ms in range(0, 8 * LAST_RETRY_MS, 100) if announcement.due(state, now_ms)]
    assert asked[:4] == [0, FIRST_RETRY_MS, 3 * FIRST_RETRY_MS, 7 * FIRST_RETRY_MS]
    assert asked[-1] - asked[-2] == LAST_RETRY_MS
    announcement.begin()
    assert announcement.due(state, 8 * LAST_RETRY_MS) is not None


def test_a_cluster_of_before_kip_919_knows_no_controllers() -> None:
    assert Announcement(ME).due(cluster(14), 0) is None
    assert Announcement(ME).due(ClusterState(), 0) is None
