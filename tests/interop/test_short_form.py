"""What the short form leaves to the long one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.interop import conftest
from tests.interop.conftest import RELEASES, is_for_the_long_form, number_cases

FAILING: Final = """
import pytest

@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", range(4))
def test_{0}(version, case):
    assert False
"""


def item(name: str, release: str, sampled: int | None = None) -> Any:
    marks = {} if sampled is None else {"sampled": SimpleNamespace(args=(sampled,))}
    params = {"version": release}
    return SimpleNamespace(
        name=f"{name}[{release}]",
        originalname=name,
        callspec=SimpleNamespace(params=params),
        get_closest_marker=marks.get,
        stash=pytest.Stash(),
    )


def left_out(code: str, release: str, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    monkeypatch.setattr(conftest, "CODE", code)
    return {number for number in range(100) if is_for_the_long_form(item(f"test_{number}", release))}


def test_the_first_release_runs_everything_and_an_older_one_a_third_of_it_and_not_always_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert left_out("one", RELEASES[0], monkeypatch) == set()
    one, other = (left_out(code, RELEASES[1], monkeypatch) for code in ("one", "other"))
    assert 45 < len(one) < 85
    assert one != other
    assert left_out("one", RELEASES[1], monkeypatch) == one


@pytest.mark.parametrize("code", ["one", "other", "third"])
def test_each_release_runs_another_of_the_sampled_cases(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "CODE", code)
    runs = []
    for release in RELEASES[:2]:
        cases = [item("test_it", release, sampled=4) for _ in range(4)]
        number_cases(cases)
        chosen = [number for number, case in enumerate(cases) if not is_for_the_long_form(case)]
        assert len(chosen) == 1
        runs += chosen
    assert runs[1] == (runs[0] + 1) % 4


def test_a_second_run_of_what_failed_runs_a_sampled_case_again(tmp_path: Path) -> None:
    """`--last-failed` collects only what failed; a case must not become another one by that."""
    shutil.copy(conftest.__file__, tmp_path / "conftest.py")
    (tmp_path / "test_it.py").write_text("".join(map(FAILING.format, "abcd")))
    env = {**os.environ, "KRAFTLIB_INTEROP": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    words = ("-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:interop-results")
    for again in ((), ("--last-failed", "--last-failed-no-failures=none")):
        ran = subprocess.run([sys.executable, *words, *again], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert "4 failed" in ran.stdout, ran.stdout + ran.stderr
