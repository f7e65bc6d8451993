"""Draws the pictures of the documentation: `python -m tools.pictures` writes docs/explanation/pictures/*.svg.

Three pictures: the layers, the way of a record, the roles. Each is a table below and one function that turns it into
SVG. The documentation is built without the network and without a browser, so it takes finished pictures. A test says
that the files are up to date, that the layers are those of the import rule, and that the arrows are in NEXT_ROLES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

PLACE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "pictures"

LAYERS: Final[Sequence[tuple[str, Sequence[tuple[str, str]]]]] = (
    ("7", (("cli", "commands"),)),
    ("6", (("spark", "the same on executors"),)),
    (
        "5",
        (
            ("testing", "simulator, contract kits"),
            ("archive", "keeps the whole history"),
            ("analysis", "logs as Arrow tables"),
            ("offline", "backup, verify, recover"),
        ),
    ),
    ("4", (("runtime", "does: executor, network, disk thread, snapshots, client"),)),
    ("3", (("consensus", "decides: (state, event, now) → actions"), ("storage", "keeps: log, votes, snapshots"))),
    ("2", (("wire", "Kafka's messages"), ("metadata", "Kafka's metadata records"))),
    ("1", (("codec", "bounded bytes"), ("records", "batches, control records"))),
    ("0", (("errors", ""), ("types", ""), ("config", ""))),
)
"""Number of each layer, and its packages with what they are."""

PARTS: Final = ("application", "appends", "leader's core", "leader's log", "follower", "state machine")
WAY: Final[Sequence[tuple[str, str, str]]] = (
    ("application", "appends", "append(values)"),
    ("appends", "leader's core", "RecordsSubmitted: one batch, encoded once"),
    ("leader's core", "leader's log", "AppendToLog"),
    ("leader's core", "follower", "SendRecords: the waiting Fetch is answered"),
    ("leader's core", "leader's log", "FlushLog"),
    ("follower", "follower", "check, append, flush"),
    ("follower", "leader's core", "the next Fetch: flushed up to here"),
    ("leader's log", "leader's core", "Flushed"),
    ("leader's core", "state machine", "AdvanceHighWatermark: apply"),
    ("state machine", "application", "the result"),
)
"""The way of a record: from, to, what is said. The names with capitals are events and actions of the core."""

ROLES: Final[Mapping[str, tuple[int, int]]] = {
    "Unattached": (120, 60),
    "Follower": (120, 260),
    "Prospective": (370, 112),
    "Candidate": (620, 60),
    "Leader": (620, 260),
    "Resigned": (380, 340),
}
ARROWS: Final[Sequence[tuple[str, str]]] = (
    ("Unattached", "Prospective"),
    ("Unattached", "Follower"),
    ("Prospective", "Unattached"),
    ("Prospective", "Candidate"),
    ("Prospective", "Follower"),
    ("Candidate", "Unattached"),
    ("Candidate", "Prospective"),
    ("Candidate", "Follower"),
    ("Candidate", "Leader"),
    ("Leader", "Unattached"),
    ("Leader", "Follower"),
    ("Leader", "Resigned"),
    ("Follower", "Unattached"),
    ("Follower", "Prospective"),
    ("Resigned", "Unattached"),
    ("Resigned", "Prospective"),
    ("Resigned", "Follower"),
)
"""The roles that may follow each role, without the role itself."""

HEAD: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    'font-family="sans-serif" font-size="14">\n<title>{title}</title>\n'
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#333"/></marker></defs>\n'
    '<rect width="100%" height="100%" rx="8" fill="#fff"/>\n'
)


def box(x: int, y: int, width: int, height: int, lines: Sequence[str], fill: str = "#e8f0fe") -> str:
    """Return a box with one or two centred lines of text, the first of them bold."""
    out = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="#46689c"/>\n'
    for number, line in enumerate(line for line in lines if line):
        weight = ' font-weight="bold"' if number == 0 else ' font-size="12"'
        down = y + height // 2 + 5 + (18 * number if len(lines) > 1 and lines[1] else 0) - (9 if lines[-1] else 0)
        out += f'<text x="{x + width // 2}" y="{down}" text-anchor="middle" fill="#222"{weight}>{escape(line)}</text>\n'
    return out


def layers() -> str:
    """Draw the layers, the highest at the top."""
    width, row = 760, 62
    out = HEAD.format(width=width, height=row * len(LAYERS) + 44, title="The layers of kraftlib")
    for number, (layer, packages) in enumerate(LAYERS):
        y = 10 + row * number
        out += f'<text x="18" y="{y + 30}" fill="#222" font-weight="bold">{layer}</text>\n'
        each = (width - 60) // len(packages)
        for place, (name, text) in enumerate(packages):
            fill = "#fde9c9" if name == "consensus" else "#e8f0fe"
            out += box(44 + each * place, y, each - 8, row - 12, [name, text], fill)
    below = 10 + row * len(LAYERS) + 16
    return (
        out + f'<text x="44" y="{below}" fill="#222">An import goes down, or stays in its own package.</text>\n</svg>\n'
    )


def way() -> str:
    """Draw the way of a record as a sequence of messages, the first at the top."""
    column, row, top = 150, 44, 70
    width, height = column * len(PARTS) + 20, top + row * len(WAY) + 20
    out = HEAD.format(width=width, height=height, title="The way of a record")
    centre = {name: 85 + column * number for number, name in enumerate(PARTS)}
    for name, x in centre.items():
        out += f'<line x1="{x}" y1="46" x2="{x}" y2="{height - 10}" stroke="#aaa" stroke-dasharray="4 4"/>\n'
        out += box(x - 66, 10, 132, 36, [name, ""])
    for number, (source, target, text) in enumerate(WAY):
        y, start, end = top + row * number + 20, centre[source], centre[target]
        if source == target:
            out += f'<path d="M{start} {y - 8}h26v16h-22" fill="none" stroke="#333" marker-end="url(#tip)"/>\n'
            middle, anchor = start + 32, "start"
        else:
            out += f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="#333" marker-end="url(#tip)"/>\n'
            middle, anchor = (start + end) // 2, "middle"
        words = escape(f"{number + 1}. {text}")
        down = y - 12 if source == target else y - 6
        out += (
            f'<text x="{middle}" y="{down}" text-anchor="{anchor}" fill="#222" font-size="12" stroke="#fff" '
            f'stroke-width="4" paint-order="stroke">{words}</text>\n'
        )
    return out + "</svg>\n"


def roles() -> str:
    """Draw the roles, and an arrow for each change; one line with two tips for a change both ways."""
    out = HEAD.format(width=740, height=410, title="The roles of a replica")
    for source, target in ARROWS:
        both = (target, source) in ARROWS
        if both and ARROWS.index((target, source)) < ARROWS.index((source, target)):
            continue
        (x1, y1), (x2, y2) = (edge(ROLES[source], ROLES[target]), edge(ROLES[target], ROLES[source]))
        tips = 'marker-end="url(#tip)"' + (' marker-start="url(#tip)"' if both else "")
        out += f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#333" {tips}/>\n'
    for name, (x, y) in ROLES.items():
        out += box(x - 60, y - 20, 120, 40, [name, ""], "#fde9c9" if name == "Leader" else "#e8f0fe")
    return out + "</svg>\n"


def edge(inner: tuple[int, int], outer: tuple[int, int]) -> tuple[int, int]:
    """Return where the line from the centre `inner` to `outer` leaves the box of `inner`."""
    across, down = outer[0] - inner[0], outer[1] - inner[1]
    shrink = min(62 / abs(across) if across else 1e9, 22 / abs(down) if down else 1e9)
    return round(inner[0] + across * shrink), round(inner[1] + down * shrink)


def pictures() -> dict[str, str]:
    """Return the text of each picture by the name of its file."""
    return {"layers.svg": layers(), "record.svg": way(), "roles.svg": roles()}


def main() -> None:
    """Write all pictures."""
    PLACE.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (PLACE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
