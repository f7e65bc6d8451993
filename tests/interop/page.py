"""The tables of the page "Compatibility", made of what a run has shown: `python -m tests.interop.page`.

It replaces what stands between the two marks in `docs/reference/compatibility.md` by the rows of `build/interop.json`,
which every run of `dev.py interop` leaves behind.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.results import RESULTS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "compatibility.md"
BEGIN, END = "<!-- made by tests.interop.page: begin -->", "<!-- made by tests.interop.page: end -->"

AREAS: Final = {
    "schemas": "Declarations",
    "files": "Files of ours under Kafka's tools",
    "kafkas_classes": "Small files and codecs under Kafka's classes",
    "directories": "One directory, two programs",
    "voters": "Voters of ours among Kafka's controllers",
    "peers": "Kafka's raft client and ours, each leading the other",
    "wire": "Frames of ours under Kafka's classes, and connections that are lost",
    "wire_changes": "Rare requests",
    "havoc": "Random harm under load",
    "membership": "Membership",
    "refusals": "Wrong questions have Kafka's answers",
    "tools": "Kafka's tools against a quorum that is wholly ours",
    "observer": "An observer of real Kafka",
    "archive": "An archive of real Kafka's metadata",
    "swap": "Swapping nodes under load",
    "controller": "A broker of Kafka on a controller of ours",
    "brokers": "Three brokers of Kafka on three controllers of ours",
    "broker_losses": "Brokers that are paused or wiped",
    "streams": "Kafka Streams on controllers of ours",
    "mixed_controllers": "Controllers of Kafka and of ours in one quorum",
    "replaced_controllers": "All controllers replaced under running brokers",
}


def tables(found: Mapping[str, Any]) -> str:
    """Return the tables of what was run last, as Markdown."""
    rows = found["rows"]
    releases = sorted({row["release"] for row in rows}, key=lambda text: [int(part) for part in text.split(".")])
    days = sorted({row["date"] for row in rows})
    head = (
        f"Run {' to '.join(days[:1] + days[1:][-1:])}, kraftlib {found['kraftlib']}, on {found['cpus']} processors, "
        f"{found['java']}: {sum(row['outcome'] == 'passed' for row in rows)} of {len(rows)} passed."
    )
    parts = [head]
    areas = [*AREAS, *sorted({row["area"] for row in rows} - set(AREAS))]
    for area in areas:
        of_area = [row for row in rows if row["area"] == area]
        if of_area:
            parts.append(f"### {AREAS.get(area, area.capitalize())}\n\n{_table(of_area, releases)}")
    return "\n\n".join(parts)


def _table(rows: Iterable[Mapping[str, Any]], releases: list[str]) -> str:
    tests: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        tests.setdefault(_text(row), {}).setdefault(row["release"], []).append(row)
    lines = [f"| what was tried | {' | '.join(releases)} |", "|---|" + "---|" * len(releases)]
    for text, by_release in tests.items():
        cells = (_cell(by_release.get(release, [])) for release in releases)
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _text(row: Mapping[str, Any]) -> str:
    return (row["text"] or row["test"]).replace("|", "\\|")


def _cell(rows: list[Mapping[str, Any]]) -> str:
    """Return one line for each way in which a test was run."""
    told = []
    for row in rows:
        figures = "; ".join(f"{name}: {value}" for name, value in row["figures"].items())
        case = f"{row['case']}: " if row["case"] and len(rows) > 1 else ""
        told.append(f"{case}{row['outcome']}" + (f" ({figures})" if figures else ""))
    return "<br>".join(told) or "not tried"


def main() -> int:
    """Write the page anew."""
    page = PAGE.read_text(encoding="utf-8")
    made = tables(json.loads(RESULTS.read_text()))
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not pattern.search(page):
        print(f"{PAGE} lacks the marks {BEGIN} and {END}", file=sys.stderr)
        return 1
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n\n{made}\n\n{END}", page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
