"""`kraftlib restore BACKUP DIR`: the directory of a new replica that begins with a backup or checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kraftlib.cli.progress import Bar
from kraftlib.cli.usage import UsageError
from kraftlib.offline.backup import opened_backup, read_manifest
from kraftlib.offline.restoring import restore_backup
from kraftlib.plain_values import parse_voters
from kraftlib.storage.bootstrap import InitialController, parse_initial_controllers
from kraftlib.types import new_uuid, parse_endpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where from, where to, and the new cluster."""
    parser.description = (
        "Make DIR the directory of a new replica that begins with a backup, in a new cluster with a new id. Restore\n"
        "every voter of the new cluster from the same backup, with the same list of voters."
    )
    parser.epilog = (
        "examples:\n"
        "  kraftlib restore backups/monday.tar data --node-id 1 --cluster-id $(kraftlib random-uuid) \\\n"
        "    --voters 1@127.0.0.1:9001,2@127.0.0.1:9002,3@127.0.0.1:9003\n"
        "  kraftlib restore backups/monday.tar data --node-id 1 --cluster-id new --standalone 127.0.0.1:9001\n"
        "  kraftlib restore 00000000000000001000-0000000004.checkpoint data --node-id 1 --cluster-id new \\\n"
        "    --standalone 127.0.0.1:9001"
    )
    parser.add_argument("backup", metavar="BACKUP", help="a backup (a directory or a tar file), or a checkpoint")
    parser.add_argument("directory", metavar="DIR", help="the new directory")
    parser.add_argument("--node-id", type=int, required=True, metavar="N", help="number of the new replica")
    parser.add_argument(
        "-t", "--cluster-id", required=True, metavar="ID", help="id of the new cluster; it must differ from the old one"
    )
    voters = parser.add_mutually_exclusive_group(required=True)
    voters.add_argument("--voters", metavar="LIST", help="a static quorum, as in the configuration: id@host:port,…")
    voters.add_argument(
        "-s", "--standalone", metavar="HOST:PORT", help="a dynamic quorum of this node alone, at this address"
    )
    voters.add_argument(
        "-I", "--initial-controllers", metavar="LIST", help="a dynamic quorum: id@host:port:directoryId,…"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of the result")


def run(options: argparse.Namespace) -> int:
    """Restore, and say where the log ends."""
    controllers: tuple[InitialController, ...] = ()
    static = tuple(voter.id for voter in parse_voters(options.voters)) if options.voters else ()
    if options.standalone:
        controllers = (InitialController(options.node_id, parse_endpoint(options.standalone), new_uuid()),)
    elif options.initial_controllers:
        controllers = parse_initial_controllers(options.initial_controllers)
    elif not static:
        raise UsageError("--voters names no voter")
    with opened_backup(Path(options.backup)) as opened:
        total = read_manifest(opened).size if opened.is_dir() else opened.stat().st_size
        with Bar("verifying and copying", 2 * total) as bar:
            manifest, end = restore_backup(
                opened,
                Path(options.directory),
                node_id=options.node_id,
                cluster_id=options.cluster_id,
                controllers=controllers,
                static_voters=static,
                progress=bar.advance,
            )
    if options.output == "json":
        print(
            json.dumps(
                {
                    "path": options.directory,
                    "cluster_id": options.cluster_id,
                    "backup_end": str(manifest.end),
                    "end_offset": end.offset,
                    "end_epoch": end.epoch,
                }
            )
        )
    else:
        print(
            f"{options.directory}: node {options.node_id} of cluster {options.cluster_id}, with all up to "
            f"{manifest.end}"
        )
    return 0
