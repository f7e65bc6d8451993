"""A stranger at the ports of a quorum, in miniature: the means of measuring, not the figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.errors import ProtocolError
from kraftlib.wire.frames import decode_request
from tests.tools.bench.conftest import Bench
from tools.bench.attacker import Stranger


@pytest.mark.slow
@pytest.mark.parametrize("port", ["with a secret", "open"])
def test_commits_are_measured_with_and_without_a_stranger(bench: Bench, long_path: Path, port: str) -> None:
    arguments = ["--open-port"] if port == "open" else []
    result = bench(*"--hostile 200 --trials 1 --seconds 0.5 --output json --directory".split(), long_path, *arguments)

    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert found["frames_sent"] > 0
    assert found["connections_made"] >= found["closed_by_us"] > 0
    assert found["p99_quiet_us"] > 0
    if port == "with a secret":
        assert (found["epochs_raised"], found["trials_lost"], found["same_leader"]) == (0, 0, True)
    assert list(long_path.iterdir()) == []


def test_no_frame_is_no_attack(bench: Bench) -> None:
    assert "at least one frame" in bench("--hostile", 0).err


def test_most_frames_of_the_stranger_can_be_read() -> None:
    """What cannot be decoded is refused cheaply: those that can are the attack."""
    stranger, kinds = Stranger(1, "cluster"), set()
    for _ in range(300):
        kind, data = stranger.draw()
        try:
            decode_request(data[4 : 4 + int.from_bytes(data[:4], "big")])
        except ProtocolError:
            continue
        kinds.add(kind)

    assert kinds >= {"vote", "begin", "end", "fetch", "remove", "describe", "versions", "login"}
