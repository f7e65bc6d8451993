"""The replica of the bench, as a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kraftlib.types import parse_endpoint
from tests.cli.processes import ask, running, single


def test_load_is_put_on_it_from_inside(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tools.bench.voter")
    with running("voter", "-c", single(tmp_path), command=command) as process:
        clients = parse_endpoint(json.loads(process.line())["clients"])
        while ask(clients, {"status": True})["status"]["role"] != "leader":
            pass
        result = ask(clients, {"load": {"callers": 3, "seconds": 0.1, "size": 100}})["load"]

    assert result["commits"] > 0
    assert 0 < result["p50_us"] <= result["p99_us"]
