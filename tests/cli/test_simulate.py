"""`kraftlib simulate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.cli import main
from kraftlib.testing.simulation import Simulation, replay_command
from kraftlib.testing.violation import InvariantViolation


def test_a_range_of_seeds_ends_in_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "3:5", "--profile", "calm", "--until-ms", "200"]) == 0
    shown = capsys.readouterr().out

    assert "2 seeds, 0 violations" in shown
    assert "2 elections" in shown


def test_json_has_one_object_a_seed_and_a_sum(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--seeds", "3:5", "--profile", "crashes", "--until-ms", "200", "--output", "json"]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [line.get("seed") for line in lines] == [3, 4, None]
    assert lines[-1]["summary"]["seeds"] == 2
    assert all(line["ok"] for line in lines[:-1])


def test_one_seed_tells_its_steps_if_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--profile", "calm", "--until-ms", "100", "--trace"]) == 0
    shown = capsys.readouterr().out

    assert "leader" in shown
    assert "every promise was kept" in shown


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_violation_is_exit_status_1_and_names_its_command(
    output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Simulation) -> None:
        self.world.violated("I5", "planted")
        raise self.world.violation or InvariantViolation("", "", seed=0, time_ms=0, replay="")

    monkeypatch.setattr(Simulation, "run", broken)
    for selected in (["--seed", "3"], ["--seeds", "3:4"]):
        assert main(["simulate", *selected, "--profile", "calm", "--output", output]) == 1
        shown = capsys.readouterr()
        assert "kraftlib simulate --seed 3 --profile calm" in (shown.out if output == "json" else shown.err)


def test_a_run_is_drawn_if_wanted_and_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "run.html"
    arguments = ["simulate", "--seed", "3", "--profile", "calm", "--until-ms", "100", "--timeline"]
    assert main([*arguments, str(page)]) == 0
    assert "every promise was kept" in page.read_text(encoding="utf-8")
    assert main([*arguments, str(tmp_path / "no" / "run.html")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_failing_run_is_drawn_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Simulation) -> None:
        self.world.violated("I5", "planted & <seen>")
        self.world.raise_violation()

    monkeypatch.setattr(Simulation, "run", broken)
    page = tmp_path / "run.html"
    assert main(["simulate", "--seed", "3", "--timeline", str(page)]) == 1
    assert "planted &amp; &lt;seen&gt;" in page.read_text(encoding="utf-8")


def test_some_strikes_of_a_seed_are_run_and_named_in_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--seed", "3", "--profile", "crashes", "--until-ms", "400", "--output", "json"]
    assert main([*arguments, "--only", "none"]) == 0
    assert sum(json.loads(capsys.readouterr().out)["faults"].values()) < 20
    assert replay_command(3, "crashes", only={17, 2}) == "kraftlib simulate --seed 3 --profile crashes --only 2,17"


def test_a_seed_that_breaks_nothing_is_not_minimized(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--profile", "crashes", "--until-ms", "100", "--minimize"]) == 0
    assert "nothing to minimize" in capsys.readouterr().out


SUBJECT = """
from kraftlib.testing.subject import HashChain, Subject


class Odd(HashChain):
    def apply(self, record):
        return id(self)


good = Subject(machine=HashChain)
bad = Subject(machine=Odd)
"""


def test_a_state_machine_of_ones_own_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(SUBJECT)
    arguments = ["simulate", "--seeds", "3:5", "--profile", "crashes", "--until-ms", "200", "--subject"]
    assert main([*arguments, f"{tmp_path}/mine.py:good"]) == 0
    assert main([*arguments, f"{tmp_path}/mine.py:bad"]) == 1
    shown = capsys.readouterr().err
    assert "U1 is violated" in shown
    assert f"--subject {tmp_path}/mine.py:bad" in shown
    for missing in (f"{tmp_path}/mine.py:neither", f"{tmp_path}/no.py:good", "nonsense"):
        assert main([*arguments, missing]) == 1
        assert "FILE.py:NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["--seeds", "5:5"], 2, "no range of seeds"),
        (["--seeds", "x"], 2, "no range of seeds"),
        (["--seed", "1", "--seeds", "1:2"], 2, "not allowed with"),
        (["--profile", "nonsense"], 1, "there is no profile 'nonsense'"),
        (["--jobs", "0"], 1, "--jobs 0"),
        (["--seed", "1", "--only", "3,x"], 2, "no list of strikes"),
        (["--seeds", "1:3", "--only", "3"], 1, "choose it with --seed"),
        (["--minimize"], 1, "choose it with --seed"),
        (["--seed", "1", "--until-ms", "-1"], 1, "--until-ms -1"),
    ],
)
def test_a_wrong_command_line_is_refused(
    arguments: list[str], status: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == status
    assert what in capsys.readouterr().err
