"""The phase that a run of the core fuzzer is in: whether it is calm, and between whom nothing arrives for now."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kraftlib.types import ReplicaId

Link = tuple[ReplicaId, ReplicaId]


@attrs.define
class Phase:
    """A number of steps."""

    steps: int = 0
    """The number that is left."""
    is_calm: bool = False
    """Whether each of them brings the quorum on."""
    is_still: bool = False
    """Whether nothing new is appended in a calm phase: time goes by."""
    cut: frozenset[Link] = frozenset()
    """Between whom nothing arrives for now, one way or both."""
    refuses: bool = False
    """Whether a request over a cut link is refused at once."""
    answers_pass: bool = False
    """Whether answers go over a cut link: only new connections are kept out."""
    then: Callable[[], None] | None = None
    """The deed that follows when this phase is over."""

    def begin(
        self,
        steps: int,
        *,
        is_calm: bool = True,
        is_still: bool = False,
        refuses: bool = False,
        answers_pass: bool = False,
    ) -> None:
        """Begin another phase, with the links that are cut by now."""
        self.steps, self.is_calm, self.is_still = steps, is_calm, is_still
        self.refuses, self.answers_pass = refuses, answers_pass
