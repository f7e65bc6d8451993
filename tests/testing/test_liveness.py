"""What must come true once the trouble is over, and that it is seen if it does not."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.storage.memory import MemoryQuorumStateStore
from kraftlib.testing import final_checks, liveness
from kraftlib.testing.process import Ending
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.world import World
from kraftlib.types import ElectionState
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world


def test_a_healthy_quorum_passes_all_of_it() -> None:
    with world(observers=1) as made:
        made.workload.start()
        made.run_for(500)
        assert liveness.v1_leader_soon(made, "now") == 0
        liveness.v3_everybody_catches_up(made)
        liveness.v7_service_resumes(made)
        made.workload.stop()
        liveness.settle(made)
        liveness.e9_returning_voter_disturbs_nobody(made)
        liveness.settle(made)
        final_checks.i18_logs_are_equal(made)
        final_checks.i19_nothing_is_left_over(made)
        final_checks.i20_idle_quorum_is_quiet(made)

        assert made.violation is None


def test_no_leader_no_service_no_progress_are_violations() -> None:
    with world() as made:
        for number in (1, 2):
            made.nodes[number].end(Ending.POWER_LOST)
        made.run_for(10_000)
        with pytest.raises(InvariantViolation, match=r"V1 .*there was no leader"):
            liveness.v1_leader_soon(made, "now")
    with world() as made:
        made.network.link(1, 2).cut = True
        for node in made.nodes.values():
            node.disk.hung = True
        made.workload.start()
        with pytest.raises(InvariantViolation, match=r"V7 .*no append was acknowledged"):
            liveness.v7_service_resumes(made)


def test_a_replica_that_does_not_catch_up_is_a_violation() -> None:
    with world(5) as made:
        leader = made.leader()
        follower = next(node for node in made.nodes.values() if node is not leader)
        for other in made.nodes:
            if other != follower.key.id:
                made.network.link(other, follower.key.id).cut = True
        made.workload.start()
        made.run_for(1_000)
        with pytest.raises(InvariantViolation, match=r"V3 .*not everybody knows"):
            liveness.v3_everybody_catches_up(made)


def test_whoever_wants_to_join_and_does_not_is_a_violation() -> None:
    with world(voters=1, observers=2, kraft_version=1, config={"auto_join": True}) as made:
        liveness.whoever_joins_has_joined(made)
        assert len(made.current_voters()) == 3
    nobody = Edit("consensus.joining._place_to_join", "return _place_to_ask(state, role)", "return None")
    with (
        planted(Mutant("one", "nobody joins", (nobody,))),
        world(voters=1, observers=2, kraft_version=1, config={"auto_join": True}) as made,
        pytest.raises(InvariantViolation, match="JOIN"),
    ):
        liveness.whoever_joins_has_joined(made)


def test_whoever_is_wanted_and_does_not_lead_is_a_violation() -> None:
    with world(voters=3, priorities={2: 100}, config={"priority_takeover_ms": 500}) as made:
        liveness.whoever_is_wanted_leads(made)
        leader = made.leader()
        assert leader is not None
        assert leader.key.id == 2
    never = Edit("consensus.extensions.priority._wanted", "if not role.preferred_voters", "if True")
    lost = 0
    for seed in range(3):
        with (
            planted(Mutant("one", "nobody hands over", (never,))),
            world(seed, voters=3, priorities={2: 100}, config={"priority_takeover_ms": 500}) as made,
        ):
            if made.run_until_leader() != 2:
                lost += 1
                with pytest.raises(InvariantViolation, match="PRIORITY"):
                    liveness.whoever_is_wanted_leads(made)
    assert lost


def test_a_voter_is_cut_off_only_where_the_others_are_whole() -> None:
    """Who has forgotten its votes keeps no leader in office: with it alone, a leader rightly gives up."""
    with world() as made:
        leader = made.leader()
        forgetful, other = [node for node in made.nodes.values() if node is not leader]
        for pair in ((forgetful.key.id, other.key.id), (other.key.id, forgetful.key.id)):
            made.network.link(*pair).cut = True
        forgetful.end(Ending.KILLED)
        forgetful.lose_vote()
        forgetful.start()
        made.run_for(1_000)
        assert (forgetful in made.living_voters(), forgetful in made.whole_voters()) == (True, False)

        liveness.e9_returning_voter_disturbs_nobody(made)

        assert made.violation is None


def test_patience_grows_with_the_timeouts() -> None:
    short, long = World(1, config={"election_timeout_ms": 100}), World(1, config={"election_timeout_ms": 200})

    assert liveness.patience_ms(long) - liveness.patience_ms(short) == 10 * 2 * 100
    assert attrs.has(type(short.network.link(1, 2)))


def test_an_observer_that_heard_of_a_newer_epoch_waits_for_an_election_and_no_longer() -> None:
    with world(observers=1) as made:
        leader, observer = made.leader(), next(node for node in made.nodes.values() if not made.is_voter(node))
        assert leader is not None
        assert leader.leads is not None
        observer.end(Ending.KILLED)
        observer.elections = MemoryQuorumStateStore(ElectionState(epoch=leader.leads + 2))
        observer.start()
        made.run_for(2_000)
        assert observer.process is not None
        assert observer.process.replica.high_watermark is None

        liveness.v8_observers_catch_up(made)

        assert made.violation is None
        assert observer.process.replica.high_watermark == made.committed_end
