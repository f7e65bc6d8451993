"""Two independent checkers of linearizability: porcupine (Go) and our own. They must agree on every register."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.testing.linearizability import check_history
from tests.chaos.history import REGISTER, Operation, to_call

SOURCE: Final = Path(__file__).with_name("porcupine")
CHECK_S: Final = 120
"""Longest time that porcupine may search; what it has not settled then counts as undecided."""

Verdicts = Mapping[str, bool | None]
"""By register: linearizable, not linearizable, or undecided."""


class JudgeError(Exception):
    """A judge cannot be built or did not answer; the message says what is missing."""


@attrs.frozen
class Judgement:
    """What both judges say of a history."""

    porcupine: Verdicts
    ours: Verdicts

    @property
    def violations(self) -> list[str]:
        """Registers that at least one judge rejects."""
        return sorted(key for key in self.ours if False in (self.ours[key], self.porcupine.get(key)))

    @property
    def disagreements(self) -> list[str]:
        """Registers that one judge accepts and the other rejects."""
        return sorted(key for key in self.ours if {self.ours[key], self.porcupine.get(key)} == {True, False})

    @property
    def undecided(self) -> int:
        """Registers that no judge has settled."""
        return sum(self.ours[key] is None and self.porcupine.get(key) is None for key in self.ours)


class Judges:
    """Both judges, ready to be asked."""

    def __init__(self, build_directory: Path) -> None:
        self._program: Final = build_directory / "porcupine"

    def build(self) -> None:
        """Build the Go program. Raises: JudgeError, if there is no Go or the module cannot be had."""
        if shutil.which("go") is None:
            raise JudgeError("porcupine needs Go: install it (Debian: apt install golang-go)")
        command = ["go", "build", "-o", str(self._program.resolve()), "."]
        built = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
        if built.returncode:
            raise JudgeError(f"porcupine was not built: {built.stderr.strip()}")

    def judge(self, operations: Iterable[Operation]) -> Judgement:
        """Ask both. Raises: JudgeError."""
        history = list(operations)
        return Judgement(self._ask_porcupine(history), judge_ourselves(history))

    def _ask_porcupine(self, history: Sequence[Operation]) -> Verdicts:
        lines = "".join(json.dumps(attrs.asdict(operation)) + "\n" for operation in history)
        command = [str(self._program), "-seconds", str(CHECK_S)]
        asked = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=10 * CHECK_S)
        if asked.returncode:
            raise JudgeError(f"porcupine ended with status {asked.returncode}: {asked.stderr.strip()}")
        verdicts: Verdicts = json.loads(asked.stdout)
        return verdicts


def judge_ourselves(history: Iterable[Operation]) -> Verdicts:
    """Return the verdicts of `kraftlib.testing`."""
    by_key: dict[str, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    return {key: check_history(map(to_call, calls), REGISTER).linearizable for key, calls in by_key.items()}


def self_test(judges: Judges) -> None:
    """Show both judges histories whose verdict is known. Raises: JudgeError, if one of them gets it wrong."""
    for history, sound in KNOWN_HISTORIES:
        judgement = judges.judge(history)
        if judgement.ours != {"k": sound} or judgement.porcupine != {"k": sound}:
            raise JudgeError(f"a judge is wrong about {history}: {judgement}; it is {sound}")


def _read(value: str | None) -> Operation:
    return Operation(client=3, key="k", kind="read", output=value, began=50, ended=60)


_PUT: Final = Operation(client=1, key="k", kind="put", value="a", began=0, ended=10)
_UNANSWERED: Final = Operation(client=1, key="k", kind="put", value="b", began=20)
_CAS: Final = Operation(client=2, key="k", kind="cas", old="a", value="c", output=True, began=30, ended=40)

KNOWN_HISTORIES: Final[Sequence[tuple[Sequence[Operation], bool]]] = (
    ([_PUT, _read("a")], True),
    ([_PUT, _UNANSWERED, _read("a")], True),
    ([_PUT, _UNANSWERED, _read("b")], True),
    ([_PUT, _CAS, _read("c")], True),
    ([_PUT, _read(None)], False),
    ([_PUT, _read("b")], False),
    ([_PUT, _CAS, _read("a")], False),
)
"""Histories of the register "k", and whether they are linearizable."""
