from __future__ import annotations

from kraftlib.runtime.net.shares import _REMEMBERED, AT_ONCE_S, SHARE, Shares


def test_a_peer_that_asks_all_the_time_ends_up_at_its_share() -> None:
    now = worked = 0.0
    shares = Shares(lambda: now)
    while now < 1_000:
        if not shares.is_used_up("bob"):
            shares.spent("bob", 0.02)
            worked += 0.02
        now += 0.02
    assert 1_000 * SHARE <= worked <= 1_000 * SHARE + AT_ONCE_S + 0.1
    assert not shares.is_used_up("ann")


def test_many_peers_take_no_memory_and_those_in_debt_are_kept() -> None:
    now = 0.0
    shares = Shares(lambda: now)
    shares.spent("bob", 1_000.0)
    for number in range(10 * _REMEMBERED):
        shares.spent(number, 0.001)
        now += 1.0
    assert shares.is_used_up("bob")
    assert len(shares._whole_at) <= _REMEMBERED
