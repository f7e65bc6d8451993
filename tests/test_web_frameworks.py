"""The programs of the guide on web frameworks, as processes: one replica, and servers with several workers."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftlib import format_directory
from tests.interop.processes import Process, free_ports, wait_for
from tests.snippets import ROOT, blocks

PAGE = ROOT / "docs" / "howto" / "web-frameworks.md"
WORKERS = 2
VISITS = 5


def write_programs(home: Path, voter: str) -> None:
    """Write each block of the page to the file that its first line names, for this directory and this port."""
    toml, *modules = [block for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language != "console"]
    settings = re.sub('voters = ".*"', f'voters = "1@{voter}"', toml.text).replace("/var/lib/kraft", str(home / "data"))
    for name, text in [("replica-1.toml", settings), *((module.text.split()[1], module.text) for module in modules)]:
        (home / name).write_text(text.replace("/run/kraft.sock", str(home / "kraft.sock")))
    format_directory(home / "data", node_id=1, cluster_id="web", static_voters=(1,))


def servers(ports: list[int]) -> dict[str, list[str]]:
    """Return the commands of the page, by name, each with two workers and a port of its own."""
    fast, mounted, flask, django = map(str, ports)
    uvicorn, gunicorn = ["-m", "uvicorn"], ["-m", "gunicorn", "--workers", str(WORKERS), "--threads", "2"]
    return {
        "fast": [*uvicorn, "fast:app", "--workers", str(WORKERS), "--port", fast],
        "mounted": [*uvicorn, "mounted:app", "--port", mounted],
        "flask": [*gunicorn, "--bind", f"127.0.0.1:{flask}", "--preload", "flask_app:app"],
        "django": [*gunicorn, "--bind", f"127.0.0.1:{django}", "django_app:application"],
    }


def ask(method: str, url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, body, method=method), timeout=60) as response:
        return bytes(response.read())


def answering(process: Process, port: int) -> Callable[[], bool]:
    def answers() -> bool:
        assert process.running, process.tail()
        try:
            ask("GET", f"http://127.0.0.1:{port}/")
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    return answers


def test_workers_of_every_framework_count_together(tmp_path: Path) -> None:
    voter, *ports = free_ports(5)
    write_programs(tmp_path, f"127.0.0.1:{voter}")
    commands: dict[str, Any] = {"replica": ["replica.py"], **servers(ports)}
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    processes = {
        name: Process(
            ["env", "-C", str(tmp_path), sys.executable, *command], log=tmp_path / name, environment=environment
        )
        for name, command in commands.items()
    }
    try:
        for process in processes.values():
            process.start()
        for name, port in zip(servers(ports), ports, strict=True):
            wait_for(f"an answer of {name}", answering(processes[name], port))
        seen = []
        for name, port in zip(servers(ports), ports, strict=True):
            if name == "mounted":
                ask("PUT", f"http://127.0.0.1:{port}/registry/config/color", b"blue")
                assert ask("GET", f"http://127.0.0.1:{port}/registry/config/color") == b"blue"
            else:
                seen += [json.loads(ask("POST", f"http://127.0.0.1:{port}/visits"))["visits"] for _ in range(VISITS)]
        assert seen == list(range(1, 3 * VISITS + 1))
        replica = processes.pop("replica")
        assert replica.stop() == 0
    finally:
        for process in processes.values():
            process.kill()
