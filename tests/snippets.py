"""Runs the code of one Markdown page, as a reader would who types it in: `python -m tests.snippets docs/page.md`.

All `python` blocks of a page run in order and share their names; `await` may stand outside of functions, and a
traceback names the lines of the page. A block is left out only with a reason: `<!-- not run: why -->` before it.
In a `console` or `bash` block after `<!-- run -->`, the lines `$ kraftlib …` and `$ python …` run too.

Everything happens in the current directory; `examples/` is there as well.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
COMMAND_TIMEOUT_S: Final = 120

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,}|:{3,})(?P<language>[^`\n]*)$")
_COMMENT = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")


@attrs.frozen(kw_only=True)
class Block:
    """A fenced block: `line` is that of its first line of text, from 1; `remark` is the comment right above it."""

    language: str
    line: int
    text: str
    remark: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text, in order."""
    found: list[Block] = []
    lines = page.splitlines()
    remark, at = "", 0
    while at < len(lines):
        if comment := _COMMENT.match(lines[at]):
            remark = comment["text"]
        elif fence := _FENCE.match(lines[at]):
            start = at + 1
            at = start
            while at < len(lines) and lines[at].strip() != fence["ticks"]:
                at += 1
            body = [line.removeprefix(fence["indent"]) for line in lines[start:at]]
            found.append(
                Block(language=fence["language"].strip(), line=start + 1, text="\n".join(body) + "\n", remark=remark)
            )
            remark = ""
        elif lines[at].strip():
            remark = ""
        at += 1
    return found


def commands(block: Block) -> list[tuple[int, str]]:
    """Return line number and text of each `$ kraftlib …` or `$ python …` in `block`; a final backslash continues it."""
    found = []
    lines = block.text.splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\$ (kraftlib|python3?)\b", line):
            end = number
            while lines[end].endswith("\\"):
                end += 1
            found.append((block.line + number, " ".join(part.rstrip("\\") for part in lines[number : end + 1])[2:]))
    return found


def run_page(path: Path) -> int:
    """Run all that is to be run on the page `path`; return how many blocks and commands that were."""
    names: dict[str, object] = {"__name__": "__main__", "__file__": str(path)}
    ran = 0
    with asyncio.Runner() as runner:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.remark.startswith("not run:"):
                continue
            if block.language == "python":
                run_python(block, path, names, runner)
                ran += 1
            elif block.language in ("console", "bash") and block.remark == "run":
                for line, command in commands(block):
                    run_command(command, where=f"{path}:{line}")
                    ran += 1
    return ran


def run_python(block: Block, path: Path, names: dict[str, object], runner: asyncio.Runner) -> None:
    """Run one block. One with `await` outside of functions runs in the page's event loop."""
    tree = ast.parse("\n" * (block.line - 1) + block.text, filename=str(path))
    code = compile(tree, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return

    async def wait() -> None:
        await eval(code, names)

    runner.run(wait())


def run_command(command: str, *, where: str) -> None:
    """Run one command of a page with the programs of this environment; it must succeed."""
    words = shlex.split(command)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    words[0] = sys.executable if words[0].startswith("python") else words[0]
    done = subprocess.run(words, env={**os.environ, "PATH": programs}, timeout=COMMAND_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{where}: exit status {done.returncode} from: {command}")


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    if not Path("examples").exists():
        Path("examples").symlink_to(ROOT / "examples")
    print(f"ran {run_page(page)} blocks of {page.name}")


if __name__ == "__main__":
    main()
