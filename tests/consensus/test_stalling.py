"""A leader that a majority fetches from, and that gets nowhere."""

from __future__ import annotations

from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from tests.consensus.build import fetch_request, flush, leader, tell


def fetches_of_all(core: Replica, now_ms: int, *, offset: int, version: int = 18) -> None:
    """Both other voters ask for what comes after `offset`."""
    for replica_id in (2, 3):
        request = fetch_request(epoch=core.epoch, offset=offset, last_epoch=1, replica_id=replica_id)
        tell(core, request, version=version, now_ms=now_ms, request_id=now_ms * 10 + replica_id)


def test_a_leader_that_is_fetched_from_in_vain_resigns_and_next_time_later() -> None:
    """Followers that never take what they are sent satisfy check quorum (reliability E8)."""
    core = leader(1)
    flush(core)
    start, vain = core.state.now_ms, 2 * core.state.config.fetch_timeout_ms
    for now_ms in range(start, start + vain, 500):
        fetches_of_all(core, now_ms, offset=1)
        assert core.role is Role.LEADER
    assert core.deadline_ms() == start + vain
    core.handle(TimeoutReached(), start + vain)
    assert core.role is Role.RESIGNED

    assert core.state.stalls == 1
    again = leader(1)
    flush(again)
    again.state.stalls = 1
    start = again.state.now_ms
    for now_ms in range(start, start + 2 * vain, 500):
        fetches_of_all(again, now_ms, offset=1)
        assert again.role is Role.LEADER
    again.handle(TimeoutReached(), start + 2 * vain)
    assert again.role is Role.RESIGNED


def test_a_leader_waits_for_those_that_get_on_however_slowly() -> None:
    """A long way to catch up, or a snapshot on its way, is no reason to leave."""
    core = leader(*([1] * 100))
    flush(core)
    for number in range(40):
        fetches_of_all(core, core.state.now_ms + 1_000, offset=number + 1)
    assert core.role is Role.LEADER
    for _ in range(40):
        now_ms = core.state.now_ms + 1_000
        fetches_of_all(core, now_ms, offset=40)
        core.state.role_state.progress[2].moved_ms = now_ms  # type: ignore[union-attr]
    assert core.role is Role.LEADER


def test_what_is_committed_forgives_what_was_given_up_in_vain() -> None:
    """The patience that grew is that of the beginning again."""
    core = leader(1)
    flush(core)
    core.state.stalls = 5
    request = fetch_request(epoch=core.epoch, offset=2, last_epoch=core.epoch)
    tell(core, request, version=18, now_ms=core.state.now_ms)
    assert core.state.high_watermark == 2
    assert core.state.stalls == 0
    for now_ms in range(core.state.now_ms, core.state.now_ms + 20_000, 500):
        tell(core, request, version=18, now_ms=now_ms, request_id=now_ms)
    assert core.role is Role.LEADER, "nothing waits to be committed"
