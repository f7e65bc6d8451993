"""The ledger of what was simulated: one row a campaign, with commit and seeds, and the sum of all of them.

The page is in the documentation; the rows are its only memory, so that nothing is counted that does not stand there.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.testing.campaign import Summary

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "contributing" / "simulated-hours.md"
BEGIN: Final = "| date | commit | profile | first seed | seeds | simulated hours | faults | violations |"


@attrs.frozen(kw_only=True)
class Row:
    """One campaign of one profile."""

    date: str
    commit: str
    profile: str
    first_seed: int
    seeds: int
    hours: float
    faults: int
    violations: int

    def __str__(self) -> str:
        return (
            f"| {self.date} | {self.commit} | {self.profile} | {self.first_seed} | {self.seeds} | {self.hours:.2f} | "
            f"{self.faults} | {self.violations} |"
        )

    @classmethod
    def read(cls, line: str) -> Row | None:
        """Read a row of the table; None if it is none."""
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 8 or not re.fullmatch(r"\d{4}-\d\d-\d\d", cells[0]):
            return None
        date, commit, profile, first_seed, seeds, hours, faults, violations = cells
        return cls(
            date=date, commit=commit, profile=profile, first_seed=int(first_seed), seeds=int(seeds),
            hours=float(hours), faults=int(faults), violations=int(violations),
        )  # fmt: skip


def row_of(summary: Summary, *, date: str, commit: str, profile: str, first_seed: int) -> Row:
    """Return the row of a campaign."""
    return Row(
        date=date, commit=commit, profile=profile, first_seed=first_seed, seeds=summary.seeds,
        hours=summary.simulated_ms / 3_600_000, faults=sum(summary.faults.values()), violations=len(summary.findings),
    )  # fmt: skip


def rows_in(text: str) -> list[Row]:
    """Return the rows of a page."""
    return [row for line in text.splitlines() if (row := Row.read(line)) is not None]


def totals(rows: Sequence[Row]) -> str:
    """Return the sum of all rows, as the page says it."""
    return (
        f"Together: {sum(row.seeds for row in rows):,} seeds, {sum(row.hours for row in rows):,.1f} simulated "
        f"cluster-hours, {sum(row.faults for row in rows):,} faults, {sum(row.violations for row in rows)} violations."
    )


def with_rows(text: str, more: Sequence[Row]) -> str:
    """Return a page with more rows, and its sum renewed."""
    lines = text.rstrip().splitlines()
    text = "\n".join([*lines, *map(str, more)]) + "\n"
    return re.sub(r"^Together: .*$", totals(rows_in(text)), text, flags=re.MULTILINE)


def add_to_page(rows: Sequence[Row], page: Path = PAGE) -> None:
    """Write rows into the page."""
    page.write_text(with_rows(page.read_text(encoding="utf-8"), rows), encoding="utf-8")


def commit_now() -> str:
    """Return the commit that is checked out, with a + if there are changes; `unknown` outside of a repository."""
    return _git("describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+") or "unknown"


def code_now() -> str:
    """Return a hash of what the commit has of kraftlib and of the judges; empty outside of a repository.

    A commit that changes tests or pages alone keeps it, and with it the seeds that were run.
    """
    trees = _git("rev-parse", "HEAD:kraftlib", "HEAD:tools")
    return hashlib.sha256(trees.encode()).hexdigest() if trees else ""


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
