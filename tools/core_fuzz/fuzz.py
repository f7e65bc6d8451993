"""One run of the core fuzzer from a seed."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable
from pathlib import Path

from kraftlib.testing.judge import BrokenRuleError
from kraftlib.testing.simulation import Report, replay_command
from kraftlib.testing.violation import InvariantViolation
from tools.core_fuzz.healing import get_well
from tools.core_fuzz.promises import BrokenPromiseError
from tools.core_fuzz.themes import THEMES
from tools.core_fuzz.world import CoreWorld
from tools.simulate.program import PROGRAM


def fuzz(seed: int, theme: str = "core", *, trace: Callable[[str], None] | None = None) -> Report:
    """Run a seed, and tell `trace` every step. Raises: InvariantViolation."""
    chosen, now_ms = THEMES[theme], 0
    try:
        world = CoreWorld(seed, chosen, trace=trace)  # all replicas start, which may break a promise as well
        try:
            for _ in range(chosen.length):
                world.step()
            after_ms = get_well(world)
        finally:
            now_ms = world.now_ms
    except BrokenPromiseError as broken:
        raise _violation(seed, theme, now_ms, broken.invariant, broken.what) from broken
    except BrokenRuleError as broken:
        raise _violation(seed, theme, now_ms, broken.rule, broken.what) from broken
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        raise _violation(seed, theme, now_ms, "I22", what) from error
    return _report(world, seed, after_ms)


def _violation(seed: int, theme: str, now_ms: int, invariant: str, what: str) -> InvariantViolation:
    replay = replay_command(seed, theme, program=PROGRAM)
    return InvariantViolation(invariant, what, seed=seed, time_ms=now_ms, replay=replay, profile=theme)


def _report(world: CoreWorld, seed: int, after_ms: int) -> Report:
    text = repr((world.now_ms, world.events, sorted(world.promises.committed.items()), sorted(world.counts.items())))
    return Report(
        seed=seed,
        profile=world.theme.name,
        voters=len(world.first_voters),
        observers=len(world.hosts) - len(world.first_voters),
        simulated_ms=world.now_ms,
        events=world.events,
        elections=world.promises.elections,
        appends=world.appends,
        acknowledged=world.promises.commits,
        committed=world.promises.committed_end,
        faults=dict(world.counts),
        messages_lost=world.counts["message lost"],
        leader_after_ms=after_ms,
        trace_hash=hashlib.sha256(text.encode()).hexdigest()[:16],
        pairs=world.coverage.named(),
    )
