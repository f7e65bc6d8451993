"""The background of a simulated replica."""

from __future__ import annotations

from typing import Any

from kraftlib.testing.keeping import SLOWEST_US, Background
from kraftlib.testing.process import Ending
from tests.testing.worlds import world


def test_the_background_does_things_at_once_and_says_so_later() -> None:
    with world(voters=1) as made:
        process = made.nodes[1].process
        assert process is not None
        background = Background(process, made.timeline.after)
        heard: list[tuple[Any, BaseException | None]] = []
        background.run(lambda: 7, lambda result, error: heard.append((result, error)))
        background.run(lambda: 1 // 0, lambda result, error: heard.append((result, error)))
        assert heard == []
        made.run_for(2 * SLOWEST_US // 1_000)

        assert (7, None) in heard
        assert any(isinstance(error, ZeroDivisionError) for _, error in heard)


def test_a_process_that_has_ended_hears_nothing_more() -> None:
    with world(voters=1) as made:
        node = made.nodes[1]
        assert node.process is not None
        heard: list[Any] = []
        Background(node.process, made.timeline.after).run(lambda: 7, lambda result, _: heard.append(result))
        node.end(Ending.KILLED)
        made.run_for(1_000)

        assert heard == []
