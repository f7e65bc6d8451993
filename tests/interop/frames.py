"""Frames under Kafka's own eyes (`peer/Frames.java`): what it reads in them, and whether it would write them so."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from tests.interop.kafka import Release
from tests.interop.peer import compiled
from tests.interop.processes import PATIENCE_S
from tests.interop.wire import Pair


@attrs.frozen(kw_only=True)
class Seen:
    """One frame as Kafka reads it."""

    sender: int
    kind: str
    """`request` or `response`."""
    version: int
    name: str
    same: bool
    """Whether Kafka would have written the very same bytes."""
    header: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def place(self) -> tuple[str, str, int]:
        """What kind of frame it is: those of one place can be compared."""
        return self.name, self.kind, self.version


def seen_by_kafka(release: Release, pairs: Iterable[Pair]) -> list[Seen]:
    """Return each request and answer as Kafka reads it. Raises: AssertionError, if it cannot."""
    frames = [
        (sender, kind, pair, frame)
        for pair in pairs
        for sender, kind, frame in ((pair.asker, "request", pair.request), (pair.asked, "response", pair.response))
    ]
    lines = [f"{kind} {pair.api_key} {pair.version} {frame.hex()}\n" for _, kind, pair, frame in frames]
    done = subprocess.run(
        release.java("Frames", heap_mb=256, classes=compiled(release)),
        input="".join(lines), capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(frames), done.stderr[-2_000:]
    found = []
    for (sender, kind, pair, frame), answer in zip(frames, answers, strict=True):
        assert "error" not in answer, (
            f"Kafka cannot read {kind} {pair.api_key} v{pair.version}: {answer}, {frame.hex()}"
        )
        found.append(
            Seen(
                sender=sender, kind=kind, version=pair.version, name=answer["name"], same=answer["same"],
                header=answer["header"], body=answer["body"],
            )
        )  # fmt: skip
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every plain value in a message, with its path; the items of an array share theirs."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path, value


Habits = dict[tuple[str, str, int], dict[str, Counter[Any]]]


def habits(frames: Iterable[Seen]) -> Habits:
    """Return how often which value was sent in each field of each kind of frame."""
    found: Habits = {}
    for frame in frames:
        fields = found.setdefault(frame.place, {})
        for path, value in leaves(frame.body):
            fields.setdefault(path, Counter())[value] += 1
    return found


FEW: Final = 2
"""Of how many values at most a field is thought to be made of constants."""

OFTEN: Final = 50
"""How often an answer must have been given, if what it always says is to be a habit and no accident."""

OWN: Final = (
    "replicaId", "candidateId", "leaderId", "nodeEndpoints[].nodeId", "directoryId", "port", "errorCode",
)  # fmt: skip
"""Endings of fields that say who somebody is, or what has happened to go wrong: these differ."""

DELIBERATE: Final[Mapping[tuple[str, str], Collection[Any] | None]] = {
    ("Fetch", "maxBytes"): None,  # a setting in a later release
    ("Fetch", "maxWaitMs"): {0},  # others are only asked who leads, which needs no waiting (decision 0004)
}
"""Where our habits are others than Kafka's, and with which values; None: any."""


def by_accident(place: tuple[str, str, int], path: str, values: Iterable[Any]) -> set[Any]:
    """Return the values of a field that are not among those which we send on purpose."""
    return {*values}.difference(DELIBERATE.get((place[0], path)) or ())


def strange_habits(theirs: Habits, ours: Habits) -> list[str]:
    """Return what we send where Kafka always sends the same one or two things, and never that."""
    strange = []
    for place, fields in ours.items():
        known = theirs.get(place, {})
        for path, sent in fields.items():
            if path.lower().endswith(tuple(map(str.lower, OWN))):
                continue
            if DELIBERATE.get((place[0], path), ()) is None:
                continue
            values = by_accident(place, path, sent)
            if not values:
                continue
            if place[1] == "response" and known.get(path, Counter()).total() < OFTEN:
                continue  # it may have had other things to tell
            if path not in known:
                if known:
                    strange.append(f"{place} {path}: {sorted(map(repr, values))[:3]}, where Kafka sends nothing")
            elif len(known[path]) <= FEW and not values <= known[path].keys():
                strange.append(
                    f"{place} {path}: {sorted(map(repr, values))[:3]}, Kafka {sorted(map(repr, known[path]))}"
                )
    return strange
