"""One address cannot keep a replica busy with TLS handshakes, and others do not pay for it."""

from __future__ import annotations

import trustme
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.runtime.net.framing import framed
from kraftlib.security.handshakes import REMEMBERED, UNPROVEN_COST, Handshakes
from kraftlib.security.limits import TcpLimits
from tests.clocks import Clock
from tests.runtime.net.test_tcp_server import HALF_A_HELLO, client_context, server, server_context, stranger, tcp


@given(st.integers(1, 100), st.integers(1, 100), st.lists(st.floats(0, 0.5), max_size=300))
def test_no_address_begins_more_than_its_budget(at_once: int, per_second: int, pauses: list[float]) -> None:
    clock = Clock(0.0)
    handshakes = Handshakes(clock, at_once=at_once, per_second=per_second)
    begun = 0
    for pause in pauses:
        clock.now += pause
        begun += handshakes.may_begin("a")
        assert begun <= at_once + clock.now * per_second / UNPROVEN_COST + 1e-6
    assert begun >= min(len(pauses), at_once)


@given(st.integers(1, 100), st.integers(1, 100), st.lists(st.floats(0, 0.5), max_size=300))
def test_an_address_whose_peers_are_authenticated_begins_more(
    at_once: int, per_second: int, pauses: list[float]
) -> None:
    clock = Clock(0.0)
    handshakes = Handshakes(clock, at_once=at_once, per_second=per_second)
    begun = 0
    for pause in pauses:
        clock.now += pause
        if handshakes.may_begin("a"):
            handshakes.proven("a")
            begun += 1
        assert begun <= at_once * UNPROVEN_COST + clock.now * per_second + 1e-6
    assert begun >= min(len(pauses), (at_once - 1) * UNPROVEN_COST)


def test_an_address_has_its_whole_budget_again_after_a_rest_and_others_have_theirs() -> None:
    clock = Clock(0.0)
    handshakes = Handshakes(clock, at_once=3, per_second=2 * UNPROVEN_COST)
    assert [handshakes.may_begin("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert handshakes.may_begin("b")
    clock.now = 0.5
    assert [handshakes.may_begin("a") for _ in range(2)] == [True, False]
    clock.now = 2.0
    assert [handshakes.may_begin("a") for _ in range(4)] == [True] * 3 + [False]


def test_many_addresses_lose_nobody_whose_budget_is_used_up() -> None:
    clock = Clock(0.0)
    handshakes = Handshakes(clock, at_once=1, per_second=1)
    assert handshakes.may_begin("a")
    for number in range(3 * REMEMBERED):
        assert handshakes.may_begin(f"other-{number}")
    assert not handshakes.may_begin("a")


async def test_beyond_the_budget_an_address_is_closed_and_the_ones_of_voters_never_are() -> None:
    authority = trustme.CA()
    limits = TcpLimits(connections_per_address_max=2, handshakes_per_second=1)
    theirs = client_context(authority, "127.0.0.1")
    async with server(tls=server_context(authority), limits=limits) as opened:
        for number in range(4):
            async with stranger(opened.endpoint, local_addr=("127.0.0.2", 0)) as half:
                half.write(HALF_A_HELLO)
                if number >= 2:
                    assert await half.closed() == b""
        assert tcp(opened).trouble["too_many_handshakes"] == 2
        tcp(opened).voters_at(["127.0.0.1"])
        for _ in range(4):
            async with stranger(opened.endpoint, ssl=theirs) as voter:
                voter.write(framed(b"in"))
                assert await voter.answer() == b"in"
        assert tcp(opened).trouble["too_many_handshakes"] == 2


async def test_over_tls_users_that_come_again_are_let_in() -> None:
    authority = trustme.CA()
    limits = TcpLimits(connections_per_address_max=2, handshakes_per_second=1)
    theirs = client_context(authority, "client")
    from_there = ("127.0.0.2", 0)
    async with server(tls=server_context(authority), limits=limits) as opened:
        for _ in range(UNPROVEN_COST):
            async with stranger(opened.endpoint, ssl=theirs, local_addr=from_there) as user:
                user.write(framed(b"in"))
                assert await user.answer() == b"in"
        for is_first in (True, False):  # the users' handshakes took half of the budget
            async with stranger(opened.endpoint, local_addr=from_there) as half:
                half.write(HALF_A_HELLO)
                if not is_first:
                    assert await half.closed() == b""
        assert tcp(opened).trouble["too_many_handshakes"] == 1
