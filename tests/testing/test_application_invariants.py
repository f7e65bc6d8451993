"""Each invariant of what applications are told keeps silent where all is well, and complains where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.testing import application_invariants as app_inv
from kraftlib.testing.facts import Facts
from kraftlib.testing.violation import Complaint
from tests.testing.logs import assert_complains, image

facts = Facts()
NODE = image(facts, 1, 1, 1, 2, 2)
facts.commit(NODE.chain.entries[2])

CASES: list[tuple[Callable[..., Complaint], tuple[Any, ...], tuple[Any, ...]]] = [
    # function, arguments of a good case, arguments of a bad one
    (app_inv.i15_listener_that_is_gone_hears_nothing, (NODE, False), (NODE, True)),
    (app_inv.hold_is_kept_for_the_next_life, (NODE, "a", ["a", "b"]), (NODE, "a", ["b"])),
    (app_inv.hold_that_is_given_holds, (NODE, "a", False), (NODE, "a", True)),
    (app_inv.i15_listener_in_order, (NODE, 3, 3), (NODE, 3, 4)),
    (app_inv.i15_listener_hears_committed_only, (facts, NODE, 2, 2), (facts, NODE, 3, 2)),
    (app_inv.i15_listener_hears_committed_only, (facts, NODE, 1, 1), (facts, NODE, 2, 3)),
    (app_inv.i15_listener_never_goes_back, (NODE, 3, 3), (NODE, 3, 2)),
    (app_inv.i15_leader_has_caught_up, (NODE, 1, 4, 3), (NODE, 1, 3, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "good", "bad"), CASES, ids=[case[0].__name__ for case in CASES])
def test_an_invariant_complains_where_it_should_and_nowhere_else(
    function: Callable[..., Complaint], good: tuple[Any, ...], bad: tuple[Any, ...]
) -> None:
    assert_complains(function, good, bad)
