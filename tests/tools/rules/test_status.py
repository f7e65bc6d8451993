"""The rule of the status raises for each field that does not say what the replica is or has."""

from __future__ import annotations

import pytest

from kraftlib.consensus.events import ResignRequested, StateMachineFailed
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from tests.consensus.build import ask, fetch_request, flush, follower, leader
from tests.simulation.mutation import Edit, Mutant, planted
from tools.rules import BrokenRuleError
from tools.rules.status import judge_status


def cores() -> list[Replica]:
    leads, leaves, follows = leader(1, 1, 1), leader(1, 1, 1), follower(1, 1, epoch=2, leader_id=2)
    flush(leads)
    ask(leads, fetch_request(replica_id=2, offset=4, last_epoch=2, epoch=2), version=17)
    leaves.handle(ResignRequested(2), leaves.state.now_ms)
    follows.handle(StateMachineFailed(), follows.state.now_ms)
    return [leads, leaves, follows]


def test_a_true_status_passes_in_each_role() -> None:
    judged = cores()
    for core in judged:
        judge_status(core)

    assert [core.role for core in judged] == [Role.LEADER, Role.RESIGNED, Role.FOLLOWER]


@pytest.mark.parametrize(
    ("true", "wrong"),
    [
        ("leader_id=state.leader_and_epoch.leader_id", "leader_id=state.leader_id"),
        ("voted_key=state.election.voted_key", "voted_key=state.key"),
        ("flushed_offset=state.log.flushed_offset", "flushed_offset=state.log.start_offset"),
        ("abstains=state.abstains", "abstains=None"),
        ("voter_progress=_rows(leader.progress.values()) if leader else ()", "voter_progress=()"),
    ],
)
def test_a_wrong_status_is_found(true: str, wrong: str) -> None:
    found = []
    with planted(Mutant("", "", (Edit("consensus.status.status_of", true, wrong),))):
        for core in cores():
            try:
                judge_status(core)
            except BrokenRuleError as broken:
                found.append(broken.rule)

    assert set(found) == {"RQ1"}
