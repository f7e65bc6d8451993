"""`kraftlib voter`: a replica as `kraftlib demo` starts it. Not for people.

Like `kraftlib run`, but it speaks to its parent: one JSON line on stdout says where it listens, and the end of stdin,
be it because the parent was killed, ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftlib.cli.run import clients_of, log_to_stderr, run_loop, serve, store_of, told_to_stop, until
from kraftlib.cli.service import Service
from kraftlib.config import RaftConfig
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.types import Endpoint

Make = Callable[[RaftConfig], tuple[RaftClient[Any], Service]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the configuration, and the path of a socket: that of the directory may be too long for one."""
    parser.add_argument("-c", "--config", required=True)
    parser.add_argument("--socket", type=Path, help="the Unix socket for clients, if there is to be one")


def run(options: argparse.Namespace, make: Make = store_of) -> int:
    """Run what `make` returns until told to stop, or until the parent is gone."""
    log_to_stderr(logging.DEBUG if options.debug else logging.ERROR)
    config = RaftConfig.from_toml(options.config)
    run_loop(config, _run(config, make, clients_of(config, socket=options.socket)))
    return 0


async def _run(config: RaftConfig, make: Make, clients: Endpoint | None) -> None:
    stop = told_to_stop()
    _watch_parent(stop)
    client, service = make(config)
    async with serve(client, service, clients) as place:
        print(json.dumps({"clients": str(place)}), flush=True)
        await until(stop, client.wait_closed())


def _watch_parent(stop: asyncio.Event) -> None:
    """Set `stop` at the end of stdin: the parent has closed it, or was killed."""
    parent = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(parent, 4_096):
            asyncio.get_running_loop().remove_reader(parent)
            stop.set()

    asyncio.get_running_loop().add_reader(parent, readable)
