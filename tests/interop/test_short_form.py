"""What the short form leaves to the long one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.interop import conftest
from tests.interop.conftest import RELEASES, is_for_the_long_form


def item(name: str, release: str, sampled: int | None = None) -> Any:
    marks = {} if sampled is None else {"sampled": SimpleNamespace(args=(sampled,))}
    params = {"version": release}
    return SimpleNamespace(
        name=f"{name}[{release}]",
        originalname=name,
        callspec=SimpleNamespace(params=params),
        get_closest_marker=marks.get,
    )


def left_out(code: str, release: str, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    monkeypatch.setattr(conftest, "CODE", code)
    return {number for number in range(100) if is_for_the_long_form(item(f"test_{number}", release), {})}


def test_the_first_release_runs_everything_and_an_older_one_half_of_it_and_not_always_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert left_out("one", RELEASES[0], monkeypatch) == set()
    one, other = (left_out(code, RELEASES[1], monkeypatch) for code in ("one", "other"))
    assert 30 < len(one) < 70
    assert one != other
    assert left_out("one", RELEASES[1], monkeypatch) == one


@pytest.mark.parametrize("code", ["one", "other", "third"])
def test_each_release_runs_another_of_the_sampled_cases(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "CODE", code)
    runs = []
    for release in RELEASES[:2]:
        counts: dict[tuple[object, object], int] = {}
        cases = [is_for_the_long_form(item("test_it", release, sampled=4), counts) for _ in range(4)]
        assert cases.count(False) == 1
        runs.append(cases.index(False))
    assert runs[1] == (runs[0] + 1) % 4
