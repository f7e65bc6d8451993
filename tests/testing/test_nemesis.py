"""The troublemaker mends what it made."""

from __future__ import annotations

import random

from kraftlib.testing.nemesis import Nemesis, Strike
from tests.testing.worlds import world


def test_trouble_lasts_as_long_as_it_is_said_to() -> None:
    with world() as made:
        nemesis = Nemesis(made, random.Random(1), kinds=["pause"])
        assert nemesis.strike("pause", 500)
        assert len(made.running_nodes()) == 2
        made.run_for(499)
        assert len(made.running_nodes()) == 2
        made.run_for(1)

        assert len(made.running_nodes()) == 3
        assert nemesis.counts == {"pause": 1}


def test_in_the_end_all_is_mended() -> None:
    with world() as made:
        nemesis = Nemesis(made, random.Random(1), kinds=["pause", "split", "hung-disk"], pace=0.1)
        nemesis.start()
        made.run_for(3_000)
        nemesis.stop()

        assert sum(nemesis.counts.values()) > 5
        assert len(made.running_nodes()) == 3
        assert not any(link.cut for link in made.network.links.values())
        assert not any(node.disk.hung for node in made.nodes.values())
        made.run_until_leader()


def test_what_has_no_end_is_counted_too() -> None:
    with world() as made:
        nemesis = Nemesis(made, random.Random(1), kinds=["resign"])

        assert not nemesis.strike("resign")
        assert nemesis.counts == {"resign": 1}
        assert nemesis.kinds == ["resign"]


def test_strikes_do_not_depend_on_each_other() -> None:
    """Leaving some out leaves the others what they are: their times, their kinds and what they draw."""
    made: list[list[Strike]] = []
    for only in (None, frozenset({2, 5, 9}), frozenset[int]()):
        with world() as alone:
            kinds = ["pause", "split", "kill", "loss", "power-loss-everywhere"]
            nemesis = Nemesis(alone, random.Random(1), kinds=kinds, pace=0.1, only=only)
            nemesis.start()
            alone.run_for(3_000)
            nemesis.stop()
            made.append(nemesis.made)
    everything, some, nothing = made

    assert [strike.number for strike in some] == [2, 5, 9]
    assert some == [strike for strike in everything if strike.number in (2, 5, 9)]
    assert nothing == []
    assert str(some[0]).startswith("strike 2: ")
