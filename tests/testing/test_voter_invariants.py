"""Each invariant of voter sets keeps silent where all is well, and complains where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.testing import voter_invariants as voter_inv
from kraftlib.testing.facts import Facts
from kraftlib.testing.violation import Complaint
from kraftlib.types import ReplicaKey
from tests.testing.logs import assert_complains, image, key

NODE = image(Facts(), 1, 1, 1, 2, 2)
VOTERS = [ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)]

CASES: list[tuple[Callable[..., Complaint], tuple[Any, ...], tuple[Any, ...]]] = [
    # function, arguments of a good case, arguments of a bad one
    (voter_inv.i16_core_knows_its_voters, (NODE, VOTERS[::-1], VOTERS), (NODE, VOTERS[:2], VOTERS)),
    (voter_inv.m5_removed_leader_resigns, (NODE, 5, 5), (NODE, 6, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "good", "bad"), CASES, ids=[case[0].__name__ for case in CASES])
def test_an_invariant_complains_where_it_should_and_nowhere_else(
    function: Callable[..., Complaint], good: tuple[Any, ...], bad: tuple[Any, ...]
) -> None:
    assert_complains(function, good, bad)


def test_an_upgrade_that_the_operator_was_told_of_stands_in_the_committed_log() -> None:
    own = Facts()
    (first,) = image(own, 1, 1).chain.entries
    own.commit(first)
    assert voter_inv.v6_an_upgrade_that_is_done_is_committed(own) is not None
    first.voters = (key(1), ReplicaKey(2))
    assert voter_inv.v6_an_upgrade_that_is_done_is_committed(own) is not None
    first.voters = (key(1), key(2))
    assert voter_inv.v6_an_upgrade_that_is_done_is_committed(own) is None


def test_voter_sets_change_by_one_and_only_when_the_epoch_has_committed() -> None:
    own = Facts()
    node = image(own, 1, 1, 1, 1)
    first, second, third = node.chain.entries
    first.voters = second.voters = (key(1), key(2), key(3))
    third.voters = (key(1), key(2))
    assert voter_inv.i16_voter_sets_differ_by_one(third) is None
    assert voter_inv.i16_change_only_in_a_committed_epoch(own, third, 0) is not None
    own.commit(second)
    assert voter_inv.i16_change_only_in_a_committed_epoch(own, third, 0) is None
    third.voters = (key(1), key(4))
    assert voter_inv.i16_voter_sets_differ_by_one(third) is not None


def test_the_first_voter_set_in_a_log_names_those_who_voted_before() -> None:
    first, second = image(Facts(), 1, 1, 1).chain.entries
    static = [ReplicaKey(1), ReplicaKey(2)]
    assert voter_inv.i16_first_set_names_the_voters(second, static) is None
    second.voters = (key(2), key(1))
    assert voter_inv.i16_first_set_names_the_voters(second, static) is None
    second.voters = (key(1),)
    assert voter_inv.i16_first_set_names_the_voters(second, static) is not None
    first.voters = (key(1), key(3))
    assert voter_inv.i16_first_set_names_the_voters(second, static) is None


def test_a_change_that_the_operator_was_told_of_stands_in_the_committed_log() -> None:
    own = Facts()
    node = image(own, 1, 1, 1)
    first, second = node.chain.entries
    first.voters, second.voters = (key(1), key(2)), (key(1),)
    own.commit(first)
    assert voter_inv.v6_a_change_that_is_done_is_committed(own, "add", key(2)) is None
    assert voter_inv.v6_a_change_that_is_done_is_committed(own, "remove", key(2)) is not None
    own.commit(second)
    assert voter_inv.v6_a_change_that_is_done_is_committed(own, "remove", key(2)) is None
