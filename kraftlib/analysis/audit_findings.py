"""The findings of an audit, and fewer of them that say the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

FINDINGS_MAX: Final = 1_000
"""Findings of one kind and replica; the last one then stands for all that follow."""

IN_A_ROW: Final[Mapping[str, str]] = {
    "crc": "their CRCs do not fit",
    "differs": "other replicas have other ones there",
    "undecided": "replicas differ, and nothing tells which are right",
    "chain": "they break a rule of the chain, and no other replica has them as they should be",
    "offset": "their base offsets are wrong",
}
"""Verdicts that a finding gives for several batches at once."""


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that is wrong with one replica, over a range of offsets [start_offset, end_offset)."""

    cluster: str | None
    topic: str | None
    partition: int | None
    replica: str
    kind: str
    """`crc`, `unreadable`, `missing`, `offset`, `differs`, `chain`, `sequence`, `empty`, `snapshot`; `undecided`, where
    replicas differ and nothing tells which of them is right."""
    start_offset: int | None
    end_offset: int | None
    segment: str | None
    position: int | None
    """Of the first batch of the range."""
    what: str
    batches: int = 1
    """Number of batches of the replica in the range; 0 if the replica lacks them."""


def condensed(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of one replica: one for neighbouring batches, and at most `FINDINGS_MAX` of a kind."""
    return _capped(_merged(findings))


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with those in one that are of one kind and follow each other without a gap."""
    out: list[Finding] = []
    for finding in sorted(findings, key=lambda f: (f.kind, f.start_offset is None, f.start_offset or 0)):
        before = out[-1] if out else None
        if (
            before is not None
            and before.kind == finding.kind
            and before.batches
            and finding.batches
            and before.end_offset is not None
            and before.end_offset == finding.start_offset
        ):
            batches = before.batches + finding.batches
            out[-1] = attrs.evolve(before, end_offset=finding.end_offset, batches=batches)
        else:
            out.append(finding)
    return [
        attrs.evolve(finding, what=f"{finding.batches} batches in a row: {IN_A_ROW[finding.kind]}")
        if finding.batches > 1 and finding.kind in IN_A_ROW
        else finding
        for finding in out
    ]


def _capped(findings: Sequence[Finding]) -> list[Finding]:
    """Return at most `FINDINGS_MAX` of each kind; the last one says how many it stands for."""
    by_kind: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_kind[finding.kind].append(finding)
    out: list[Finding] = []
    for members in by_kind.values():
        kept, rest = members[: FINDINGS_MAX - 1], members[FINDINGS_MAX - 1 :]
        out += kept
        if len(rest) > 1:
            ends = [finding.end_offset for finding in rest if finding.end_offset is not None]
            what = f"{len(rest)} more findings of this kind, the first: {rest[0].what}"
            rest = [
                attrs.evolve(
                    rest[0], end_offset=max(ends, default=None), what=what, batches=sum(f.batches for f in rest)
                )
            ]
        out += rest
    return out
