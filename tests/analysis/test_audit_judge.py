"""The judge of one log, given rows: long runs as one row change nothing that is found."""

from __future__ import annotations

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftlib.analysis.audit_findings import Finding
from kraftlib.analysis.audit_judge import LogJudge
from kraftlib.analysis.audit_rows import RUN_MIN, ReplicaRange, Row, collapsed

LOG = ("c", "t", 0)
COUNT = 5 * RUN_MIN
SIZE = 100


def replica(name: str) -> list[Row]:
    """A sound replica with `COUNT` batches of two records, in two segments."""
    return [
        Row(
            replica=name,
            segment=f"{name}/{number // 200}.log",
            position=number % 200 * SIZE,
            base_offset=2 * number,
            last_offset=2 * number + 1,
            epoch=1,
            length=SIZE,
            crc=number,
            crc_ok=True,
            problem=None,
        )
        for number in range(COUNT)
    ]


def judged(rows: list[Row]) -> list[Finding]:
    ranges = [ReplicaRange(log=LOG, replica=name, start=0, end=2 * COUNT) for name in "abc"]
    return LogJudge(LOG, rows, ranges, lambda segment: None).findings()


HARMS = st.sampled_from(["crc", "replaced", "foreign", "unreadable", "lost", "epoch"])


def harm(rows: list[Row], kind: str, first: int, count: int) -> list[Row]:
    """Do something to `count` batches of one replica from the one numbered `first` on."""
    hurt = rows[first : first + count]
    match kind:
        case "crc":
            hurt = [attrs.evolve(row, crc_ok=False, problem="has another CRC") for row in hurt]
        case "replaced":
            hurt = [attrs.evolve(row, crc=-1 - (row.crc or 0)) for row in hurt]
        case "foreign":
            hurt = [attrs.evolve(row, crc=-1 - (row.crc or 0), epoch=7) for row in hurt]
        case "unreadable" if hurt:
            hurt = [attrs.evolve(hurt[0], last_offset=None, epoch=None, length=None, crc=None, problem="is garbage")]
        case "lost":
            hurt = []
        case "epoch":
            hurt = [attrs.evolve(row, epoch=0, problem="epochs never fall") for row in hurt[:1]] + hurt[1:]
    return rows[:first] + hurt + rows[first + count :]


def test_replicas_that_agree_are_a_row_each_segment_and_nothing_is_found() -> None:
    rows = [row for name in "abc" for row in replica(name)]
    short = collapsed(rows)
    assert len(short) == 3
    assert {row.batches for row in short} == {COUNT}
    assert judged(rows) == judged(short) == []


@settings(deadline=None)
@example([("a", "crc", 0, 1), ("a", "lost", 1, RUN_MIN - 1)])
@example([("a", "replaced", 0, 1), ("a", "lost", 1, RUN_MIN)])
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), HARMS, st.integers(0, COUNT - 1), st.integers(1, 2 * RUN_MIN)), max_size=4
    )
)
def test_long_runs_as_one_row_change_nothing_that_is_found(harms: list[tuple[str, str, int, int]]) -> None:
    replicas = {name: replica(name) for name in "abc"}
    for name, kind, first, count in harms:
        replicas[name] = harm(replicas[name], kind, first, count)
    rows = [row for own in replicas.values() for row in own]
    short = collapsed(rows)
    assert sum(row.batches for row in short) == len(rows)
    # Where two harms meet, runs may begin elsewhere, so only what is said of whom and of which offsets is compared.
    assert covered(judged(short)) == covered(judged(rows))


def covered(findings: list[Finding]) -> set[tuple[str, str, int]]:
    return {
        (finding.replica, finding.kind, offset)
        for finding in findings
        for offset in range(finding.start_offset or 0, max(finding.end_offset or 0, (finding.start_offset or 0) + 1))
    }
