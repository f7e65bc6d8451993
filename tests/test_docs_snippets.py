"""The code in the README and in the documentation runs, or says why not."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.snippets import ROOT, Block, blocks, commands

PAGES = sorted([ROOT / "README.md", *(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)])
PAGE_TIMEOUT_S = 170
NEEDS = r"Java|JVM|Kafka|block before|processes|pytest|conftest"
"""What a reader may not have at hand, so that a block may be left out."""


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pages name the ports that a reader would, so one of all workers runs a page at a time."""
    with (tmp_path_factory.getbasetemp().parent / "pages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def has_something_to_run(path: Path) -> bool:
    return any(b.language == "python" or b.remark == "run" for b in blocks(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "page",
    [
        # One of the pages simulates for half a minute.
        pytest.param(page, marks=pytest.mark.slow if page.stem == "simulate-your-service" else [], id=page_id(page))
        for page in PAGES
        if has_something_to_run(page)
    ],
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.snippets", str(page)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PAGE_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_code_of_the_readme_runs_as_a_paste_and_is_short() -> None:
    """Line by line in an interactive interpreter, where an empty line ends a block, and as a file."""
    (first, *_) = [b for b in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if b.language == "python"]
    assert len([line for line in first.text.splitlines() if line]) <= 15
    for command in ([sys.executable, "-q", "-i"], [sys.executable, "-"]):
        done = subprocess.run(
            command,
            input=first.text + "\n",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stdout.splitlines()[-1:] == ["2 5"], done.stdout + done.stderr
        assert "Error" not in done.stderr


def test_a_block_for_users_runs_in_an_ordinary_interpreter() -> None:
    """Without `await` outside of functions; and a left-out block needs what a reader may not have."""
    for page in (
        ROOT / "README.md",
        *(p for name in ("tutorial", "howto") for p in (ROOT / "docs" / name).glob("*.md")),
    ):
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                compile(block.text, f"{page}:{block.line}", "exec")
                assert not block.remark or re.search(NEEDS, block.remark)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_code_is_marked_so_that_it_is_found_and_left_out_only_with_a_reason(page: Path) -> None:
    wrong = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if re.match(r"(py|python3|pycon|\{code-block\}.*|\{code\}.*|sh|shell)$|python .*", block.language):
            wrong.append(f"{page}:{block.line} use python, console or bash, not {block.language}")
        if re.match(r"not run\b", block.remark) and not re.match(r"not run: \S{2,}", block.remark):
            wrong.append(f"{page}:{block.line} is left out without a reason")
        if block.remark == "run" and not commands(block):
            wrong.append(
                f"{page}:{block.line} is to be run, but has no line that begins with `$ kraftlib` or `$ python`"
            )
    assert wrong == []


# The runner itself ---------------------------------------------------------------------------------


def test_blocks_know_their_language_line_and_remark() -> None:
    page = (
        "# A\n\n```python\nx = 1\n```\n\n<!-- run -->\n\n```console\n$ kraftlib --help\nusage\n```\n\n"
        "text\n\n~~~text\n```\n~~~\n"
    )

    assert blocks(page) == [
        Block(language="python", line=4, text="x = 1\n", remark=""),
        Block(language="console", line=10, text="$ kraftlib --help\nusage\n", remark="run"),
        Block(language="text", line=17, text="```\n", remark=""),
    ]


def test_commands_are_the_lines_of_ours_and_a_backslash_continues_them() -> None:
    block = Block(
        language="console", line=7, text="$ ls\n$ kraftlib a \\\n  --b\nout\n$ python c.py\n$ pythonic\n", remark="run"
    )
    assert [(n, c.split()) for n, c in commands(block)] == [(8, ["kraftlib", "a", "--b"]), (11, ["python", "c.py"])]


@pytest.mark.parametrize(
    ("page", "status", "output"),
    [
        ("```python\nx = 1\n```\n```python\nprint(x + 1)\n```\n", 0, "2\nran 2 blocks"),
        ("```python\nimport asyncio\nprint(await asyncio.sleep(0, 'slept'))\n```\n", 0, "slept"),
        ("text\n\n```python\n1 / 0\n```\n", 1, 'page.md", line 4'),
        ("<!-- not run: needs a printer -->\n```python\n1 / 0\n```\n", 0, "ran 0 blocks"),
        ("```console\n$ python -c 'raise SystemExit(3)'\n```\n", 0, "ran 0 blocks"),
        ("<!-- run -->\n```console\n$ python -c 'raise SystemExit(3)'\n```\n", 1, "page.md:3: exit status 3"),
    ],
)
def test_the_runner_runs_what_it_should_and_says_where_it_failed(
    page: str, status: int, output: str, tmp_path: Path
) -> None:
    (tmp_path / "page.md").write_text(page)
    done = subprocess.run(
        [sys.executable, "-m", "tests.snippets", "page.md"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status
    assert output in done.stdout
