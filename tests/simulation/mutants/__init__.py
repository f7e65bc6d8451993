"""Bugs that somebody could have written, each as a small edit. The simulator must find every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.simulation.mutants import (
    copies,
    core,
    liveness,
    log,
    losses,
    messages,
    observers,
    rare,
    reads,
    runtime,
    snapshots,
    upstreams,
    voters,
    votes,
)
from tests.simulation.mutation import Mutant

MUTANTS: Final[Sequence[Mutant]] = (
    *votes.MUTANTS,
    *log.MUTANTS,
    *messages.MUTANTS,
    *liveness.MUTANTS,
    *runtime.MUTANTS,
    *voters.MUTANTS,
    *snapshots.MUTANTS,
    *reads.MUTANTS,
    *losses.MUTANTS,
    *core.MUTANTS,
    *copies.MUTANTS,
    *rare.MUTANTS,
    *observers.MUTANTS,
    *upstreams.MUTANTS,
)
