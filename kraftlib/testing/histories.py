"""Compares the results that callers got with the log at the end of a run.

Nothing lost, nothing twice (I10), and no order that a single copy could not have had (I21).

The log alone says what really happened to an append, because every value is unique.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kraftlib.runtime.committed import CommittedBatch
from kraftlib.runtime.listener import StateMachine
from kraftlib.testing.linearizability import LogCall, contradiction_in_log
from kraftlib.testing.reads import checksum
from kraftlib.testing.subject import state_of
from kraftlib.testing.workload import ClientAppend, Outcome

if TYPE_CHECKING:
    from kraftlib.testing.world import World

Places = Mapping[bytes, Sequence[int]]
"""Offsets by value."""


def places_of(world: World) -> Places:
    """Return where each value stands in the committed log."""
    places: dict[bytes, list[int]] = {}
    for entry in world.checker.facts.committed.entries:
        if not entry.batch.is_control:
            for offset, value in enumerate(entry.batch.values(), entry.base_offset):
                places.setdefault(value, []).append(offset)
    return places


def i10_log_holds_what_callers_were_told(world: World) -> None:
    """I10, at the end: an acknowledged value stands in the log once, an unknown one at most once, a refused one never.

    Values appended together stand together and in order, or not at all.
    """
    if world.subject.value is not None:
        return  # an application with values of its own may bring one twice
    places = places_of(world)
    for call in world.workload.appends:
        found = [places.get(value, []) for value in call.values]
        complaint = _complaint(call, found)
        if complaint is not None:
            world.violated("I10", f"append {call.number} of {len(call.values)} values {complaint}")
            break
    world.raise_violation()


def _complaint(call: ClientAppend, found: Sequence[Sequence[int]]) -> str | None:
    counts = {len(offsets) for offsets in found}
    if counts == {0}:
        if call.outcome is Outcome.ACKNOWLEDGED:
            return "was acknowledged, and is not in the log"
        return None
    if counts != {1}:
        return f"is {call.outcome.name} and stands at {found}: not all of it, or more than once"
    if call.outcome is Outcome.REFUSED:
        return f"was refused, and stands at {found}"
    first = found[0][0]
    if [offsets[0] for offsets in found] != list(range(first, first + len(found))):
        return f"stands at {found}: not in one piece"
    return None


def i21_history_is_linearizable(world: World) -> None:
    """I21, at the end: callers could have spoken with a single copy of the log, one after the other.

    An append that was answered before another one was asked for stands before it; a read that was confirmed has seen
    every append that was answered before it was asked for.
    """
    found = contradiction_in_log(history_of(world))
    if found is not None:
        earlier, later = found
        world.violated("I21", f"{earlier}: over before {later}, and yet behind it")
    world.raise_violation()


def i14_snapshots_say_what_the_log_says(world: World) -> None:
    """I14, at the end: a snapshot, written or read, equals the state after all records before its offset."""
    expected: dict[int, list[tuple[str, int]]] = {}
    for node_id, offset, state in world.snapshots:
        expected.setdefault(offset, []).append((f"the snapshot of node {node_id}", state))
    for offset, state in world.states.items():
        expected.setdefault(offset, []).append(("a state that was read", state))
    machine = world.subject.machine()
    try:
        for entry in world.checker.facts.committed.entries:
            _compare(world, machine, expected.pop(entry.base_offset, ()), entry.base_offset)
            for record in CommittedBatch(entry.batch, world.subject.serde).records:
                machine.apply(record)
        _compare(world, machine, expected.pop(world.committed_end, ()), world.committed_end)
    except Exception as error:  # noqa: BLE001 - a state machine of the user's, which may do anything
        world.violated("U2", f"applying the whole log to a fresh state machine raised {error!r}")
    for offset, claims in expected.items():
        world.violated("I14", f"{claims[0][0]} ends at {offset}, where no batch does")
    world.raise_violation()


def _compare(world: World, machine: StateMachine, claims: Iterable[tuple[str, int]], offset: int) -> None:
    state = None
    for what, found in claims:
        state = checksum(state_of(world.subject, machine)) if state is None else state
        if found != state:
            world.violated("I14", f"{what} up to {offset} is not what the log before it comes to")


def history_of(world: World) -> list[LogCall]:
    """Return the appends that stand in the log, answered or not, and the reads that saw it, with their places."""
    unique = world.subject.value is None
    places = places_of(world) if unique else {}
    calls = []
    for call in world.workload.appends:
        answered = call.outcome is Outcome.ACKNOWLEDGED
        if answered:
            end_offset = call.end_offset
        elif unique and places.get(call.values[-1]):
            end_offset = places[call.values[-1]][0] + 1
        else:
            continue  # not in the log, or its place is unknown
        calls.append(
            LogCall(
                reads=False,
                end_offset=end_offset,
                began=call.asked_us,
                ended=call.answered_us if answered else None,
                what=f"append {call.number}",
            )
        )
    calls += [
        LogCall(
            reads=True,
            end_offset=read.end_offset,
            began=read.asked_us,
            ended=read.answered_us,
            what=f"read {read.number} on {read.process.node}",
        )
        for read in world.workload.reads
        if read.answered_us is not None
    ]
    return calls
