"""A scenario, and the report of a run of one.

A scenario is a short story about one thing that can go wrong: it says which replicas there are, what happens at which
point of the protocol, and what must hold in the end. All invariants are on while it is told. It bears the id of its
row in `docs/contributing/scenarios.md`.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from tools.scenarios.story import Story

Tell = Callable[["Story"], None]
WorldFields = Mapping[str, Any]


class NotProvokedError(AssertionError):
    """The trouble that a scenario is about did not happen, so it has shown nothing."""


@attrs.frozen(kw_only=True)
class Scenario:
    """One story. `tell` tells it, on a world that is made for it."""

    id: str
    title: str
    """The fault."""
    expected: str
    """The required behaviour."""
    tell: Tell
    world: Callable[[chance.Random], WorldFields]
    """Returns what `World` is made with: voters, observers, kraft_version, config and so on; may draw."""


@attrs.frozen(kw_only=True)
class ScenarioReport:
    """One story as it went with one seed."""

    id: str
    seed: int
    provoked: dict[str, int]
    """The faults that happened, with their counts."""
    simulated_ms: int
    events: int
    elections: int
    committed: int
    acknowledged: int
    trace_hash: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return attrs.asdict(self)


class Chapter:
    """The scenarios of one module. Decorate their functions with it:

    @chapter("E4", "a leader restarts", expected="it never leads that epoch again", voters=3)
    def leader_restarts(story: Story) -> None: ...
    """

    def __init__(self) -> None:
        self.scenarios: list[Scenario] = []

    def __call__(
        self,
        scenario_id: str,
        title: str,
        *,
        expected: str,
        draw: Callable[[chance.Random], WorldFields] | None = None,
        **world: Any,
    ) -> Callable[[Tell], Tell]:
        """Take the decorated function for a story on a world of these fields; `draw` may draw some of them."""

        def fields(random: chance.Random) -> WorldFields:
            return {**world, **(draw(random) if draw is not None else {})}

        def register(tell: Tell) -> Tell:
            self.scenarios.append(Scenario(id=scenario_id, title=title, expected=expected, tell=tell, world=fields))
            return tell

        return register
