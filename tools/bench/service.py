"""`python -m tools.bench.service voter -c CONFIG`: a replica that serves the recipes, as a service would open it.

Its line port also takes `snapshot`, which writes one.
"""

from __future__ import annotations

import sys
from typing import Any

from kraftlib.cli import exit_status, parse, voter
from kraftlib.cli.service import Service
from kraftlib.config import RaftConfig
from kraftlib.coordination.net import replica
from kraftlib.runtime.client.raft_client import RaftClient


def serving(config: RaftConfig) -> tuple[RaftClient[Any], Service]:
    """Return a replica with the machine of sessions, keys and locks, and the service of its line port."""
    client = replica.open(config).client
    service = Service(client)

    async def snapshot(_: Any) -> int:
        return (await client.create_snapshot()).offset

    service.offer("snapshot", snapshot)
    return client, service


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    sys.exit(exit_status(lambda: voter.run(options, serving), debug=options.debug))
