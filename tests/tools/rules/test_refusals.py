"""The rule of refusals raises where a mistake of a peer is not counted, or something else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftlib.consensus.actions import Action
from kraftlib.consensus.events import Event, SnapshotRefused
from kraftlib.consensus.replica import Replica
from kraftlib.types import OffsetAndEpoch
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, AddRaftVoterResponse
from tests.consensus.build import fetch_request, flush, follower, leader, reply, tell
from tests.consensus.test_joining import OLD_DISK, after_the_period, described, key, observer
from tests.simulation.mutation import Edit, Mutant, planted
from tools.rules import BrokenRuleError
from tools.rules.refusals import RefusalRules
from tools.rules.rule_set import kind_of
from tools.rules.scene import Scene

Watch = Callable[[Replica], Replica]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Let the rule look on while a core handles its events."""

    def look_on(core: Replica) -> Replica:
        scene = Scene(core)
        rules, handle = RefusalRules(scene), core.handle
        scene.began([], core.state.now_ms)

        def watched(event: Event, now_ms: int) -> list[Action]:
            scene.hear(event, now_ms)
            if kind_of(event) in rules.HEARS:
                rules.hearing(event)
            actions = handle(event, now_ms)
            scene.see(event, actions)
            if kind_of(event) in rules.SEES:
                rules.handled(event)
            scene.over(event)
            return actions

        monkeypatch.setattr(core, "handle", watched)
        return core

    return look_on


def may_not_join(watch: Watch) -> Replica:
    core = watch(observer(key(1), key(2), own=key(4)))
    after_the_period(core, AddRaftVoterRequest)
    reply(core, 2, AddRaftVoterResponse(error_code=35, error_message="no"))
    return core


def finds_its_id_in_use(watch: Watch) -> Replica:
    core = watch(observer(key(1), key(2), OLD_DISK, own=key(4)))
    for fetched_ms in (1, 1, 2):
        described(core, fetched_ms)
    return core


def sees_a_voter_go_back(watch: Watch) -> Replica:
    core = watch(leader(1, 1, 1))
    flush(core)
    for offset in (4, 4, 3):
        tell(core, fetch_request(replica_id=2, offset=offset, last_epoch=2 if offset == 4 else 1, epoch=2), version=17)
    return core


def gets_snapshots_that_it_cannot_use(watch: Watch) -> Replica:
    core = watch(follower(1, 1, epoch=2, leader_id=2))
    for lacks_space in (False, True):
        refused = SnapshotRefused(OffsetAndEpoch(offset=9, epoch=1), "no", lacks_space=lacks_space)
        core.handle(refused, core.state.now_ms)
    return core


Story = Callable[[Watch], Replica]

STORIES = (
    (may_not_join, "joining.handle_join_response", {"not allowed to join": 1}),
    (finds_its_id_in_use, "joining.handle_describe_response", {"our id is in use": 1}),
    (sees_a_voter_go_back, "fetch_leader.record_progress", {"a voter went back": 1}),
    (
        gets_snapshots_that_it_cannot_use,
        "fetch_snapshot.handle_snapshot_refused",
        {"damaged snapshot": 1, "no space for a snapshot": 1},
    ),
)


@pytest.mark.parametrize(("story", "where", "counts"), STORIES)
def test_a_mistake_that_is_counted_breaks_nothing(
    watch: Watch, story: Story, where: str, counts: dict[str, int]
) -> None:
    assert story(watch).state.refused == counts


@pytest.mark.parametrize("count", ["never", "twice"])
@pytest.mark.parametrize(("story", "where", "counts"), STORIES)
def test_a_mistake_that_is_not_counted_once_is_found(
    watch: Watch, story: Story, where: str, counts: dict[str, int], count: str
) -> None:
    first = f"state.refuse({next(iter(counts))!r}, '') or state.refuse("
    edit = Edit(f"consensus.{where}", "state.refuse(", first if count == "twice" else "(lambda *_: None)(")
    with planted(Mutant("", "", (edit,))), pytest.raises(BrokenRuleError, match="RC25"):
        story(watch)
