"""Whoever wants to connect gets the slot of the one that has shown least, and voters have slots of their own."""

from __future__ import annotations

import attrs

from kraftlib.security.admission import Admission, Standing
from kraftlib.security.limits import TcpLimits


@attrs.define(eq=False)
class Connection:
    host: str
    accepted_at: float = 0.0
    standing: Standing = Standing.NEWCOMER
    of_voters: bool = False
    idle: float = 0.0

    def idle_s(self, now: float) -> float:
        return self.idle


class Port:
    """A port on which connections arrive, a second after each other."""

    def __init__(self, *, voters: set[str] | None = None, authenticates: bool = False, **limits: int) -> None:
        known = voters or set()
        self.admission: Admission[Connection] = Admission(
            TcpLimits(**limits), is_voter_host=known.__contains__, authenticates=authenticates
        )
        self.now = 0.0

    def arrive(self, host: str, standing: Standing = Standing.NEWCOMER, idle: float = 0.0) -> Connection | None:
        self.now += 1
        place = self.admission.place_for(host, self.now)
        if place is None:
            return None
        if place.instead_of is not None:
            self.admission.remove(place.instead_of)
        connection = Connection(host, self.now, standing, place.of_voters, idle)
        self.admission.add(connection)
        return connection


def test_the_oldest_newcomer_of_the_address_that_has_most_gives_way() -> None:
    port = Port(connections_max=4)
    lone = port.arrive("a")
    first, second, third = (port.arrive("b") for _ in range(3))

    assert port.arrive("c") is not None
    assert [each in port.admission for each in (lone, first, second, third) if each] == [True, False, True, True]
    assert len(port.admission) == 4


def test_an_address_that_is_full_gives_up_its_own() -> None:
    port = Port(connections_max=10, connections_per_address_max=1)
    other, mine = port.arrive("a"), port.arrive("b")
    assert port.arrive("b") is not None
    assert other is not None
    assert other in port.admission
    assert mine is not None
    assert mine not in port.admission
    assert port.admission.held_by("b") == 1


def test_who_has_asked_gives_way_only_after_a_rest() -> None:
    port = Port(connections_max=2, idle_ms=1_000)
    busy = port.arrive("a", Standing.ASKED)
    rests = port.arrive("b", Standing.ASKED, idle=0.9)
    assert port.arrive("c") is None
    assert rests is not None
    rests.idle = 1.0
    assert port.arrive("c") is not None
    assert rests not in port.admission
    assert busy is not None
    assert busy in port.admission


def test_ten_thousand_silent_strangers_take_no_slot_of_a_voter_and_each_newcomer_is_let_in() -> None:
    port = Port(voters={"v"}, connections_max=8, connections_per_address_max=4, voter_connections_max=2)
    voter = port.arrive("v", Standing.VOTER)
    for number in range(10_000):
        newcomer = port.arrive(f"s{number % 7}")
        assert newcomer is not None
        assert not newcomer.of_voters
    assert voter is not None
    assert voter in port.admission
    again = port.arrive("v")
    assert again is not None
    assert again.of_voters
    assert len(port.admission) == 8 + 2


def test_at_an_address_that_voters_share_with_strangers_the_one_that_has_shown_least_gives_way() -> None:
    port = Port(voters={"v"}, connections_max=1, connections_per_address_max=1, voter_connections_max=4)
    resting_voter = port.arrive("v", Standing.VOTER, idle=5.0)
    busy_voter = port.arrive("v", Standing.VOTER)
    busy = port.arrive("v", Standing.ASKED)
    idle = port.arrive("v", Standing.ASKED, idle=0.1)
    assert port.arrive("v", Standing.VOTER) is not None  # the slot of strangers was free
    for expected in (idle, busy, resting_voter, busy_voter):
        assert expected is not None
        assert expected in port.admission
        assert port.arrive("v", Standing.VOTER) is not None
        assert expected not in port.admission


def test_a_newcomer_that_may_prove_to_be_a_voter_waits_in_a_slot_of_voters() -> None:
    port = Port(authenticates=True, connections_max=1, voter_connections_max=1)
    busy = port.arrive("a", Standing.ASKED)
    newcomer = port.arrive("b")
    assert newcomer is not None
    assert newcomer.of_voters
    voter = port.arrive("c")
    assert voter is not None
    assert newcomer not in port.admission

    assert port.admission.prove(voter, port.now) is None
    assert port.arrive("d") is None
    assert busy is not None
    assert busy in port.admission


def test_a_stranger_that_proves_to_be_a_voter_changes_slots_with_one_that_has_not() -> None:
    port = Port(authenticates=True, connections_max=2, voter_connections_max=1)
    voter, busy, waits = port.arrive("a", Standing.ASKED), port.arrive("b", Standing.ASKED), port.arrive("c")
    assert voter is not None
    assert busy is not None
    assert waits is not None
    assert waits.of_voters

    assert port.admission.prove(voter, port.now) is None
    assert voter.of_voters
    assert not waits.of_voters
    assert waits in port.admission
    assert [port.admission.held_by(host) for host in "abc"] == [0, 1, 1]
    port.admission.remove(waits)
    assert port.arrive("d") is not None
    assert port.arrive("e") is not None


def test_a_stranger_whose_address_is_full_gives_its_slot_of_voters_to_one_that_proves_to_be_a_voter() -> None:
    port = Port(authenticates=True, connections_max=2, connections_per_address_max=1, voter_connections_max=1)
    voter, busy, waits = port.arrive("a", Standing.ASKED), port.arrive("b", Standing.ASKED), port.arrive("b")
    assert voter is not None
    assert busy is not None
    assert waits is not None
    assert waits.of_voters

    assert port.admission.prove(voter, port.now) is waits
    port.admission.remove(waits)
    assert voter.of_voters
    assert [port.admission.held_by(host) for host in "ab"] == [0, 1]
