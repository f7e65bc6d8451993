"""A stranger at the ports of a quorum, in miniature: the means of measuring, not the figure."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kraftlib.errors import ProtocolError
from kraftlib.wire.frames import decode_request
from tests.tools.bench.conftest import Bench
from tools.bench.attacker import Connections, Stranger, attack


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["secret", "tls", "nothing"])
def test_commits_are_measured_with_and_without_a_stranger(bench: Bench, long_path: Path, guard: str) -> None:
    arguments = {"secret": [], "tls": ["--tls"], "nothing": ["--open-port"]}[guard]
    result = bench(*"--hostile 200 --trials 1 --seconds 0.5 --output json --directory".split(), long_path, *arguments)

    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert found["frames_sent"] > 0
    assert found["connections_made"] >= found["closed_by_us"] > 0
    assert found["p99_quiet_us"] > 0
    assert found["guard"] == guard
    if guard != "nothing":
        assert (found["epochs_raised"], found["trials_lost"], found["same_leader"]) == (0, 0, True)
    assert list(long_path.iterdir()) == []


def test_no_frame_is_no_attack(bench: Bench) -> None:
    assert "at least one frame" in bench("--hostile", 0).err
    assert "at least one frame" in bench("--hostile", 1, "--burst", 0).err


@pytest.mark.parametrize("burst", [1, 10])
def test_frames_leave_when_they_are_due(burst: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn before is sent at a constant rate, and a frame that leaves late is told of."""
    now, sent = [0.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    frames = [("vote", b"x")] * 100
    frames[70] = ("http", b"slow")

    class Slow(Connections):
        def send(self, data: bytes, *, alone: bool) -> None:
            sent.append(now[0])
            assert alone == (data == b"slow")
            if alone:
                now[0] += 0.05

    done = attack(frames, Slow([], 1), rate=100, burst=burst)

    on_time = [number // burst * burst / 100 for number in range(71)]
    assert sent[:71] == pytest.approx(on_time)
    assert sent[-1] == pytest.approx(99 // burst * burst / 100), "it has caught up"
    assert done["frames"] == 100
    assert 0 <= done["late p50"] < 1_000 < done["late p99"] <= 50_000


def test_a_handshake_begins_without_a_word_of_the_other_side() -> None:
    stranger = Stranger(1, None, tls=True)
    kinds = [stranger.draw() for _ in range(20)]
    hellos = [data for kind, data in kinds if kind == "hello"]
    assert hellos
    assert all(data.startswith(b"\x16\x03") for data in hellos)


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
