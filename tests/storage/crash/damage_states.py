"""Power cuts amid what a replica does about damage: each state that may be left, opened, filled, and gone on from.

The stories are those of `damages`; the ledger is short: how far records were acknowledged by the time of the cut.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from kraftlib.errors import KraftError
from tests.storage.crash.damages import DAMAGES, Damage, Keeper
from tests.storage.crash.judge import Verdict
from tests.storage.crash.proof import Effort, Tally
from tests.storage.crash.protocols import formatted
from tests.storage.laid_out import LaidOut
from tools.storage_proof.crash_states import CrashStates
from tools.storage_proof.file_trace import FileTrace


class _Directory(LaidOut):
    """Where states are laid out and opened."""

    def why_bad(self, damage: Damage, acknowledged: int) -> str:
        """Return what a new process finds lost, or nothing."""
        try:
            return damage.why_bad(Keeper(self.directory, acknowledged=acknowledged))
        except (KraftError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"


def prove_damages(
    top: Path, effort: Effort, *, only: Sequence[str] = (), say: Callable[[str], object] = lambda line: None
) -> list[Tally]:
    """Make and judge crash states of what is done about damage, in a directory that should be one in memory."""
    tallies = []
    for name, damage in DAMAGES.items():
        if only and name not in only:
            continue
        tally = Tally(f"damage: {name}")
        trace = told(damage, top)
        with _Directory(top / "judged") as place:
            for state in CrashStates(trace.operations, trace.initial, most=effort.most, seed=effort.seed):
                place.lay_out(state.image)
                why = place.why_bad(damage, max([damage.acknowledged, *state.marks]))
                tally.verdicts[Verdict.BAD if why else Verdict.OPENED] += 1
                if why and len(tally.bad) < 10:
                    sizes = {path: len(stored.data) for path, stored in sorted(state.image.files.items())}
                    tally.bad.append(f"after operation {state.after}: {why}\n    of {sizes}")
        say(f"{tally.name}: {tally.states} states, {tally.verdicts[Verdict.BAD]} bad")
        tallies.append(tally)
    return tallies


def told(damage: Damage, top: Path) -> FileTrace:
    """Let a directory be damaged, and return what is then done in it, marked with what was acknowledged."""
    shutil.rmtree(top / "told", ignore_errors=True)
    directory = formatted(top / "told")
    past = FileTrace(directory)
    with past:
        damage.prepare(Keeper(directory))
        past.restart()
        image = past.image()
    trace = FileTrace(directory, image=image)
    with trace:
        damage.live(Keeper(directory, acknowledged=damage.acknowledged, tell=trace.mark))
        trace.restart()
    return trace
