"""States from logs: the latest of each key, folds, and chains that lead to the very bytes of a full build."""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from kraftlib.analysis.compacting import (
    SNAPSHOT_POSITION,
    folded,
    latest,
    merge_chain,
    quorum_at,
    state_table,
    with_positions,
    write_increment,
)
from kraftlib.errors import ConfigError, KraftError
from kraftlib.records.increment import IncrementReader
from kraftlib.storage.bootstrap import first_voters
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import OffsetAndEpoch
from tests.storage.replicas import controllers, make_replica

IN_MEMORY = Path("/dev/shm")
Log = list[tuple[bytes, bytes | None]]
LOGS = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.one_of(st.none(), st.binary(max_size=3))))


def a_table(log: Log, *, first: int = 0) -> pa.Table:
    return pa.table(
        {
            "position": pa.array(range(first, first + len(log)), pa.int64()),
            "key": pa.array([key for key, _ in log], pa.binary()),
            "value": pa.array([value for _, value in log], pa.binary()),
        }
    )


def state_of(table: pa.Table) -> dict[bytes, bytes | None]:
    keys = table["key"].to_pylist()
    assert keys == sorted(keys)
    return dict(zip(keys, table["value"].to_pylist(), strict=True))


@given(log=LOGS, order=st.randoms(use_true_random=False))
def test_the_latest_of_each_key_is_what_a_dictionary_holds(log: Log, order: random.Random) -> None:
    table = a_table(log)
    shuffled = table.take(pa.array(order.sample(range(len(log)), len(log)), pa.int64()))

    assert state_of(latest(shuffled, keep_deleted=True)) == dict(log)
    assert state_of(latest(shuffled)) == {key: value for key, value in dict(log).items() if value is not None}


def test_rows_of_a_snapshot_come_before_the_log_behind_it() -> None:
    rows = pa.table(
        {
            "origin": ["snapshot", "snapshot", "log", "log"],
            "control": [True, False, False, True],
            "offset": pa.array([0, 1, 0, 1], pa.int64()),
            "key": pa.array([b"h", b"k", b"k", b"l"], pa.binary()),
            "value": pa.array([b"", b"old", b"new", b""], pa.binary()),
        }
    )

    positioned = with_positions(rows)
    assert positioned["position"].to_pylist() == [SNAPSHOT_POSITION + 1, 0]
    assert state_of(latest(positioned)) == {b"k": b"new"}


def test_a_record_without_a_key_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="1 records have no key"):
        latest(
            pa.table({"position": [0], "key": pa.array([None], pa.binary()), "value": pa.array([b"v"], pa.binary())})
        )


class Accounts:
    """Bookings on accounts: a record is a delta, and the last value alone would be wrong."""

    def group_of(self, value: bytes) -> bytes:
        return value.split(b"=")[0]

    def fold(self, state: dict[bytes, bytes], value: bytes) -> None:
        name, amount = value.split(b"=")
        if amount == b"close":
            state.clear()
        else:
            state[name] = b"%d" % (int(state.get(name, b"0")) + int(amount))


def test_records_that_change_others_are_folded_in_order() -> None:
    values = [b"x=5", b"y=1", b"x=-2", b"z=9", b"z=close", b"y=close", b"y=4"]
    table = pa.table({"position": pa.array(range(7), pa.int64()), "value": pa.array(values, pa.binary())})

    assert state_of(folded(table.take([6, 0, 3, 2, 5, 1, 4]), Accounts())) == {b"x": b"3", b"y": b"4"}
    with pytest.raises(ValueError):
        folded(pa.table({"position": [0], "value": pa.array([b"x=unknown"], pa.binary())}), Accounts())


def test_two_groups_with_one_key_are_a_mistake_of_the_reducer() -> None:
    with pytest.raises(KraftError, match="two groups of the reducer have the key b'k'"):
        state_table([{b"k": b"1"}, {b"k": b"2"}])


# Chains --------------------------------------------------------------------------------------------


def wrapped(key: bytes, number: int) -> bytes:
    return bytes([len(key)]) + key + b"%d" % number


def key_of(value: bytes) -> bytes:
    return value[1 : 1 + value[0]]


def a_history(chance: random.Random) -> tuple[Log, list[int]]:
    """Return a log and at which offsets of it there are snapshots: the base, increments, the target."""
    keys = [b"k%d" % number for number in range(chance.randint(1, 12))]
    log: Log = []
    for number in range(chance.randint(2, 80)):
        key = chance.choice(keys)
        log.append((key, None if chance.random() < 0.3 else wrapped(key, number)))
    return log, sorted(chance.sample(range(1, len(log) + 1), min(len(log), chance.randint(2, 5))))


def check_history(chance: random.Random, directory: Path) -> None:
    log, cuts = a_history(chance)
    ids = [OffsetAndEpoch(offset=cut, epoch=1 + cut // 30) for cut in cuts]

    def full(name: str, at: OffsetAndEpoch) -> Path:
        place = directory / name
        place.mkdir()
        return write_table(latest(a_table(log[: at.offset])), options(place, at)).path

    base = full("base", ids[0])
    increments = []
    for before, after in itertools.pairwise(ids):
        changes = latest(a_table(log[before.offset : after.offset], first=before.offset), keep_deleted=True)
        increments.append(write_increment(changes, directory, base=before, target=after))
    merged = merge_chain(base, increments, options(directory, ids[-1]), key_of=key_of)

    assert merged.path.read_bytes() == full("full", ids[-1]).read_bytes()


def options(path: Path, at: OffsetAndEpoch):  # type: ignore[no-untyped-def]
    return parse_checkpoint_options({"path": str(path), "endOffset": str(at.offset), "epoch": str(at.epoch)})


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 150), marks=pytest.mark.slow)], ids=len)
def test_a_base_and_its_increments_merge_into_the_bytes_of_a_full_build(seeds: range) -> None:
    for seed in seeds:
        # In memory where that can be: it is about bytes, and a disk would sync thousands of files.
        with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as directory:
            check_history(random.Random(seed), Path(directory))


def test_a_chain_with_a_link_missing_or_to_another_end_is_refused(tmp_path: Path) -> None:
    at = [OffsetAndEpoch(offset=offset, epoch=1) for offset in (1, 2, 3)]
    log: Log = [(b"k", wrapped(b"k", number)) for number in range(3)]
    base = write_table(latest(a_table(log[:1])), options(tmp_path, at[0])).path
    first, second = (
        write_increment(latest(a_table(log[n : n + 1], first=n)), tmp_path, base=at[n - 1], target=at[n])
        for n in (1, 2)
    )
    for increments, target, complaint in (
        ([second], at[2], "does not lead on from"),
        ([first], at[2], "the chain leads to 2@1"),
        ([first, base], at[2], "a chain is a checkpoint and increments"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            merge_chain(base, increments, options(tmp_path, target), key_of=key_of)
    assert not (tmp_path / f"{3:020d}-{1:010d}.checkpoint").exists()


def test_an_increment_holds_what_changed_and_what_is_gone(tmp_path: Path) -> None:
    base, target = (OffsetAndEpoch(offset=offset, epoch=1) for offset in (5, 9))
    changes = latest(a_table([(b"b", b"1"), (b"a", b"2"), (b"b", None)]), keep_deleted=True)
    path = write_increment(changes, tmp_path, base=base, target=target, timestamp_ms=77)

    with IncrementReader(FileSnapshotSource(path), epoch=1) as reader:
        assert (reader.base, reader.header.last_contained_log_timestamp) == (base, 77)
        assert list(reader.changes()) == [(b"a", b"2"), (b"b", None)]
    with pytest.raises(ConfigError):
        write_increment(changes, tmp_path, base=target, target=base)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("include", ["latest", "log"])
def test_the_version_and_the_voters_of_a_log_are_those_in_force_at_an_offset(tmp_path: Path, include: str) -> None:
    voters = controllers(1, 2, 3)
    replica = make_replica(tmp_path / "r", voters=voters)
    assert quorum_at(replica, include=include) == (1, first_voters(voters, listener_name="CONTROLLER"))
    assert quorum_at(replica, include="log", endOffset=1) == (0, None)
    assert quorum_at(make_replica(tmp_path / "static")) == (0, None)
