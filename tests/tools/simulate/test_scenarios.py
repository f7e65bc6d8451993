"""`dev.py simulate --scenario`."""

from __future__ import annotations

import json

import pytest

from tools.scenarios import SCENARIOS
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story
from tools.simulate.__main__ import main
from tools.simulate.scenarios import run_one


def test_a_list_names_every_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "list"]) == 0
    shown = capsys.readouterr().out.splitlines()

    assert [line.split()[0] for line in shown] == list(SCENARIOS)
    assert main(["--scenario", "list", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["id"] == "E1"


def test_a_story_says_what_it_provoked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "E5", "--seeds", "3:5"]) == 0
    shown = capsys.readouterr().out

    assert "10  records that the stale voter lacks" in shown
    assert "2 seeds" in shown
    assert "every promise was kept" in shown


def test_json_has_one_object_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "E5", "--seed", "3", "--output", "json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()

    assert json.loads(line)["provoked"] == {"records that the stale voter lacks": 5}
    assert json.loads(line)["ok"]


def test_an_unknown_story_is_an_error_that_says_how_to_see_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "E99"]) == 1
    assert "--scenario list" in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_story_that_fails_is_said_with_its_command(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chapter = Chapter()

    @chapter("X1", "trouble", expected="much")
    def told(story: Story) -> None:
        story.expect(False, "it does not hold")

    monkeypatch.setattr("tools.scenarios.SCENARIOS", {"X1": chapter.scenarios[0]})

    assert not run_one(chapter.scenarios[0], [7], as_json=as_json)
    shown = capsys.readouterr()
    assert "python3 dev.py simulate --scenario X1 --seed 7" in shown.out + shown.err
