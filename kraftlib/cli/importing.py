"""`kraftlib import`: copies what a ZooKeeper or an etcd has into a quorum, and compares it one by one.

Of a ZooKeeper, the keys of `kraftlib.compat.kazoo` are written. So a program that used it through kazoo goes on with
its nodes, their versions and their sequence numbers after it has changed its import. The keys of an etcd become those
of a `ReplicatedMap`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftlib.cli.login import add_login_arguments, login_of
from kraftlib.cli.usage import UsageError, servers_of
from kraftlib.compat.zookeeper import reader
from kraftlib.coordination.net.client import connect
from kraftlib.recipes import kraft
from kraftlib.recipes.session import Session
from kraftlib.security.own_thread import in_own_thread
from kraftlib.wire_client import Login

if TYPE_CHECKING:
    from kraftlib.compat.kazoo.importing import Importer
    from kraftlib.compat.kazoo.source import Source

STEPS_MAX: Final = 10
"""Comparisons, until we say that the source is never twice the same."""

SESSION_MS: Final = 30_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where from and where to."""
    parser.description = (
        "Copy the lasting nodes of a ZooKeeper into a quorum of replicas that kraftlib.open has opened,\n"
        "for programs that change from kazoo's client to kraftlib.compat.kazoo; or the lasting keys of a snapshot\n"
        "of etcd into a map. Ends when a comparison, one by one, has found both equal; with --every it goes on\n"
        "until Ctrl-C. The two of ZooKeeper need kraftlib[kazoo]."
    )
    parser.epilog = (
        "examples:\n"
        "  kraftlib import zookeeper 10.0.0.9:2181 --bootstrap 10.0.0.1:9191,10.0.0.2:9191\n"
        "  kraftlib import zookeeper 10.0.0.9:2181 --bootstrap 10.0.0.1:9191 --path /my-service --every 10\n"
        "  kraftlib import zookeeper-files /var/lib/zookeeper,/var/log/zookeeper --bootstrap 10.0.0.1:9191\n"
        "  kraftlib import etcd snapshot.db --bootstrap 10.0.0.1:9191 --map settings --path /my-service/"
    )
    kinds = ("zookeeper", "zookeeper-files", "etcd")
    parser.add_argument("kind", choices=kinds, help="a running ZooKeeper, its files, or a snapshot file of etcd")
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="servers, HOST:PORT,…; dataDir, and dataLogDir; or the file of `etcdctl snapshot save`",
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT,…", required=True, help="any replicas of the quorum")
    parser.add_argument(
        "--path", help="the node that is copied with all below it (/); of etcd, the beginning of the keys"
    )
    parser.add_argument(
        "--map", default="etcd", metavar="NAME", help="the map that the keys of etcd are copied to (etcd)"
    )
    parser.add_argument("--replace", action="store_true", help="change and delete what the quorum has there already")
    parser.add_argument(
        "--every", type=float, metavar="SECONDS", help="compare, and copy what differs, again and again"
    )
    parser.add_argument("--auth-file", metavar="FILE", help="file with USER:PASSWORD, for ZooKeeper's digest scheme")
    parser.add_argument(
        "--timeout-ms", type=int, default=60_000, metavar="MS", help="time limit for each connection and call (60000)"
    )
    add_login_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Import; 1 if the source is never found equal to the copy."""
    servers_of(options)  # their mistakes are reported before a server is asked
    if options.kind != "zookeeper" and (options.every is not None or options.auth_file is not None):
        raise UsageError("--every and --auth-file are for a running ZooKeeper")
    if options.every is not None and not 0 < options.every < float("inf"):
        raise UsageError(f"--every {options.every}: name a number of seconds above 0")
    if options.kind == "etcd":
        return asyncio.run(_import_etcd(options))
    options.path = path_of(options)
    files = options.source.split(",") if options.kind == "zookeeper-files" else ()
    with reader(
        options.source, options.path, files=files, auth_file=options.auth_file, timeout_ms=options.timeout_ms
    ) as read:
        return asyncio.run(_main(options, read))


def path_of(options: argparse.Namespace) -> str:
    """Return `--path`, the root if it is not given. Raises: UsageError."""
    path: str = "/" if options.path is None else options.path
    if path != "/" and (not path.startswith("/") or "" in path.split("/")[1:]):
        raise UsageError(f"--path {path!r}: a path begins with / and has no empty part")
    return path


async def _import_etcd(options: argparse.Namespace) -> int:
    from kraftlib.compat.etcd.importing import Importer
    from kraftlib.compat.etcd.snapshot import read_snapshot

    prefix = options.path or ""
    source = await in_own_thread(read_snapshot, Path(options.source), prefix)
    login = login_of(options) or Login()
    options_of_map = {"owner": "import", "ttl_ms": SESSION_MS, "timeout_ms": options.timeout_ms}
    async with kraft.connect(servers_of(options), tls=login.tls, sasl=login.sasl, **options_of_map) as quorum:
        importer = Importer(quorum.map(options.map), prefix, replace=options.replace)
        for _ in range(STEPS_MAX):
            found = await importer.step(source)
            if not found:
                print(f"equal: {len(source.entries)} keys with {source.size} bytes, as of revision {source.revision}")
                if source.leased:
                    print(f"{source.leased} keys with a lease are left out: their leases stay with etcd")
                return 0
            print(
                f"copied: {len(found.missing)} keys that were missing, {len(found.changed)} changed;"
                f" {len(found.surplus)} deleted",
                flush=True,
            )
    print(f"not equal after {STEPS_MAX} steps: another client writes there; stop those who do")
    return 1


async def _main(options: argparse.Namespace, read: Callable[[], Source]) -> int:
    from kraftlib.compat.kazoo.importing import Importer

    source = await in_own_thread(read)  # its mistakes are reported before the quorum is asked
    login = login_of(options) or Login()
    access = connect(servers_of(options), tls=login.tls, sasl=login.sasl)
    async with access:
        session = await Session.open(access, ttl_ms=SESSION_MS, owner="import", timeout_ms=options.timeout_ms)
        try:
            importer = Importer(session, options.path, replace=options.replace)
            if options.every is None:
                return await _once(importer, source, read)
            while True:
                await _step(importer, source)
                await asyncio.sleep(options.every)
                source = await in_own_thread(read)
        finally:
            await session.close()


async def _once(importer: Importer, source: Source, read: Callable[[], Source]) -> int:
    for _ in range(STEPS_MAX):
        if await _step(importer, source):
            return 0
        source = await in_own_thread(read)
    print(
        f"not equal after {STEPS_MAX} steps: ZooKeeper's nodes change meanwhile; stop those who write, or use --every"
    )
    return 1


async def _step(importer: Importer, source: Source) -> bool:
    """Compare, and copy what differs; return whether nothing did."""
    found = await importer.step(source)
    if found:
        print(
            f"copied: {len(found.missing)} nodes that were missing, {len(found.changed)} changed;"
            f" {len(found.surplus)} deleted",
            flush=True,
        )
        return False
    print(f"equal: {len(source.nodes)} nodes with {source.size} bytes, compared one by one", flush=True)
    for count, what in (
        (source.ephemeral, "ephemeral nodes are left out: their sessions stay with ZooKeeper"),
        (source.special, "containers and nodes with a time to live are ordinary nodes now"),
    ):
        if count:
            print(f"{count} {what}", flush=True)
    return True
