"""What a log can do is asked in one place: the least log can do nothing more, ours can do all of it."""

from __future__ import annotations

import ast
from pathlib import Path

import attrs

import kraftlib.runtime
from kraftlib.runtime.capabilities import Capabilities, capabilities_of
from kraftlib.storage import interface
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.memory import MemoryReplicatedLog


def test_the_least_log_can_do_nothing_more() -> None:
    least = capabilities_of(MemoryReplicatedLog())

    assert attrs.asdict(least, recurse=False) == {
        **dict.fromkeys((field.name for field in attrs.fields(Capabilities)), None),
        "is_doubtful": False,
    }
    assert (least.holes(), least.control_batches()) == ((), ())


def test_the_log_in_files_can_do_all_of_it(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path)
    can = attrs.asdict(capabilities_of(log), recurse=False)

    assert can.pop("is_doubtful") is False
    assert set(can.values()) == {log}
    log.close()


def test_nothing_else_in_the_runtime_asks_for_a_capability() -> None:
    optional = {name for name in vars(interface) if name.endswith("Log")} - {"ReplicatedLog"} | {"RemembersControls"}
    asked = []
    for path in Path(kraftlib.runtime.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "getattr", "hasattr"):
                names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
                asked += [f"{path.name}:{node.lineno}"] if names & optional else []

    assert {place.partition(":")[0] for place in asked} == {"capabilities.py"}
