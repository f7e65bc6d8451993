"""Every injected fault is found, and nothing is made up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraftlib.analysis.audit import Audit, Finding, audit
from kraftlib.errors import ConfigError
from kraftlib.records.batch import encode_batch
from kraftlib.types import OffsetAndEpoch
from tests.analysis.faults import KINDS, Fault, inject, make_replicas, some_batches
from tests.analysis.logs import write_log, write_snapshot
from tests.captured import DATA


def is_of(finding: Finding, fault: Fault) -> bool:
    """Whether a finding names the replica, and the offsets or the place of a fault."""
    if (finding.segment, finding.position) == (fault.segment, fault.position):
        return True
    start = finding.start_offset
    end = finding.end_offset or (start or 0) + 1
    return (
        fault.replica == finding.replica and start is not None and start < fault.end_offset and fault.start_offset < end
    )


def unmatched(found: Audit, faults: list[Fault]) -> tuple[list[Fault], list[object]]:
    """Return the faults that were not found, and the findings that are of no fault."""
    open_faults = list(faults)
    invented = []
    for finding in found.findings:
        own = [fault for fault in open_faults if is_of(finding, fault)]
        if own:
            open_faults.remove(own[0])
        else:
            invented.append(finding)
    return open_faults, invented


def test_replicas_that_agree_have_no_findings_whatever_their_segments(tmp_path: Path) -> None:
    make_replicas(tmp_path, some_batches(60), cuts=(20, 40))
    found = audit(tmp_path)
    assert found.findings == ()
    assert [(r.replica, r.start, r.end, r.lag) for r in found.replicas] == [(str(n), 0, 480, 0) for n in (1, 2, 3)]
    assert found.batches == 60


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [0, 17, 49, 50, 59])
def test_one_fault_of_any_kind_is_one_finding(tmp_path: Path, kind: str, number: int) -> None:
    places = make_replicas(tmp_path, some_batches(60), cuts=(20, 40))
    for seed, place in enumerate(places):
        fault = inject(place, number, kind, chance=random.Random(seed))
        found = audit(tmp_path)
        assert unmatched(found, [fault]) == ([], []), found.findings
        write_log(place, some_batches(60), cuts=(20, 40)[:seed], index=True)


def test_200_faults_in_three_replicas_are_all_found_and_none_is_invented(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(1_300, records=2, size=2_500), cuts=(300, 900))
    chance = random.Random(11)
    # Far enough apart for the gap behind a lost way not to hide the next one.
    numbers = sorted(chance.sample(range(0, 1_300, 4), 200), reverse=True)
    faults = [inject(chance.choice(places), number, chance.choice(KINDS), chance=chance) for number in numbers]
    assert unmatched(audit(tmp_path), faults) == ([], [])


def test_lag_and_compaction_are_no_findings(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60), cuts=(20, 40))
    last = sorted(places[0].glob("*.log"))[-1]
    data = last.read_bytes()
    from kraftlib.analysis.headers import walk

    last.write_bytes(data[: int(walk(data).headers.start[-5])])
    sorted(places[2].glob("*.log"))[0].unlink()
    found = audit(tmp_path)
    assert found.findings == ()
    assert [(r.replica, r.start, r.lag) for r in found.replicas] == [("1", 0, 40), ("2", 0, 0), ("3", 160, 0)]


def test_a_missing_segment_is_one_finding(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60), cuts=(20, 40))
    sorted(places[2].glob("*.log"))[1].unlink()
    (finding,) = audit(tmp_path).findings
    assert (finding.replica, finding.kind, finding.start_offset, finding.end_offset) == ("3", "unreadable", 160, 320)


def test_of_two_replicas_that_differ_neither_is_believed(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2)
    inject(places[1], 7, "replaced", chance=random.Random(1))
    assert [(f.replica, f.kind, f.start_offset) for f in audit(tmp_path).findings] == [
        ("1", "undecided", 56),
        ("2", "undecided", 56),
    ]


def test_a_rule_that_all_replicas_break_is_reported_of_all(tmp_path: Path) -> None:
    batches = some_batches(10)
    batches[4] = encode_batch([b"v"] * 8, timestamp_ms=1, base_offset=32, epoch=1)
    make_replicas(tmp_path, batches, replicas=2)
    found = audit(tmp_path).findings
    assert {(f.replica, f.kind) for f in found} == {("1", "chain"), ("2", "chain")}
    assert {f.start_offset for f in found} == {24, 32}


def test_one_replica_alone_is_checked_for_itself(tmp_path: Path) -> None:
    (place,) = make_replicas(tmp_path, some_batches(60), replicas=1)
    assert audit(tmp_path).findings == ()
    inject(place, 7, "flip", chance=random.Random(1))
    assert [(f.kind, f.start_offset) for f in audit(tmp_path).findings] == [("crc", 56)]


def test_a_snapshot_that_is_not_whole_is_a_finding(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(6))
    write_snapshot(places[1], [b"a"], at=OffsetAndEpoch(offset=8, epoch=5))
    write_snapshot(places[1], [b"a"], at=OffsetAndEpoch(offset=16, epoch=5), footer=False)
    (finding,) = audit(tmp_path).findings
    assert (finding.kind, finding.replica, finding.end_offset) == ("snapshot", "2", 16)
    assert "no footer" in finding.what


def test_two_real_controllers_agree() -> None:
    found = audit(DATA / "kafka-4.3.1")
    assert found.findings == ()
    assert [(r.replica, r.start, r.end, r.lag) for r in found.replicas] == [("1", 0, 275, 0), ("4", 159, 274, 1)]


def test_logs_without_a_batch_cannot_be_audited(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(ConfigError, match="holds no batch"):
        audit(tmp_path)
