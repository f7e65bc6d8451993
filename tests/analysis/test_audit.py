"""Every injected fault is found, and nothing is made up."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.analysis.audit import Audit, audit
from kraftlib.analysis.audit_findings import FINDINGS_MAX, Finding
from kraftlib.analysis.headers import walk
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


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_two_faults_far_apart_are_two_findings(tmp_path: Path, first: str, second: str) -> None:
    places = make_replicas(tmp_path, some_batches(60))
    faults = [inject(places[1], number, kind, chance=random.Random(3)) for number, kind in ((40, second), (17, first))]
    found = audit(tmp_path)
    assert unmatched(found, faults) == ([], [])
    assert {f.end_offset for f in found.findings if f.kind == "unreadable"} <= {fault.end_offset for fault in faults}


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
    assert {(f.start_offset, f.end_offset, f.batches) for f in found} == {(24, 40, 2)}


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


def swap(path: Path, number: int) -> None:
    """Let a batch of a segment and the next one change places."""
    data = path.read_bytes()
    starts = [*walk(data).headers.start.tolist(), len(data)]
    first, second, end = starts[number : number + 3]
    path.write_bytes(data[:first] + data[second:end] + data[first:second] + data[end:])


def repeat(path: Path, number: int) -> None:
    """Let a batch of a segment stand there twice."""
    data = path.read_bytes()
    starts = [*walk(data).headers.start.tolist(), len(data)]
    first, second = starts[number : number + 2]
    path.write_bytes(data[:second] + data[first:second] + data[second:])


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("harm", [swap, repeat])
@pytest.mark.parametrize("number", [0, 17, 57])
def test_batches_in_another_order_are_one_finding(
    tmp_path: Path, harm: Callable[[Path, int], None], replicas: int, number: int
) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=replicas)
    harm(next(places[-1].glob("*.log")), number)
    found = audit(tmp_path).findings
    assert {finding.replica for finding in found} == {str(replicas)}
    if replicas > 1:
        ((start, end),) = {(finding.start_offset, finding.end_offset) for finding in found}
        assert [finding.kind for finding in found] == ["sequence"]
        assert start <= 8 * number < end <= 8 * (number + 2)


def test_a_log_under_another_name_is_a_finding(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60))
    segment = next(places[1].glob("*.log"))
    for suffix in (".log", ".index"):
        segment.with_suffix(suffix).rename(places[1] / f"{80:020d}{suffix}")
    (finding,) = audit(tmp_path).findings
    assert (finding.replica, finding.kind) == ("2", "sequence")
    assert "has base offset 0, and 80 was to follow" in finding.what


@pytest.mark.parametrize("gone", ["emptied", "removed", "partition removed", "all but the node removed"])
def test_a_replica_without_a_batch_is_listed_and_a_finding(tmp_path: Path, gone: str) -> None:
    places = make_replicas(tmp_path, some_batches(60))
    node = places[1].parent
    segment = next(places[1].glob("*.log"))
    match gone:
        case "emptied":
            segment.write_bytes(b"")
        case "removed":
            segment.unlink()
        case _:
            shutil.rmtree(places[1])
            (node / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=2\n")
    if gone == "partition removed":
        places[1].mkdir()
    found = audit(tmp_path)
    assert [(r.replica, r.start, r.end, r.lag) for r in found.replicas] == [
        ("1", 0, 480, 0),
        ("2", 0, 0, 480),
        ("3", 0, 480, 0),
    ]
    (finding,) = found.findings
    assert (finding.replica, finding.kind) == ("2", "empty")


def test_a_replica_that_was_just_sent_to_a_snapshot_is_no_finding(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60))
    shutil.rmtree(places[1])
    write_snapshot(places[1], [b"a"], at=OffsetAndEpoch(offset=400, epoch=5))
    (places[1] / f"{400:020d}.log").write_bytes(b"")
    found = audit(tmp_path)
    assert found.findings == ()
    assert [(r.replica, r.start, r.end, r.lag) for r in found.replicas][1] == ("2", 400, 400, 80)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "replaced"])
def test_of_two_replicas_the_sound_one_is_never_accused(tmp_path: Path, kind: str) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2)
    for index in tmp_path.rglob("*.index"):
        index.unlink()
    faults = [inject(places[1], number, kind, chance=random.Random(number)) for number in (41, 23, 7)]
    found = audit(tmp_path)
    assert {finding.replica for finding in found.findings} == {"2"}
    assert unmatched(found, faults) == ([], [])


def test_of_two_batches_the_one_that_its_own_index_contradicts_is_wrong(tmp_path: Path) -> None:
    batches = some_batches(60)
    places = make_replicas(tmp_path, batches, replicas=2)
    replaced = encode_batch([b"v"] * 8, timestamp_ms=7, base_offset=56, epoch=5)
    index = (places[1] / f"{0:020d}.index").read_bytes()
    write_log(places[1], [*batches[:7], replaced, *batches[8:]])
    (places[1] / f"{0:020d}.index").write_bytes(index)
    (finding,) = audit(tmp_path).findings
    assert (finding.replica, finding.kind, finding.start_offset) == ("2", "differs", 56)


@pytest.mark.parametrize(("field", "change"), [(slice(0, 8), 5), (slice(12, 16), 1)], ids=["base", "epoch"])
def test_a_run_that_breaks_the_chain_at_an_end_is_wrong_as_a_whole(tmp_path: Path, field: slice, change: int) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2, cuts=(20, 40))
    for index in tmp_path.rglob("*.index"):
        index.unlink()
    segment = next(places[0].glob("*.log"))
    data = bytearray(segment.read_bytes())
    for start in walk(bytes(data)).headers.start.tolist()[10:30]:
        at = slice(start + field.start, start + field.stop)
        data[at] = (int.from_bytes(data[at]) + change).to_bytes(field.stop - field.start)
    segment.write_bytes(data)
    found = audit(tmp_path).findings
    assert {finding.replica for finding in found} == {"1"}
    assert {finding.kind for finding in found} <= {"offset", "differs"}
    assert sum(finding.batches for finding in found) == 20


def test_a_foreign_segment_is_one_finding_however_long(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(600, size=50), cuts=(200, 400))
    foreign = [
        encode_batch([b"other"] * 4, timestamp_ms=1, base_offset=1_600 + 4 * n, epoch=8 + n // 100) for n in range(400)
    ]
    (places[2] / f"{1_600:020d}.log").write_bytes(b"".join(bytes(batch.data) for batch in foreign))
    found = audit(tmp_path)
    assert [(f.replica, f.kind, f.start_offset, f.end_offset, f.batches) for f in found.findings] == [
        ("3", "differs", 1_600, 3_200, 400)
    ]


def test_findings_of_one_kind_are_bounded(tmp_path: Path) -> None:
    batches = some_batches(2 * FINDINGS_MAX + 50, records=1, size=40)
    places = make_replicas(tmp_path, batches)
    hurt = [
        encode_batch([b"x"], timestamp_ms=1, base_offset=batch.base_offset, epoch=batch.epoch) if n % 2 else batch
        for n, batch in enumerate(batches)
    ]
    write_log(places[1], hurt)
    found = audit(tmp_path).findings
    assert len(found) == FINDINGS_MAX
    assert sum(finding.batches for finding in found) == len(batches) // 2
    assert "26 more findings of this kind" in found[-1].what
