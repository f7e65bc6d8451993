"""Compares the batches of the replicas of one log, and finds what is wrong with each replica.

KRaft copies batches byte by byte, so at one base offset all replicas that have a batch have the same one. The batch
that most replicas have there is right. Between as many, soundness decides: a batch that fits into its chain before one
that does not, one that its own index confirms before one that the index contradicts, and a run without a break of the
chain at its ends before one with such a break. Where nothing decides, the finding says `undecided` of each.

The content and the sequence of a replica are judged separately. A batch that is right and breaks a rule of the chain
has a wrong neighbour (another finding explains it), or it stands in the wrong place: then the sequence is wrong.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from kraftlib.analysis.audit_findings import Finding, condensed
from kraftlib.analysis.audit_rows import Content, ReplicaRange, Row
from kraftlib.analysis.audit_stretches import STRETCH
from kraftlib.analysis.log_files import Log
from kraftlib.analysis.marks import IndexMarks

IndexOf = Callable[[str], IndexMarks | None]
"""Returns the index of a segment, given its path."""


class LogJudge:
    """Finds what is wrong with the replicas of one log. `rows` may leave out offsets at which all agree."""

    def __init__(self, log: Log, rows: Iterable[Row], ranges: Sequence[ReplicaRange], index_of: IndexOf) -> None:
        self._log = log
        self._ranges = ranges
        self._index_of = index_of
        self._rows: dict[str, list[Row]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: (row.segment, row.position)):
            self._rows[row.replica].append(row)
        self._votes = _Votes(self._rows)
        self._winners: dict[int, Content | None] = {}

    def findings(self) -> list[Finding]:
        """Return all findings, ranges instead of batches."""
        bases = sorted({row.base_offset for rows in self._rows.values() for row in rows if row.base_offset is not None})
        lacking: dict[str, dict[int, Content]] = defaultdict(dict)
        for base in bases:
            winner = self.winner(base)
            if winner is not None and winner[0] == base:
                for replica in self._expected(base):
                    if not self._votes.has(replica, base):
                        lacking[replica][base] = winner
        out = []
        for replica in sorted({*self._rows, *lacking}):
            out += _ReplicaReport(self, self._log, replica, self._rows[replica], lacking[replica]).findings()
        return out

    def winner(self, base: int) -> Content | None:
        """Return the batch that is right at `base`, None if nothing tells. It may be one that began before."""
        if base not in self._winners:
            self._winners[base] = self._elect(base)
        return self._winners[base]

    def is_contested(self, base: int) -> bool:
        """Whether replicas have different sound batches there."""
        return len(self._votes.candidates(base)) > 1

    def is_clean_elsewhere(self, row: Row) -> bool:
        """Whether the very same batch breaks no rule in another place."""
        return any(other.problem is None for other in self._votes.candidates(row.base_offset or 0)[row.content])

    def _elect(self, base: int) -> Content | None:
        candidates = self._votes.candidates(base)
        ranks = {
            content: (len({row.replica for row in rows}), any(row.problem is None for row in rows))
            for content, rows in candidates.items()
        }
        best = max(ranks.values(), default=None)
        if best is None:
            return None
        first = [content for content, rank in ranks.items() if rank == best]
        if len(first) > 1:
            first = [content for content in first if not any(map(self._index_contradicts, candidates[content]))]
        if len(first) > 1:
            first = [content for content in first if not any(row in self._misfits for row in candidates[content])]
        votes, is_clean = best
        # A batch that few have, and that fits nowhere, is more likely out of place.
        return first[0] if len(first) == 1 and (is_clean or 2 * votes > len(self._expected(base)) > 0) else None

    def _expected(self, base: int) -> set[str]:
        """Return the replicas that should have this offset."""
        return {found.replica for found in self._ranges if found.start <= base < found.end}

    @cached_property
    def _misfits(self) -> set[Row]:
        """The contested batches in runs that a break of the chain begins or ends: a moved run has no other one."""
        found: set[Row] = set()
        for rows in self._rows.values():
            pairs = [pair for pair in pairwise(rows) if pair[0].leads_to(pair[1])]
            for beside, row in [*pairs, *((row, before) for before, row in reversed(pairs))]:
                breaks = beside in found or (beside.is_sound and beside.problem is not None)
                if breaks and row.is_clean and self.is_contested(row.base_offset or 0):
                    found.add(row)
        return found

    def _index_contradicts(self, row: Row) -> bool:
        index = self._index_of(row.segment) if row.batches == 1 else None
        return index is not None and index.contradicts(row.position, row.last_offset or 0)


class _Votes:
    """Which batches the replicas have at an offset, be it their first one or not."""

    def __init__(self, rows: Mapping[str, Sequence[Row]]) -> None:
        self._sound_at: dict[int, dict[Content, list[Row]]] = defaultdict(lambda: defaultdict(list))
        self._begins: dict[str, set[int]] = {}
        self._sound: dict[str, tuple[list[int], list[Row]]] = {}
        for replica, own in rows.items():
            batches = [row for row in own if row.length is not None]
            self._begins[replica] = {row.base_offset or 0 for row in batches}
            sound = sorted((row for row in batches if row.is_sound), key=lambda row: row.base_offset or 0)
            self._sound[replica] = [row.base_offset or 0 for row in sound], sound
            for row in sound:
                self._sound_at[row.base_offset or 0][row.content].append(row)

    def has(self, replica: str, base: int) -> bool:
        """Whether a replica has a batch, sound or not, that begins there, or a sound one that holds this offset."""
        return base in self._begins.get(replica, ()) or self._holding(replica, base) is not None

    def candidates(self, base: int) -> dict[Content, list[Row]]:
        """Return the sound batches that begin at `base`, or hold it in a replica where none begins there."""
        found = defaultdict(list, {content: list(rows) for content, rows in self._sound_at[base].items()})
        for replica, begins in self._begins.items():
            holding = None if base in begins else self._holding(replica, base)
            if holding is not None:
                found[holding.content].append(holding)
        return found

    def _holding(self, replica: str, base: int) -> Row | None:
        bases, rows = self._sound.get(replica, ([], []))
        place = bisect.bisect_right(bases, base) - 1
        return rows[place] if place >= 0 and (rows[place].last_offset or 0) >= base else None


class _ReplicaReport:
    """Finds what is wrong with one replica: first what it has, then what it lacks and nothing explains."""

    def __init__(
        self, judge: LogJudge, log: Log, replica: str, rows: Sequence[Row], lacking: dict[int, Content]
    ) -> None:
        self._judge = judge
        self._log = log
        self._replica = replica
        self._rows = rows
        self._lacking = lacking
        self._bases = sorted(lacking)
        self._moved = {right[3:]: base for base, right in lacking.items()}
        self._missing_ends = {self._end_of(right) for right in lacking.values()}
        self._missing_starts = frozenset(lacking)
        self._out: list[Finding] = []

    def findings(self) -> list[Finding]:
        run: list[Row] = []
        before: Row | None = None
        for number, row in enumerate(self._rows):
            following = self._rows[number + 1] if number + 1 < len(self._rows) else None
            is_displaced = self._is_displaced(row)
            if run and (before is None or not before.leads_to(row)):
                self._conclude(run)
                run = []
            if is_displaced or self._report_content(row, following):
                run.append(row)
            else:
                self._conclude(run)
                run = []
            before = row
        self._conclude(run)
        self._report_missing()
        return condensed(self._out)

    def _is_displaced(self, row: Row) -> bool:
        """Whether a batch is right and breaks a rule here, which it breaks nowhere else."""
        if not row.is_sound or row.problem is None or self._judge.winner(row.base_offset or 0) != row.content:
            return False
        return self._judge.is_clean_elsewhere(row)

    def _report_content(self, row: Row, following: Row | None) -> bool:
        """Report a batch that is not what it must be; return whether it was reported."""
        base = row.base_offset
        if row.length is None:
            self._report("unreadable", base, self._end_of_gap(row, following), row, row.problem or "", batches=0)
            return True
        if row.crc_ok is False:
            self._report("crc", base, row.end_offset, row, row.problem or "its CRC does not fit")
            return True
        winner = self._judge.winner(base or 0)
        if winner == row.content:
            if row.problem is not None:
                self._report("chain", base, row.end_offset, row, row.problem)
            return row.problem is not None
        moved = self._moved.get((row.length, row.crc))
        if moved in self._lacking:
            end = self._end_of(self._lacking.pop(moved))
            self._report("offset", moved, end, row, f"its base offset is {base}, it should be {moved}")
        elif winner is None and self._judge.is_contested(base or 0):
            self._report("undecided", base, row.end_offset, row, "replicas differ, and nothing tells which is right")
        elif winner is None:
            self._report("chain", base, row.end_offset, row, row.problem or "no other replica has it")
        else:
            self._report("differs", base, row.end_offset, row, _difference(row, winner) or row.problem or "")
        return True

    def _end_of_gap(self, row: Row, following: Row | None) -> int | None:
        """Return where the offsets that cannot be read end, and take them out of those that are missing."""
        if row.base_offset is None:
            return None
        end = row.base_offset
        limit = None if following is None else following.base_offset
        for base in self._bases[bisect.bisect_left(self._bases, row.base_offset) :]:
            # Beyond a stretch there may be batches of which nothing was told, since all replicas have them.
            is_next = base <= end or base // STRETCH == (end - 1) // STRETCH
            if not is_next or (limit is not None and base >= limit):
                break
            right = self._lacking.pop(base, None)
            end = end if right is None else self._end_of(right)
        return end if limit is None else min(end, max(limit, row.base_offset))

    def _conclude(self, run: Sequence[Row]) -> None:
        """Report neighbours that each are right, if nothing around them explains the rule that they break."""
        displaced = [row for row in run if self._is_displaced(row)]
        if not displaced or len(displaced) < len(run):
            return
        starts = [row.base_offset or 0 for row in displaced]
        ends = [row.end_offset or 0 for row in displaced]
        if self._missing_ends.intersection(starts) or self._missing_starts.intersection(ends):
            return
        what = f"the log goes on in another order than in other replicas: {displaced[0].problem}"
        self._report("sequence", min(starts), max(ends), displaced[0], what, batches=len(displaced))

    def _report_missing(self) -> None:
        run: list[int] = []
        for base in sorted(self._lacking):
            if run and self._end_of(self._lacking[run[-1]]) != base:
                self._report_missing_run(run)
                run = []
            run.append(base)
        if run:
            self._report_missing_run(run)

    def _report_missing_run(self, run: Sequence[int]) -> None:
        end = self._end_of(self._lacking[run[-1]])
        what = f"the offsets from {run[0]} up to {end} are missing, and other replicas have them"
        self._report("missing", run[0], end, None, what, batches=0)

    def _end_of(self, content: Content) -> int:
        base, last = content[:2]
        return (base if last is None else last) + 1

    def _report(
        self, kind: str, start: int | None, end: int | None, row: Row | None, what: str, *, batches: int | None = None
    ) -> None:
        cluster, topic, partition = self._log
        self._out.append(
            Finding(
                cluster=cluster,
                topic=topic,
                partition=partition,
                replica=self._replica,
                kind=kind,
                start_offset=start,
                end_offset=end,
                segment=row.segment if row else None,
                position=row.position if row else None,
                what=what,
                batches=batches if batches is not None else row.batches if row else 0,
            )
        )


def _difference(row: Row, right: Content) -> str:
    names = ("base offset", "last offset", "epoch", "length", "CRC")
    pairs = zip(names, row.content, right, strict=True)
    return ", ".join(f"{name} {ours}, it should be {theirs}" for name, ours, theirs in pairs if ours != theirs)
