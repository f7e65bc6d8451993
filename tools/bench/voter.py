"""`python -m tools.bench.voter voter -c CONFIG`: a replica of the bench, with bare records and the method `load`."""

from __future__ import annotations

import sys

from kraftlib.cli import exit_status, parse, voter
from kraftlib.cli.service import Service
from kraftlib.config import RaftConfig
from kraftlib.runtime.client.raft_client import RaftClient
from tools.bench.load import run_load


def loaded(config: RaftConfig) -> tuple[RaftClient[bytes], Service]:
    """Return a replica without a state machine, whose service puts load on it."""
    client: RaftClient[bytes] = RaftClient(config)
    service = Service(client)
    service.offer("load", lambda wanted: run_load(client, wanted))
    return client, service


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    sys.exit(exit_status(lambda: voter.run(options, loaded), debug=options.debug))
