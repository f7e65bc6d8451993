"""The figures as tables: a row for each contender, and ours as a multiple of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

UNITS: Final = {
    "per_s": "a second",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_us_each": "CPU µs each",
    "seconds": "seconds",
    "cpu_s": "CPU s",
    "resident_mib": "resident MiB",
    "live_mib": "live MiB",
    "cores": "processors",
    "idle_p50_ms": "idle p50 ms",
    "idle_p99_ms": "idle p99 ms",
    "busy_p50_ms": "busy p50 ms",
    "busy_p99_ms": "busy p99 ms",
    "p99_ratio": "busy / idle p99",
    "min_ms": "least ms",
    "max_ms": "most ms",
}


def lines(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the lines of all tables."""
    for scene, rows in found.items():
        if not rows:  # there was no time for it
            continue
        names = list(next(iter(rows.values())))
        yield scene
        yield f"  {'':<22}" + "".join(f"{UNITS.get(name, name):>16}" for name in names)
        for who, row in rows.items():
            yield f"  {who:<22}" + "".join(f"{_number(row[name]):>16}" for name in names)
        first, *others = rows
        for other in others:
            ratios = (_ratio(rows[first][name], rows[other][name]) for name in names)
            yield f"  {'ours is … times that':<22}" + "".join(f"{ratio:>16}" for ratio in ratios)
        yield ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else "-"
