"""Seeds of all profiles, with the rules as judges: those of the whole simulator, and those of the core alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import attrs

from kraftlib.testing import campaign
from kraftlib.testing.campaign import Finding, collecting_rarely, quiet, spread
from kraftlib.testing.simulation import Report
from kraftlib.testing.violation import InvariantViolation
from tools.core_fuzz.coverage import Coverage
from tools.core_fuzz.fuzz import fuzz
from tools.core_fuzz.themes import THEMES
from tools.simulate.program import counting


def run_seed(seed: int, *, profile: str, trouble_ms: int | None = None, subject: str | None = None) -> Report | Finding:
    """Run one seed of a profile or of a theme; a broken promise comes back as a value.

    Raises: ConfigError for a profile that does not exist.
    """
    if profile in THEMES:
        return fuzz_seed(seed, theme=profile)
    coverage = Coverage()
    program = counting(coverage)
    result = campaign.run_seed(seed, profile=profile, trouble_ms=trouble_ms, subject=subject, program=program)
    return result if isinstance(result, Finding) else attrs.evolve(result, pairs=coverage.named())


def fuzz_seed(seed: int, *, theme: str) -> Report | Finding:
    """Run one seed of the core fuzzer; a broken promise comes back as a value."""
    with quiet(), collecting_rarely():
        try:
            return fuzz(seed, theme)
        except InvariantViolation as violation:
            return Finding.of(violation, seed, theme)


def run_seeds(
    seeds: Iterable[int], *, profile: str, jobs: int = 1, trouble_ms: int | None = None
) -> Iterator[Report | Finding]:
    """Run many seeds, `jobs` at a time, and yield each result as it comes."""
    return spread(partial(run_seed, profile=profile, trouble_ms=trouble_ms), seeds, jobs=jobs)
