"""A run as a picture: one HTML file, without anything from elsewhere.

A lane per node, coloured by epoch, with its events; above them the strikes of the nemesis. The page draws itself, with
a little plain script, from the steps of the trace that are written into it: `TimelinePage` collects them while the run
goes on, also if it ends in a violation.
"""

from __future__ import annotations

import html
import json
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kraftlib.consensus.roles import Role
from kraftlib.testing.trace import Entry, Step
from kraftlib.testing.violation import InvariantViolation
from kraftlib.wire.apis import ApiKey

FREQUENT: Final = frozenset({Step.REQUEST, Step.RESPONSE, Step.APPENDED, Step.FLUSHED, Step.CLIENT, Step.LOST})
FREQUENT_MAX: Final = 100_000
"""The number of frequent steps that are kept, the latest, so that a browser can show the page."""

TEMPLATE: Final = Path(__file__).with_name("timeline_page.html")


class TimelinePage:
    """Collects the steps of one run. Give `add` to the run as its `on_entry`."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.left_out = 0
        """Number of frequent steps that were left out for lack of room."""
        self._rare: list[Entry] = []
        self._frequent: deque[Entry] = deque(maxlen=FREQUENT_MAX)

    def add(self, entry: Entry) -> None:
        """Take note of a step."""
        if entry.step in FREQUENT:
            self.left_out += len(self._frequent) == FREQUENT_MAX
            self._frequent.append(entry)
        else:
            self._rare.append(entry)

    def render(self, *, outcome: str, violation: InvariantViolation | None = None) -> str:
        """Return the page. `outcome` is what people read above the picture."""
        entries = sorted([*self._rare, *self._frequent], key=lambda entry: entry.time_us)
        data = {
            "steps": {int(step): step.name.lower() for step in Step},
            "roles": [str(role) for role in Role],
            "apis": {int(key): key.name for key in ApiKey},
            "nodes": sorted({entry.node for entry in entries if entry.step is Step.STARTED}),
            "entries": [row(entry) for entry in entries],
            "leftOut": self.left_out,
            "violation": None if violation is None else {"us": self._violated_us(violation), "what": violation.what},
        }
        # In a script element, only "</" could end the data too early.
        written = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        parts = {"TITLE": html.escape(self.title), "OUTCOME": html.escape(outcome), "DATA": written}
        return re.sub("@([A-Z]+)@", lambda found: parts[found[1]], TEMPLATE.read_text(encoding="utf-8"))

    def _violated_us(self, violation: InvariantViolation) -> int:
        latest = max((entries[-1].time_us for entries in (self._rare, self._frequent) if entries), default=0)
        return max(latest, violation.time_ms * 1_000)


def row(entry: Entry) -> Sequence[Any]:
    """Return a step as the page reads it: time, kind, node, a, b and, if there is one, the note."""
    fields = [entry.time_us, int(entry.step), entry.node, entry.a, entry.b]
    return [*fields, entry.note] if entry.note else fields
