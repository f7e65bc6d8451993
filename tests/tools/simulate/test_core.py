"""`dev.py simulate --profile core`: schedules of the core alone."""

from __future__ import annotations

import json

import pytest

from tools.simulate.__main__ import main


def test_the_core_alone_is_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:2", "--profile", "core-votes"]) == 0
    shown = capsys.readouterr().out
    assert "pairs of situation and event; reached least:" in shown
    assert main(["--seed", "0", "--profile", "core-votes", "--trace"]) == 0
    assert "hears VoteRequest granted" in capsys.readouterr().out
    assert main(["--seeds", "0:1", "--profile", "core", "--output", "json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]
    assert summary["pairs_reached"] == len(summary["pairs"])


def test_a_run_of_the_core_has_no_strikes_and_no_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "0", "--profile", "core", "--minimize"]) == 1
    assert "--minimize does not go with the profile core, which runs the core alone" in capsys.readouterr().err
