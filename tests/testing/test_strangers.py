"""Messages of another cluster change nothing, and it is seen if they do."""

from __future__ import annotations

import random

import pytest

from kraftlib.testing import strangers
from kraftlib.wire.apis import ErrorCode
from tests.testing.worlds import world


def test_a_stranger_changes_nothing() -> None:
    with world() as made:
        for seed in range(40):
            for node in made.nodes.values():
                assert node.process is not None
                strangers.call(made, node.process, random.Random(seed))
        made.run_for(100)

        assert made.violation is None
        assert made.checker.elections == 1


def test_a_core_that_listens_to_strangers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as made:
        made.run_for(5)
        monkeypatch.setattr("kraftlib.consensus.election.cluster_error", lambda *_: ErrorCode.NONE)
        follower = next(node for node in made.nodes.values() if node.leads is None)
        for seed in range(40):
            assert follower.process is not None
            strangers.call(made, follower.process, random.Random(seed))
            made.timeline.run(made.timeline.now_us + 1_000, lambda: made.violation is not None)

        assert made.violation is not None
        assert made.violation.invariant in ("I1", "I17")
