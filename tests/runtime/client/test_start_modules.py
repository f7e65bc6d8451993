"""A replica with the default options loads no module that only other options use: it starts in half the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from kraftlib.storage.directory import format_directory
from tests.ports import free_port

START: Final = """
import asyncio, sys
import kraftlib

async def main():
    voter = kraftlib.StaticVoter(1, kraftlib.Endpoint("127.0.0.1", int(sys.argv[2])))
    config = kraftlib.RaftConfig(node_id=1, directory=sys.argv[1], voters=(voter,))
    async with kraftlib.RaftClient(config) as client:
        await client.wait_for_leader()
        print(*sys.modules)

asyncio.run(main())
"""

UNUSED: Final = {
    "argparse": "the command of the crc32c package",
    "importlib.metadata": "the version of the crc32c package",
    "difflib": "hints in errors",
    "tempfile": "a merge of increments that needs files",
    "tomllib": "a configuration in a file",
    "hashlib": "SASL, TLS from files, hashes of snapshots and states",
    "kraftlib.metadata.config_records": "a format",
    "kraftlib.runtime.digests": "digest_interval_ms",
    "kraftlib.security.file_contexts": "TLS from files",
    "kraftlib.security.pem": "TLS from files",
    "kraftlib.security.sasl_client": "SASL",
    "kraftlib.security.sasl_server": "SASL",
    "kraftlib.security.sasl_users": "SASL",
    "kraftlib.storage.memory": "a replica without a directory",
}
"""The modules that a start leaves out, each with what it is for."""


def test_a_start_loads_only_what_it_uses(tmp_path: Path) -> None:
    format_directory(tmp_path, node_id=1, cluster_id="modules", static_voters=[1])

    command = [sys.executable, "-c", START, str(tmp_path), str(free_port())]
    loaded = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout.split()

    assert "kraftlib.runtime.executor" in loaded
    assert {name: use for name, use in UNUSED.items() if name in loaded} == {}
