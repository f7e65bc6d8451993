"""The pages of the recipes and of the machine say what the code has, and are short."""

from __future__ import annotations

import inspect
import re

from kraftlib.coordination import commands, history, keys, messages, sessions
from kraftlib.recipes.face import Recipes
from tests.snippets import ROOT, blocks

HOWTO = (ROOT / "docs" / "howto" / "recipes.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "coordination.md").read_text(encoding="utf-8")


def test_each_recipe_is_shown_in_ten_lines() -> None:
    first, *examples = [block for block in blocks(HOWTO) if block.language == "python"]
    assert "def run" in first.text
    for block in examples:
        lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith("run(")]
        assert len(lines) <= 10, block.text
    shown = "".join(block.text for block in examples)
    recipes = {name for name, _ in inspect.getmembers(Recipes, inspect.isfunction) if not name.startswith("_")}
    assert [name for name in sorted(recipes - {"close", "session"}) if f"kraft.{name}(" not in shown] == []


def test_the_table_of_commands_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", REFERENCE, re.MULTILINE)
    assert {int(kind): name for kind, name in rows} == {kind: cls.__name__ for kind, cls in messages.KINDS.items()}


def test_the_table_of_bounds_is_that_of_the_code() -> None:
    table = REFERENCE.partition("## Bounds")[2].partition("The full state")[0]
    mib = 1024 * 1024
    for text in (
        f"{commands.COMMAND_BYTES_MAX // 1024:,} KiB",
        f"{commands.NAME_BYTES_MAX:,} bytes",
        f"| {messages.OPERATIONS_MAX} |",
        f"| {keys.ANSWER_BYTES_MAX // mib} MiB",
        f"| {commands.ROWS_MAX:,} |",
        f"{sessions.RESULTS_MAX:,}, and {sessions.RESULTS_BYTES_MAX // mib} MiB",
        f"{commands.TTL_MS_MIN} to {commands.TTL_MS_MAX:,}",
        f"{history.CHANGES_MAX:,} changes, and {history.BYTES_MAX // mib} MiB",
    ):
        assert text in table
