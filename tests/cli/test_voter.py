"""The processes of demo and bench: they say where they are, and end with their parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from kraftlib.types import parse_endpoint
from tests.cli.processes import COMMAND, TIMEOUT_S, ask, running, single, wait_for_end


def test_it_says_where_it_listens_and_ends_with_its_stdin(tmp_path: Path) -> None:
    with running("voter", "-c", single(tmp_path)) as process:
        clients = parse_endpoint(json.loads(process.line())["clients"])
        assert ask(clients, {"status": True})["status"]["node_id"] == 1
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        process.popen.stdin = None
        assert process.end() == (0, "")


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """kill -9 leaves the parent no time to tell anybody."""
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    command = [sys.executable, "-c", program, *COMMAND, "voter", "-c", str(single(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        voter = int(parent.stdout.readline())
        os.kill(voter, 0)
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=TIMEOUT_S)
    wait_for_end(voter)
