"""Errors at every call: each call of each protocol fails once, in each way, and what remains must open by policy.

No state may be acknowledged behind a failed flush, so the ledger that the crash states are judged by is used here, too:
it holds what was reported before the error, and nothing else.
"""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from kraftlib.errors import StorageError
from tests.storage.crash.damages import DAMAGES, Keeper
from tests.storage.crash.judge import Judge, Verdict
from tests.storage.crash.ledger import Ledger
from tests.storage.crash.lives import LIVES, Life
from tests.storage.crash.protocols import NOTED, PROTOCOLS, Story, Teller, formatted
from tools.storage_proof.file_trace import Fault, FileTrace, Image
from tools.storage_proof.os_watch import Call, Site

FAULTS = {
    "EIO": Fault(errno=errno.EIO),
    "ENOSPC": Fault(errno=errno.ENOSPC),
    "short": Fault(short=True),
    "short, then ENOSPC": Fault(short=True, errno=errno.ENOSPC),
    "EINTR": Fault(errno=errno.EINTR),
}
WRITES = ("pwrite", "pwritev")
STORIES = {**PROTOCOLS, "append, note synced": NOTED["append, note synced"]}


@attrs.define
class Sweep:
    """What came of all faults."""

    runs: Counter[str] = attrs.Factory(Counter)
    """By fault."""
    refused: int = 0
    """Runs in which the error was reported; the others went on and lost nothing."""
    bad: list[str] = attrs.Factory(list)
    reached: set[Site] = attrs.Factory(set)
    """Lines of storage that made a call, in any run."""


def sweep(
    top: Path,
    *,
    stories: Sequence[str] = tuple(STORIES),
    lives: Sequence[str] = tuple(LIVES),
    damages: Sequence[str] = tuple(DAMAGES),
    faults: Sequence[str] = tuple(FAULTS),
    say: Callable[[str], object] = lambda line: None,
) -> Sweep:
    """Let every distinct call of all these fail in each of these ways, in a directory in memory."""
    result = Sweep()
    for name in stories:
        for place, call in distinct(_calls(STORIES[name], top, result)):
            for fault in _fitting(call, faults):
                _story_run(name, place, call, fault, top, result)
        say(f"{name}: {result.runs.total()} runs, {len(result.bad)} bad")
    for name in lives:
        for place, call in distinct(_life_calls(LIVES[name], top, result)):
            for fault in _fitting(call, faults):
                _life_run(name, place, call, fault, top, result)
        say(f"{name}: {result.runs.total()} runs, {len(result.bad)} bad")
    for name in damages:
        image = _damaged(name, top)
        for place, call in distinct(_damage_calls(name, image, top, result)):
            for fault in _fitting(call, faults):
                _damage_run(name, image, place, call, fault, top, result)
        say(f"{name}: {result.runs.total()} runs, {len(result.bad)} bad")
    return result


def _fitting(call: Call, faults: Sequence[str]) -> Iterator[str]:
    for name in faults:
        if not FAULTS[name].short or call.name in WRITES:
            yield name


def distinct(calls: Sequence[Call]) -> Iterator[tuple[int, Call]]:
    """Yield the first and the last call of each kind, from each line of storage by the same way, and their places."""
    places: dict[tuple[object, ...], list[int]] = {}
    for place, call in enumerate(calls):
        places.setdefault((call.name, call.stack), []).append(place)
    for several in places.values():
        for place in sorted({several[0], several[-1]}):
            yield place, calls[place]


def _calls(story: Story, top: Path, result: Sweep) -> list[Call]:
    trace = FileTrace(formatted(_fresh(top)), with_stacks=True)
    with trace:
        story.tell(Teller(trace, story.sync_note))
    _note(trace, result)
    return trace.calls


def _life_calls(life: Life, top: Path, result: Sweep) -> list[Call]:
    trace = FileTrace(formatted(_fresh(top)), with_stacks=True)
    with trace:
        life(trace.directory)
    _note(trace, result)
    return trace.calls


def _story_run(name: str, place: int, call: Call, fault: str, top: Path, result: Sweep) -> None:
    where = f"{name}, {fault} at call {place}, {call}"
    trace = _faulty(place, FAULTS[fault], top)
    teller: Teller | None = None
    failed = False
    with trace:
        try:
            teller = Teller(trace, STORIES[name].sync_note)
            STORIES[name].tell(teller)
        except _reported(call):
            failed = True
        except Exception as error:  # noqa: BLE001 - any other error is what this looks for
            result.bad.append(f"{where}: {type(error).__name__}: {error}")
        if failed and teller is not None and call.name in ("fsync", "fdatasync"):
            _must_refuse(teller, call, where, result)
        image = trace.image()
        trace.restart()
    result.runs[fault] += 1
    result.refused += failed
    _note(trace, result)
    with Judge(top / "judged") as judge:
        judgement = judge.judge(image, Ledger.of(trace.marks()))
    if judgement.verdict is not Verdict.OPENED:
        result.bad.append(f"{where}: {judgement.verdict.value}: {judgement.why}")


def _reported(call: Call) -> tuple[type[Exception], ...]:
    """Return the errors with which a fault may be reported: of a file that is only closed, it may be the bare one."""
    return (StorageError, OSError) if call.name == "close" else (StorageError,)


def _must_refuse(teller: Teller, call: Call, where: str, result: Sweep) -> None:
    """A log whose sync failed is not to be used any more, and vouches for nothing new."""
    if not any(site.module.endswith((".log", "_log", ".segments")) for site in call.stack):
        return
    if any(site.module.endswith(".snapshot_files") for site in call.stack):
        return
    try:
        teller.log.flush()
    except StorageError:
        return
    result.bad.append(f"{where}: the log was flushed again after a failed sync")


def _life_run(name: str, place: int, call: Call, fault: str, top: Path, result: Sweep) -> None:
    """Let a life meet an error, and live it again in what is left: whatever goes wrong must be a StorageError."""
    trace = _faulty(place, FAULTS[fault], top)
    with trace:
        for attempt in ("with the fault", "afterwards"):
            try:
                LIVES[name](trace.directory)
                break
            except _reported(call):
                result.refused += attempt == "with the fault"
            except AssertionError:
                continue  # without a cache that could not be read, or in a directory that is not new any more
            except Exception as error:  # noqa: BLE001 - any other error is what this looks for
                result.bad.append(f"{name}, {fault} at {call}, {attempt}: {type(error).__name__}: {error}")
            trace.restart()
        trace.restart()
    result.runs[fault] += 1
    _note(trace, result)


def _damaged(name: str, top: Path) -> Image:
    """Return a directory as it was left damaged."""
    trace = FileTrace(formatted(_fresh(top)))
    with trace:
        DAMAGES[name].prepare(Keeper(trace.directory))
        trace.restart()
        return trace.image()


def _damage_calls(name: str, image: Image, top: Path, result: Sweep) -> list[Call]:
    directory = _fresh(top)
    image.lay_out(directory)
    damage = DAMAGES[name]
    trace = FileTrace(directory, image=image, with_stacks=True)
    with trace:
        keeper = Keeper(directory, acknowledged=damage.acknowledged)
        damage.live(keeper)
        image = trace.image()
        trace.restart()
    with FileTrace(directory, image=image) as afterwards:
        why = damage.why_bad(keeper)
        afterwards.restart()
    if why:
        result.bad.append(f"{name}, without a fault: {why}")
    _note(trace, result)
    return trace.calls


def _damage_run(name: str, image: Image, place: int, call: Call, fault: str, top: Path, result: Sweep) -> None:
    """Let a damaged replica meet an error, and look at what is left."""
    where = f"{name}, {fault} at call {place}, {call}"
    directory = _fresh(top)
    image.lay_out(directory)
    damage = DAMAGES[name]
    keeper = Keeper(directory, acknowledged=damage.acknowledged)
    trace = FileTrace(directory, image=image, before=once(place, FAULTS[fault]), with_stacks=True)
    with trace:
        try:
            damage.live(keeper)
        except _reported(call):
            result.refused += 1
        except AssertionError:
            pass  # where the fault was taken for damage, there is more of it
        except Exception as error:  # noqa: BLE001 - any other error is what this looks for
            result.bad.append(f"{where}: {type(error).__name__}: {error}")
        image = trace.image()
        keeper.close()
        if trace.open_paths:
            result.bad.append(f"{where}: it is left open: {trace.open_paths}")
        trace.restart()
    with FileTrace(directory, image=image) as afterwards:
        try:
            why = damage.why_bad(keeper)
        except Exception as error:  # noqa: BLE001 - whatever it is, the replica does not go on
            why = f"{type(error).__name__}: {error}"
        afterwards.restart()
    if why:
        result.bad.append(f"{where}: afterwards: {why}")
    result.runs[fault] += 1
    _note(trace, result)


def _faulty(place: int, fault: Fault, top: Path) -> FileTrace:
    return FileTrace(formatted(_fresh(top)), before=once(place, fault), with_stacks=True)


def once(place: int, fault: Fault) -> Callable[[Call], Fault | None]:
    """Return what lets only the call at this place fail."""
    places = iter(range(1 << 30))
    return lambda call: fault if next(places) == place else None


def _note(trace: FileTrace, result: Sweep) -> None:
    for call in trace.calls:
        result.reached.update(call.stack)


def _fresh(top: Path) -> Path:
    shutil.rmtree(top / "told", ignore_errors=True)
    return top / "told"
