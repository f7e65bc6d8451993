"""A stranger's network namespace is made, or it is said why not, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kraftlib.errors import KraftError
from tools.bench import outside as module
from tools.bench.outside import outside

HOLD = """
import time
from tools.bench.outside import outside

with outside() as (host, _):
    print(host, flush=True)
    time.sleep(60)
"""
NETNS = Path("/run/netns")
PATIENCE_S = 60


def names() -> set[str]:
    return {path.name for path in NETNS.iterdir()} if NETNS.is_dir() else set()


def test_what_a_killed_run_has_left_is_removed_and_two_runs_have_two_networks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with runs[0] as killed, runs[1] as living:
        hosts = [run.stdout.readline().strip() if run.stdout else "" for run in runs]
        killed.kill()
        killed.wait()
        try:
            with outside() as (host, inside):
                if not inside:
                    assert host == "127.0.0.1"
                    assert "no network namespace can be made" in capsys.readouterr().err
                    return
                assert len({*hosts, host}) == 3
                assert names() >= {f"kraft-{os.getpid()}", f"kraft-{living.pid}"}
                assert f"kraft-{killed.pid}" not in names()
                elsewhere = subprocess.run([*inside, "ip", "addr"], check=True, capture_output=True, text=True)
                assert f"{host.rpartition('.')[0]}." in elsewhere.stdout
                assert f"{host}/30" not in elsewhere.stdout
            assert f"kraft-{os.getpid()}" not in names()
        finally:
            living.kill()
    with outside():
        assert f"kraft-{living.pid}" not in names()


def fake_ip(directory: Path, monkeypatch: pytest.MonkeyPatch, *, refuses: str) -> Path:
    """Put a program `ip` first that refuses one kind of words, and notes all; return its notes."""
    program, notes = directory / "ip", directory / "notes"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {notes}\n'
        f'case "$*" in {refuses}*) echo "RTNETLINK: not permitted" >&2; exit 2;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    return notes


def test_where_no_namespace_can_be_made_it_is_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_ip(tmp_path, monkeypatch, refuses="netns\\ add")
    with outside() as (host, inside):
        assert (host, inside) == ("127.0.0.1", ())
    assert "(RTNETLINK: not permitted): the stranger comes from loopback" in capsys.readouterr().err


def test_a_namespace_that_cannot_be_connected_is_an_error_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = fake_ip(tmp_path, monkeypatch, refuses="link\\ add")
    with pytest.raises(KraftError, match=r"`ip link add .*`: RTNETLINK: not permitted"), outside():
        pass
    assert notes.read_text().splitlines()[-1] == f"netns del kraft-{os.getpid()}"


@pytest.mark.slow
def test_a_run_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    words = ["--hostile", "100", "--seconds", "60", "--trials", "1", "--directory", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "tools.bench", *words], stderr=subprocess.PIPE, text=True) as run:
        end = time.monotonic() + PATIENCE_S
        while not [*tmp_path.rglob("*.log")] and time.monotonic() < end:
            time.sleep(0.05)  # until there are voters
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 128 + signal.SIGTERM, errors
    assert "Traceback" not in errors
    assert [*tmp_path.iterdir()] == []
    assert f"kraft-{run.pid}" not in names()
