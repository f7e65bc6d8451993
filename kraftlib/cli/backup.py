"""`kraftlib backup`: a consistent copy of a replica's state: of one that is stopped, or of a running quorum.

Of a stopped replica the files are copied. Of a running quorum, ours or Kafka's, an observer fetches everything that is
committed at that moment: it needs nothing of the replicas' machines, and it costs them what a new follower costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from kraftlib.cli.login import add_login_arguments, login_of
from kraftlib.cli.observe import find, observer_config
from kraftlib.cli.progress import Bar
from kraftlib.cli.usage import UsageError, servers_of
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.offline.backup import Manifest, write_backup
from kraftlib.offline.scratch import OBSERVER, scratch_in
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage import names
from kraftlib.storage.claim import claim_directory
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import Endpoint, Offset
from kraftlib.wire_client import Login


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where from and where to."""
    parser.description = (
        "Copy checkpoint and log of a replica to a directory, or to one file if the name ends in .tar, and verify the\n"
        "copy. DIR is that of a stopped replica; with --bootstrap everything that a running quorum has committed."
    )
    parser.epilog = (
        "examples:\n"
        "  kraftlib backup --bootstrap 127.0.0.1:9001 backups/monday.tar\n"
        "  kraftlib backup data backups/monday"
    )
    parser.add_argument(
        "places", nargs="+", metavar="[DIR] BACKUP", help="a stopped replica's directory; the new backup"
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT,…", help="any replicas of a running quorum")
    parser.add_argument(
        "--timeout-ms", type=int, default=60_000, metavar="MS", help="time limit for the quorum (60000)"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of the result")
    add_login_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Write the backup and say what it is."""
    if len(options.places) != (1 if options.bootstrap else 2):
        raise UsageError("name a stopped replica's directory and the backup, or --bootstrap and the backup")
    target = Path(options.places[-1])
    if target.exists():
        raise ConfigError(f"{target} exists: name a path that does not exist yet")
    if options.bootstrap:
        manifest = from_quorum(servers_of(options), target, timeout_ms=options.timeout_ms, login=login_of(options))
    else:
        manifest = from_directory(Path(options.places[0]), target)
    if options.output == "json":
        print(json.dumps({"path": str(target), **attrs.asdict(manifest)}))
    else:
        print(f"{target}: cluster {manifest.cluster_id} up to {manifest.end}, {manifest.size} bytes, verified")
    return 0


def from_directory(directory: Path, target: Path) -> Manifest:
    """Back up a replica that does not run. Raises: DirectoryInUseError, if it does."""
    claim = claim_directory(directory)
    try:
        partition = directory / names.PARTITION_DIRECTORY
        FileReplicatedLog.open(partition).close()  # cuts a torn tail, as the next start would
        return _written(partition, target, cluster_id=claim.cluster_id, end_offset=None)
    finally:
        claim.lock.release()


def from_quorum(servers: Sequence[Endpoint], target: Path, *, timeout_ms: int, login: Login | None = None) -> Manifest:
    """Back up what a running quorum has committed."""
    found = find(servers, timeout_ms=timeout_ms, login=login)
    with scratch_in(target.parent) as scratch:
        config = observer_config(servers, found, scratch / OBSERVER, login=login)
        end_offset = asyncio.run(_fetch(config, found.high_watermark, timeout_ms))
        partition = scratch / OBSERVER / names.PARTITION_DIRECTORY
        return _written(partition, target, cluster_id=found.cluster_id or "", end_offset=end_offset)


async def _fetch(config: RaftConfig, high_watermark: Offset, timeout_ms: int) -> Offset:
    config = attrs.evolve(config, retention_bytes=-1, retention_ms=-1)
    client: RaftClient[bytes] = RaftClient(config)
    async with client:
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                with Bar("fetching", high_watermark, unit="records") as bar:
                    shown = 0
                    while (client.high_watermark() or 0) < high_watermark:
                        bar.advance(max(0, client.log_end_offset() - shown))
                        shown = max(shown, client.log_end_offset())
                        await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(f"not everything came within {timeout_ms} ms: {client.status()}") from None
        return client.high_watermark() or 0


def _written(partition: Path, target: Path, *, cluster_id: str, end_offset: Offset | None) -> Manifest:
    total = sum(path.stat().st_size for path in partition.iterdir() if path.suffix in (".log", ".checkpoint"))
    with Bar("copying and verifying", 2 * total, shown=sys.stderr.isatty()) as bar:
        return write_backup(
            partition,
            target,
            cluster_id=cluster_id,
            created_ms=time.time_ns() // 1_000_000,
            end_offset=end_offset,
            progress=bar.advance,
        )
