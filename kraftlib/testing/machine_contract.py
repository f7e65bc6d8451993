"""The contract of a state machine, as checks of a `Subject`: its machine, and values for it.

    @pytest.mark.parametrize("check", MACHINE_CHECKS)
    def test_my_machine_keeps_the_contract(check):
        check(Subject(machine=MyMachine, value=make_value))

A check handles the machine as a replica does, without a quorum: it takes milliseconds, and says which value made the
difference. A broken promise raises InvariantError. `simulate` runs the same subject in quorums that fail.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random as chance
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kraftlib.errors import ensure
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.testing.subject import Subject, state_of
from kraftlib.types import LeaderAndEpoch

COUNT: Final = 200
"""The number of records that a check applies."""

_BEGAN_MS: Final = 1_700_000_000_000
_PATIENCE_S: Final = 60.0


def records(subject: Subject, seed: int, *, count: int = COUNT) -> list[CommittedRecord]:
    """Return records with values of the subject, read from their bytes as a replica reads them."""
    random, make = chance.Random(seed), subject.value
    ensure(make is not None, "a check needs values: Subject(value=...) makes one of (random, number)")
    data = [subject.serde.to_bytes(make(random, number)) for number in range(count)] if make is not None else []
    return list(_records(subject.serde, data))


def equal_records_make_equal_results_and_states(subject: Subject) -> None:
    """On two machines, whatever the clock, the chance and the leader are meanwhile."""
    first, second = subject.machine(), subject.machine()
    chance.seed(1)
    ours = [first.apply(record) for record in records(subject, 1)]
    chance.seed(2)
    for number, record in enumerate(records(subject, 1)):
        if number % 10 == 0:
            second.leader_changed(LeaderAndEpoch(number % 3, 1 + number))
        theirs = second.apply(record)
        ensure(
            theirs == ours[number],
            f"record {number}, {record.value!r}, came to {ours[number]!r} on one machine and to {theirs!r} on another",
        )
    _same(subject, first, second, "two machines have applied the same records")


def the_state_is_equal_in_every_process(subject: Subject) -> None:
    """Each process of Python orders sets by a seed of its own, and its clock is its own."""
    data = [subject.serde.to_bytes(record.value).hex() for record in records(subject, 2)]
    names = [_importable(thing) for thing in (subject.machine, type(subject.serde))]
    found = {seed: _in_a_process(names, data, hash_seed=seed) for seed in ("1", "2", "3")}
    ensure(
        len(set(found.values())) == 1,
        "equal records make different results or states in processes with other hash seeds and clocks: is a set "
        "iterated over, or the clock asked?",
    )


def a_snapshot_replaces_whatever_there_was(subject: Subject) -> None:
    """A replica restores it onto a machine that has applied other records, and goes on as the others do."""
    machine, taken = subject.machine(), records(subject, 3)
    results, snapshots = [], {}
    for number, record in enumerate(taken):
        if number % 40 == 20:
            snapshots[number] = _read_again(subject, machine.snapshot()), state_of(subject, machine)
        results.append(machine.apply(record))
    for number, (values, state) in snapshots.items():
        used = subject.machine()
        for other in records(subject, 4, count=50):
            used.apply(other)
        used.restore(iter(values))
        ensure(
            state_of(subject, used) == state,
            f"a snapshot of {number} records was restored onto a used machine, and writes another snapshot",
        )
        for later in range(number, min(number + 40, len(taken))):
            result = used.apply(taken[later])
            ensure(
                result == results[later],
                f"record {later}, {taken[later].value!r}, comes to {results[later]!r}, and to {result!r} where a "
                f"snapshot of {number} records was restored: it lacks something that apply() looks at",
            )


def a_snapshot_can_be_restored_twice(subject: Subject) -> None:
    """The first attempt may end in the middle, with an error of the file that is read."""
    machine = subject.machine()
    for record in records(subject, 5):
        machine.apply(record)
    values = _read_again(subject, machine.snapshot())
    again = subject.machine()
    try:
        again.restore(_breaks_off(values))
    except _RottenError:
        pass
    else:
        ensure(not values, "restore() hides the error of the values that it reads: the snapshot is not whole")
    again.restore(iter(values))
    _same(subject, machine, again, "a snapshot was restored after an attempt that broke off")


def what_is_frozen_stays_as_it_is(subject: Subject) -> None:
    """It is written while further records are applied, on another thread."""
    takes: Sequence[Callable[[StateMachine], Iterable[Any]]] = (lambda m: m.freeze(), lambda m: m.snapshot())
    for take in takes:
        machine = subject.machine()
        taken = records(subject, 6)
        for record in taken[: COUNT // 2]:
            machine.apply(record)
        expected = state_of(subject, machine)
        frozen = take(machine)
        for record in taken[COUNT // 2 :]:
            machine.apply(record)
        twin = subject.machine()
        twin.restore(iter(_read_again(subject, frozen)))
        ensure(
            state_of(subject, twin) == expected,
            "the values of freeze() or snapshot() have changed with records that were applied later: copy them",
        )


def a_snapshot_changes_nothing(subject: Subject) -> None:
    """Replicas take snapshots when they like: the records after it must have the same effect."""
    quiet, busy = subject.machine(), subject.machine()
    for number, record in enumerate(records(subject, 7)):
        if number % 7 == 0:
            list(busy.snapshot())
            list(busy.freeze())
        ensure(quiet.apply(record) == busy.apply(record), f"{record.value!r} has another result after a snapshot")
    _same(subject, quiet, busy, "one of two machines has written snapshots")


def the_values_of_a_snapshot_have_bytes(subject: Subject) -> None:
    """Those that the serde writes, at least one each, and it reads the same from them."""
    machine = subject.machine()
    for record in records(subject, 8):
        machine.apply(record)
    for value in machine.snapshot():
        data = subject.serde.to_bytes(value)
        ensure(isinstance(data, bytes) and data, f"{value!r} of a snapshot has no bytes")
        read = subject.serde.to_bytes(subject.serde.from_bytes(data))
        ensure(read == data, f"{value!r} of a snapshot is {data!r}, and {read!r} once it was read")


def _same(subject: Subject, ours: StateMachine, theirs: StateMachine, after: str) -> None:
    left, right = state_of(subject, ours), state_of(subject, theirs)
    if left != right:
        differing = [pair for pair in zip(left, right, strict=False) if pair[0] != pair[1]][:1]
        shown = f", the first {differing[0][0]!r} and {differing[0][1]!r}" if differing else ""
        ensure(False, f"{after}, and their states differ: {len(left)} and {len(right)} values{shown}")


def _read_again(subject: Subject, values: Iterable[Any]) -> list[Any]:
    return [subject.serde.from_bytes(subject.serde.to_bytes(value)) for value in values]


class _RottenError(Exception):
    """The values of a snapshot end too early."""


def _breaks_off(values: Sequence[Any]) -> Iterator[Any]:
    yield from values[: len(values) // 2]
    raise _RottenError


def _records(serde: RecordSerde[Any], data: Iterable[bytes]) -> Iterator[CommittedRecord]:
    for number, value in enumerate(data):
        yield CommittedRecord(number, 1 + number // 50, _BEGAN_MS + number, serde.from_bytes(value))


def _importable(thing: Any) -> str:
    name = f"{thing.__module__}:{thing.__qualname__}"
    ensure(
        "<" not in name and thing.__module__ != "__main__",
        f"{name} cannot be imported in another process: put it at the top of a module",
    )
    return name


def _in_a_process(names: Sequence[str], data: Sequence[str], *, hash_seed: str) -> str:
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "kraftlib.testing.machine_contract", *names],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        input=json.dumps(data),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    ensure(done.returncode == 0, f"the machine fails in a process of its own: {done.stderr[-500:]}")
    return done.stdout


def _main(machine_name: str, serde_name: str) -> None:
    """Apply the records of the standard input in this process, whose clock is wrong, and print what came of them."""
    shift_s = 100_000_000.0 * int(os.environ["PYTHONHASHSEED"])
    now, now_ns, monotonic = time.time, time.time_ns, time.monotonic
    time.time = lambda: now() + shift_s
    time.time_ns = lambda: now_ns() + int(shift_s) * 10**9
    time.monotonic = lambda: monotonic() + shift_s
    make, serde = _imported(machine_name), _imported(serde_name)()
    machine, seen = make(), hashlib.sha256()
    for record in _records(serde, map(bytes.fromhex, json.load(sys.stdin))):
        seen.update(repr(machine.apply(record)).encode())
    for value in machine.snapshot():
        seen.update(serde.to_bytes(value))
    print(seen.hexdigest())


def _imported(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


MACHINE_CHECKS: Final[Sequence[Callable[[Subject], None]]] = (
    equal_records_make_equal_results_and_states,
    the_state_is_equal_in_every_process,
    a_snapshot_replaces_whatever_there_was,
    a_snapshot_can_be_restored_twice,
    what_is_frozen_stays_as_it_is,
    a_snapshot_changes_nothing,
    the_values_of_a_snapshot_have_bytes,
)

if __name__ == "__main__":
    _main(*sys.argv[1:])
