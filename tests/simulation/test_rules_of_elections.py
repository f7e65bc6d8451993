"""The rules of elections bite: a wrong step is told at once, with the rule that it breaks; a right one is not."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import tools.rules as rules
from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.testing.campaign import Finding
from kraftlib.types import METADATA_TOPIC, ElectionState, Endpoint, ReplicaKey
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.vote import VoteRequest
from tests.simulation.mutation import Edit, Mutant, planted
from tools.rules import BrokenRuleError, Referee
from tools.simulate.seeds import run_seed

PAGE: Final = Path(__file__).parents[2] / "docs" / "contributing" / "rules.md"


def key(number: int) -> ReplicaKey:
    return ReplicaKey(number, uuid.UUID(int=100 + number))


VOTERS: Final = VoterSet.of(
    Voter(key=key(number), endpoints={"CONTROLLER": Endpoint("localhost", 9_000 + number)}) for number in (1, 2, 3)
)


class Twisted:
    """A core whose actions are changed on their way out."""

    def __init__(self, core: Replica, twist: Callable[[list[act.Action]], list[act.Action]]) -> None:
        self._core, self._twist = core, twist

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def handle(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        return self._twist(self._core.handle(event, now_ms))


def referee(
    twist: Callable[[list[act.Action]], list[act.Action]] = lambda actions: actions, kind: type[Twisted] = Twisted
) -> Referee:
    core = Replica(
        RaftConfig(node_id=1),
        key=key(1),
        cluster_id="c",
        log=LogView.build(static_voters=VOTERS),
        election=ElectionState(epoch=1),
        random=random.Random(1),
        endpoints={"CONTROLLER": Endpoint("localhost", 9_001)},
    )
    judged = Referee(kind(core, twist))  # type: ignore[arg-type]  # it has all that a core has
    judged.start(0)
    return judged


def vote(*, pre_vote: bool = False, epoch: int = 2) -> ev.RequestReceived:
    row = VoteRequest.PartitionData(
        replica_epoch=epoch,
        replica_id=2,
        replica_directory_id=uuid.UUID(int=102),
        last_offset_epoch=0,
        last_offset=0,
        pre_vote=pre_vote,
    )
    request = VoteRequest(cluster_id="c", topics=(VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,)),))
    return ev.RequestReceived(1, request, 2)


def begin(epoch: int) -> ev.RequestReceived:
    row = BeginQuorumEpochRequest.PartitionData(leader_id=2, leader_epoch=epoch)
    topic = BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
    return ev.RequestReceived(1, BeginQuorumEpochRequest(cluster_id="c", topics=(topic,)), 1)


@pytest.mark.parametrize("event", [begin(2), vote(epoch=2 + RaftConfig(node_id=1).epoch_jump_max)])
def test_a_mistake_about_who_leads_that_is_not_counted_breaks_a_rule(event: ev.RequestReceived) -> None:
    for is_silent in (False, True):
        judged = referee()
        judged.handle(begin(2), 20)
        other = attrs.evolve(event, request=_of_another_leader(event.request))
        if not is_silent:
            judged.handle(other, 30)
            assert sum(judged.core.state.refused.values()) == 1
            continue
        silent = Edit("consensus.state.ReplicaState.refuse", "self.refused[reason] = ", "_ = ")
        with planted(Mutant("one", "nothing is counted", (silent,))), pytest.raises(BrokenRuleError, match="RV20"):
            judged.handle(other, 30)


def _of_another_leader(request: Any) -> Any:
    if isinstance(request, VoteRequest):
        return request
    topic = request.topics[0]
    row = attrs.evolve(topic.partitions[0], leader_id=3)
    return attrs.evolve(request, topics=(attrs.evolve(topic, partitions=(row,)),))


def refused(actions: list[act.Action]) -> list[act.Action]:
    return [_refused(action) if isinstance(action, act.SendResponse) else action for action in actions]


def _refused(action: act.SendResponse) -> act.SendResponse:
    topic = action.response.topics[0]  # type: ignore[union-attr]
    row = attrs.evolve(topic.partitions[0], vote_granted=False)
    return act.SendResponse(1, attrs.evolve(action.response, topics=(attrs.evolve(topic, partitions=(row,)),)))  # type: ignore[misc]


def spoken_first(actions: list[act.Action]) -> list[act.Action]:
    return sorted(actions, key=lambda action: not isinstance(action, act.SendResponse))


def unwritten(actions: list[act.Action]) -> list[act.Action]:
    return [action for action in actions if not isinstance(action, act.PersistElection)]


def unasked(actions: list[act.Action]) -> list[act.Action]:
    return [action for action in actions if not isinstance(action, act.SendRequest)]


def test_a_right_step_breaks_no_rule() -> None:
    judged = referee()

    judged.handle(vote(pre_vote=True, epoch=1), 10)
    judged.handle(vote(), 20)
    judged.handle(begin(2), 30)

    assert (judged.core.role, judged.core.epoch) == (Role.FOLLOWER, 2)


def of_another_version(actions: list[act.Action]) -> list[act.Action]:
    return [act.PersistElection(one.election, 1) if isinstance(one, act.PersistElection) else one for one in actions]


@pytest.mark.parametrize(
    ("twist", "rule"), [(refused, "RV1"), (spoken_first, "RV12"), (unwritten, "RV11"), (of_another_version, "RV11")]
)
def test_a_wrong_vote_breaks_a_rule(twist: Callable[[list[act.Action]], list[act.Action]], rule: str) -> None:
    judged = referee(twist)

    with pytest.raises(BrokenRuleError) as broken:
        judged.handle(vote(), 20)

    assert broken.value.rule == rule


def test_a_voter_that_is_not_asked_breaks_a_rule() -> None:
    judged = referee(unasked)

    with pytest.raises(BrokenRuleError, match="RV4"):
        judged.handle(ev.TimeoutReached(), 10_000)


class Sleeper(Twisted):
    """A core that wakes for its election timer only."""

    def deadline_ms(self) -> int:
        return self._core.state.role_state.election_deadline_ms  # type: ignore[union-attr, return-value]


def test_a_replica_that_does_not_wake_to_ask_again_breaks_a_rule() -> None:
    judged = referee(kind=Sleeper)
    asked = [one for one in judged.handle(ev.TimeoutReached(), 10_000) if isinstance(one, act.SendRequest)]

    with pytest.raises(BrokenRuleError, match="RV14"):
        judged.handle(ev.RequestFailed(asked[0].correlation_id, ev.Failure.DISCONNECTED), 10_001)


def test_a_timer_with_fewer_possibilities_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def timer_ms(state: ReplicaState) -> int:
        return state.now_ms + state.config.election_timeout_ms + state.random.randrange(10)  # it fits by itself

    judged = referee()
    monkeypatch.setattr(ReplicaState, "random_election_deadline_ms", timer_ms)

    with pytest.raises(BrokenRuleError, match="RV17"):
        judged.handle(vote(), 20)


def unended(actions: list[act.Action]) -> list[act.Action]:
    return [action for action in actions if not isinstance(action, act.ShutdownComplete)]


def test_a_graceful_end_is_complete_when_somebody_else_leads() -> None:
    judged = referee()
    assert act.ShutdownComplete() not in judged.handle(ev.ShutdownRequested(1_000), 10)
    assert act.ShutdownComplete() in judged.handle(begin(2), 20)
    judged.handle(ev.TimeoutReached(), 2_000)


@pytest.mark.parametrize(("now_ms", "kind"), [(20, "leader"), (1_010, "time")])
def test_a_graceful_end_that_never_comes_breaks_a_rule(now_ms: int, kind: str) -> None:
    judged = referee(unended)
    judged.handle(ev.ShutdownRequested(1_000), 10)

    with pytest.raises(BrokenRuleError, match="RV16"):
        judged.handle(begin(2) if kind == "leader" else ev.TimeoutReached(), now_ms)


def test_a_graceful_end_that_waits_for_nobody_breaks_a_rule() -> None:
    judged = referee(lambda actions: [*actions, act.ShutdownComplete()])

    with pytest.raises(BrokenRuleError, match="RV16"):
        judged.handle(ev.ShutdownRequested(1_000), 10)


def test_a_replica_that_stands_too_early_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = referee()
    judged.core.state.role_state.election_deadline_ms = 100  # type: ignore[union-attr]  # the core's own timer, bent

    with pytest.raises(BrokenRuleError, match="RV9"):
        judged.handle(ev.TimeoutReached(), 100)


def test_a_replica_that_does_not_stand_breaks_a_rule() -> None:
    judged = referee()
    judged.core.state.role_state.election_deadline_ms = 100_000  # type: ignore[union-attr]  # the core's own timer, bent

    with pytest.raises(BrokenRuleError, match="RV9"):
        judged.handle(ev.TimeoutReached(), 10_000)


PLANTED: Final = (
    Mutant(
        "pre-vote-is-granted-by-whoever-hears-the-leader",
        "a follower grants a pre-vote though it hears its leader",
        (Edit("consensus.vote.grants_pre_vote", "role.has_fetched", "False"),),
    ),
    Mutant(
        "introduces-itself-to-all",
        "a leader sends BeginQuorumEpoch to voters that fetch",
        (Edit("consensus.quorum_epoch.begin_quorum_epoch", "fetched_ms is None or", "True or"),),
    ),
    Mutant(
        "resigns-late",
        "check quorum lasts twice as long",
        (Edit("consensus.deadlines.check_quorum_timeout_ms", "* 3 // 2", "* 3"),),
    ),
    Mutant(
        "longest-timer",
        "an election timer is half a timeout longer than it may be",
        (
            Edit(
                "consensus.state.ReplicaState.random_election_deadline_ms",
                "deference + timeout",
                "deference + timeout * 3 // 2",
            ),
        ),
    ),
    Mutant(
        "lost-pre-votes-are-kept",
        "pre-votes that were lost under one leader count under the next one",
        (
            Edit(
                "consensus.transitions.become_follower",
                "isinstance(before, Prospective) and (before.leader_id, state.epoch) == (leader_id, epoch)",
                "isinstance(before, Prospective)",
            ),
        ),
    ),
    Mutant(
        "successors-in-any-order",
        "a leader names its successors by id, not by how far they are",
        (Edit("consensus.poll.preferred_successors", "-progress.end_offset", "0"),),
    ),
)


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_a_planted_bug_breaks_a_rule(mutant: Mutant) -> None:
    with planted(mutant):
        runs = (run_seed(seed, profile=profile) for seed in range(1, 12) for profile in ("core-votes", "swarm"))
        found = any(isinstance(one, Finding) and one.invariant.startswith("RV") for one in runs)

    assert found, mutant.what


def test_a_leader_that_does_not_count_a_fetched_piece_of_a_snapshot_breaks_a_rule() -> None:
    edit = Edit("consensus.fetch_snapshot.handle_fetch_snapshot", "        note_contact(state, role, key)\n", "")
    with planted(Mutant("pieces-are-no-contact", "a FetchSnapshot does not count for check quorum", (edit,))):
        runs = (run_seed(seed, profile="core-downloads") for seed in range(1, 31))
        found = next((one for one in runs if isinstance(one, Finding)), None)

    assert found is not None
    assert found.invariant in ("RV15", "RV19")  # when it is counted, or when the leader resigns


def test_a_timer_that_a_flush_does_not_restart_breaks_a_rule_before_it_ends() -> None:
    edit = Edit("consensus.replica._flushed", "state.flush_waiting_since_ms = None", "pass")
    with planted(Mutant("busy-disk-is-a-hung-one", "a leader whose disk is never idle gives up", (edit,))):
        found = next((one for seed in range(1, 40) if isinstance(one := run_seed(seed, profile="core"), Finding)), None)

    assert found is not None
    assert found.invariant == "RV19"


def test_the_page_has_every_rule() -> None:
    folder = Path(rules.__file__).parent
    used = {rule for path in folder.glob("*.py") for rule in re.findall(r"\"(RV\d+)\"", path.read_text())}

    assert set(re.findall(r"^\| (RV\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == used
