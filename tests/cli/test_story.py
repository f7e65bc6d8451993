"""Lines with times, with rich and without."""

from __future__ import annotations

import re
import sys

import pytest

from kraftlib.cli.story import Story


@pytest.mark.parametrize("with_rich", [True, False])
def test_a_story_is_the_same_text_with_rich_and_without(
    with_rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    story = Story()
    story.title("A story [of three]")
    story.tell("it began " + "long " * 40)
    story.more("and went on")
    story.good("well")
    story.bad("badly")
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == "A story [of three]"
    assert re.fullmatch(r" +\d\.\d\d s  it began (long )+", lines[1] + " ") or re.fullmatch(
        r" +\d\.\d\d s  it began (long )+", lines[1]
    )
    assert lines[2].strip() == "and went on"
    assert [line.split("  ")[-1] for line in lines[3:]] == ["well", "badly"]
    assert story.elapsed_s >= 0
