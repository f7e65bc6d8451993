"""The rules of the voters, of reads and of strangers find a wrong step, taken or left out."""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.testing.campaign import Finding, quiet
from kraftlib.types import Endpoint, ReplicaKey
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest, ReadBarrierResponse
from tests.simulation.hunt import coming_to_an_end
from tests.simulation.mutation import Edit, Mutant, planted
from tools.rules import BrokenRuleError, Referee
from tools.simulate.seeds import run_seed

Lie = Callable[[list[act.Action]], list[act.Action]]


class LyingReplica(Replica):
    """A core that changes what it wants done."""

    lie: Lie | None = None

    def handle(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        actions = super().handle(event, now_ms)
        return actions if self.lie is None else self.lie(actions)


def referee(voters: Sequence[int] = (1,)) -> Referee:
    """A replica 1 that has begun, as the leader if it is the only voter."""
    places = [StaticVoter(number, Endpoint("node", 9_000 + number)) for number in voters]
    core = LyingReplica(
        RaftConfig(node_id=1, voters=tuple(places)),
        key=ReplicaKey(1),
        cluster_id="ours",
        log=LogView.build(static_voters=VoterSet.static(places, listener_name="CONTROLLER")),
        election=None,
        random=chance.Random(1),
        endpoints={"CONTROLLER": Endpoint("node", 9_001)},
    )
    judge = Referee(core)
    judge.start(0)
    return judge


def asks(judge: Referee, request: Any, lie: Lie, *, version: int = 0) -> str:
    """Let a core lie when it is asked; return which rule it has broken."""
    judge.core.lie = lie  # type: ignore[attr-defined]
    with pytest.raises(BrokenRuleError) as broken:
        judge.handle(ev.RequestReceived(7, request, version), 10)
    return broken.value.rule


def test_without_a_lie_no_rule_is_broken() -> None:
    judge = referee()

    assert judge.handle(ev.RequestReceived(7, DescribeQuorumRequest(), 2), 10)
    assert judge.handle(ev.ReadBarrierRequested(1, 100), 11) == []
    assert act.PassReadBarrier(1, 1) in judge.handle(ev.Flushed(1, 0), 12)


def test_a_read_that_is_passed_too_early_is_seen() -> None:
    judge = referee((1, 2, 3))
    judge.core.lie = lambda actions: [*actions, act.PassReadBarrier(1, 0)]  # type: ignore[attr-defined]

    with pytest.raises(BrokenRuleError, match="RC12"):
        judge.handle(ev.ReadBarrierRequested(1, 100), 11)


def test_a_read_that_is_never_refused_is_seen() -> None:
    judge = referee((1, 2, 3))
    judge.handle(ev.ReadBarrierRequested(1, 100), 11)
    judge.core.lie = lambda actions: []  # type: ignore[attr-defined]

    with pytest.raises(BrokenRuleError, match="RC11"):
        judge.handle(ev.TimeoutReached(), 111)


def test_a_replica_that_does_not_wake_to_give_a_read_up_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = referee((1, 2, 3))
    monkeypatch.setattr(judge.core, "deadline_ms", lambda: 112)

    with pytest.raises(BrokenRuleError, match="RC11"):
        judge.handle(ev.ReadBarrierRequested(1, 100), 11)


def test_who_does_not_lead_takes_no_reads_of_others() -> None:
    answer = act.SendResponse(7, ReadBarrierResponse(error_code=0, offset=3))

    assert asks(referee((1, 2, 3)), ReadBarrierRequest(cluster_id="ours", timeout_ms=9), lambda _: [answer]) == "RC10"


def test_a_change_that_nobody_may_make_is_seen() -> None:
    done = act.SendResponse(7, RemoveRaftVoterResponse(error_code=0))

    assert asks(referee(), RemoveRaftVoterRequest(cluster_id="ours", voter_id=1), lambda _: [done]) == "RC5"
    assert asks(referee(), RemoveRaftVoterRequest(cluster_id="ours", voter_id=1), lambda _: []) == "RC5"


def test_a_record_that_nobody_asked_for_is_seen() -> None:
    record = act.SubmitControl((KRaftVersionRecord(kraft_version=1),))

    assert asks(referee(), DescribeQuorumRequest(), lambda actions: [*actions, record]) == "RC6"


def test_another_cluster_is_not_served() -> None:
    request = ReadBarrierRequest(cluster_id="theirs", timeout_ms=9)
    served = act.SendResponse(7, ReadBarrierResponse(error_code=0, offset=3))

    assert asks(referee(), request, lambda _: [served]) in ("RC10", "RC16")


def test_a_wrong_picture_of_the_quorum_is_seen() -> None:
    def wrong(actions: list[act.Action]) -> list[act.Action]:
        response: Any = next(action.response for action in actions if isinstance(action, act.SendResponse))
        topic = response.topics[0]
        partition = attrs.evolve(topic.partitions[0], error_code=0, leader_id=2)
        return [act.SendResponse(7, attrs.evolve(response, topics=(attrs.evolve(topic, partitions=(partition,)),)))]

    assert asks(referee(), DescribeQuorumRequest(), wrong, version=2) == "RC14"


PLANTED = (
    ("RC5", "core-voters", "consensus.voter_changes._change_error",
     "offset is None or offset >= state.high_watermark",
     "offset is None"),
    ("RC7", "core-voters", "consensus.voter_changes.advance_change", "state.high_watermark > change.offset",
     "state.high_watermark >= change.offset"),
    pytest.param(
        "RC8", "core-voters", "consensus.voter_changes.advance_change", "if committed and not state.is_voter:",
        "if not state.is_voter:", marks=pytest.mark.slow),
    ("RC12", "core", "consensus.extensions.read_index._advance_round",
     "confirmed + state.is_voter < state.voters.majority", "False"),
    ("RC5", "core-downloads", "consensus.responses.update_voter", "else place.port", "else 0"),
    ("RC9", "core", "consensus.roles.Progress.fetched", "self.leader_end_offset = leader_end_offset", "pass"),
    ("RC17", "core-votes", "consensus.extensions.misconfiguration.look_at_refusal",
     "elif error == ErrorCode.INVALID_VOTER_KEY:", "elif False:"),
    ("RC23", "core-voters", "consensus.joining.handle_join_response",
     "ask_again_later(state, state.role_state)", "pass"),
    ("RC16", "core-lies", "consensus.extensions.misconfiguration.claimed_id", "return claimed if", "return -1 if"),
    ("RC20", "core-voters", "consensus.joining.join_deadline_ms",
     "return None if _place_to_join(state, role) is None else", "return None if True else"),
    ("RC3", "core-voters", "consensus.transitions._first_records", "state.log.voters.latest_offset == -1 or ", ""),
)  # fmt: skip
"""Which rule finds a bug, in which profile."""


@pytest.mark.parametrize(("rule", "profile", "where", "old", "new"), PLANTED, ids=lambda value: str(value)[:4])
def test_a_bug_is_found_within_a_few_seeds(rule: str, profile: str, where: str, old: str, new: str) -> None:
    with quiet(), planted(Mutant(rule, "a bug", (Edit(where, old, new),))), coming_to_an_end():
        for seed in range(40):
            found = run_seed(seed, profile=profile)
            if isinstance(found, Finding):
                assert found.invariant[:2] in ("RC", "RF"), f"{found}; expected was {rule}"
                return
    pytest.fail(f"{where} without {old}: not found within 40 seeds")
