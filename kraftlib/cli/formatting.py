"""`kraftlib format`: make a directory for a new replica, as `kafka-storage format` does.

The node and its voters come from a configuration file, or from options where a directory is named instead. Exactly one
of four things says how the quorum begins: this node alone (`--standalone`), a list of first voters that is the same on
all of them (`--initial-controllers`), an existing quorum that this node will be added to (`--no-initial-controllers`),
or static voters, which stand in the configuration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from kraftlib.cli.config_file import FORMS, HELP, read_config
from kraftlib.cli.usage import UsageError
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.storage.bootstrap import DEFAULT_RELEASE, parse_initial_controllers
from kraftlib.storage.directory import FormattedDirectory, format_directory
from kraftlib.types import Endpoint, uuid_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where, who, and how the quorum begins."""
    parser.description = "Make a directory for a new replica, with the same files as `kafka-storage format`."
    parser.epilog = (
        "examples:\n"
        "  kraftlib format -c replica-1.toml --cluster-id $(kraftlib random-uuid)       the file names the voters\n"
        "  kraftlib format data --node-id 1 --advertised 127.0.0.1:9001 --standalone --cluster-id demo"
    )
    parser.add_argument("directory", nargs="?", metavar="DIR", help="the directory, if no configuration names it")
    parser.add_argument("-c", "--config", metavar=FORMS, help=HELP)
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="name of the cluster, the same on every replica")
    parser.add_argument("--node-id", metavar="N", help="with DIR: number of this replica")
    parser.add_argument(
        "--advertised", metavar="HOST:PORT", help="with DIR and --standalone: the address of this replica"
    )
    parser.add_argument("--voters", metavar="LIST", help="with DIR: static voters, id@host:port,…")
    begins = parser.add_mutually_exclusive_group()
    begins.add_argument("-s", "--standalone", action="store_true", help="the quorum begins with this node alone")
    begins.add_argument(
        "-I",
        "--initial-controllers",
        metavar="LIST",
        help="the quorum begins with these nodes, this node included: id@host:port:directoryId,…",
    )
    begins.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="the quorum exists already: this node is added later",
    )
    parser.add_argument(
        "-r",
        "--release-version",
        metavar="RELEASE",
        default=DEFAULT_RELEASE,
        help=f"release of the oldest Kafka controller in the quorum, if there is one ({DEFAULT_RELEASE})",
    )
    parser.add_argument("-g", "--ignore-formatted", action="store_true", help="leave a formatted directory alone")


def run(options: argparse.Namespace, make: Callable[..., FormattedDirectory] = format_directory) -> int:
    """Format the directory and say how."""
    config = _config(options)
    if config.directory is None:
        raise ConfigError('the configuration names no directory: add directory = "…", or name it on the command line')
    if config.cluster_id is None:
        raise ConfigError(
            "the cluster id is missing: add --cluster-id $(kraftlib random-uuid), the same on every replica"
        )
    controllers = parse_initial_controllers(options.initial_controllers) if options.initial_controllers else ()
    dynamic = options.standalone or controllers or options.no_initial_controllers
    _check(config, dynamic=bool(dynamic))
    formatted = make(
        config.directory,
        node_id=config.node_id,
        cluster_id=config.cluster_id,
        standalone=_reached_at(config) if options.standalone else None,
        initial_controllers=controllers,
        no_initial_controllers=options.no_initial_controllers,
        static_voters=[voter.id for voter in config.voters],
        release=options.release_version,
        listener_name=config.listener_name,
        ignore_formatted=options.ignore_formatted,
        file_mode=config.file_mode,
    )
    print(_report(formatted, has_voters=options.standalone or bool(controllers)))
    _warn_of_two(controllers or config.voters)
    return 0


def _config(options: argparse.Namespace) -> RaftConfig:
    """Return the configuration that the options name or stand for."""
    if (options.config is None) == (options.directory is None):
        raise UsageError("format needs either a directory or -c CONFIG")
    own = {"node_id": options.node_id, "advertised": options.advertised, "voters": options.voters}
    given = {name: value for name, value in own.items() if value is not None}
    if options.config is not None:
        if given:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} goes with DIR, not with a configuration")
        config = read_config(options.config)
    else:
        config = RaftConfig.from_mapping(
            {**given, **_number(given), "directory": Path(options.directory)}, where="command line"
        )
    if options.cluster_id is None:
        return config
    if config.cluster_id not in (None, options.cluster_id):
        raise ConfigError(
            f"--cluster-id {options.cluster_id}, but the configuration has cluster_id={config.cluster_id!r}"
        )
    return attrs.evolve(config, cluster_id=options.cluster_id)


def _number(given: dict[str, Any]) -> dict[str, int]:
    text = given.get("node_id")
    if text is None:
        return {}
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--node-id {text} is not a number")
    return {"node_id": int(text)}


def _check(config: RaftConfig, *, dynamic: bool) -> None:
    """Check that it is said, once, how the quorum begins."""
    ids = [voter.id for voter in config.voters]
    if dynamic and ids:
        raise ConfigError(
            "voters are configured, so the quorum is static: remove them, or --standalone, --initial-controllers, "
            "--no-initial-controllers"
        )
    if not dynamic and not ids:
        raise ConfigError(
            "the first voters are not given: add --standalone, --initial-controllers or "
            "--no-initial-controllers, or configure voters"
        )
    if ids and config.node_id not in ids:
        raise ConfigError(f"node_id={config.node_id} is not among voters={','.join(map(str, config.voters))}")


def _reached_at(config: RaftConfig) -> Endpoint:
    """Return where others will reach a standalone voter."""
    endpoint = config.advertised or config.listen
    if endpoint.port == 0:
        raise ConfigError(
            "a standalone voter must be reached at a fixed port: configure listen or advertised, or add --advertised"
        )
    return endpoint


def _report(formatted: FormattedDirectory, *, has_voters: bool) -> str:
    meta = formatted.meta
    who = f"node {meta.node_id} of cluster {meta.cluster_id}"
    if not formatted.is_new:
        return f"{formatted.path} is formatted already, for {who}: left alone."
    kind = "dynamic metadata voter directory" if has_voters else "metadata directory"
    directory_id = "none" if meta.directory_id is None else uuid_text(meta.directory_id)
    return f"Formatting {kind} {formatted.path} for {who}, directory id {directory_id}."


def _warn_of_two(voters: Sequence[object]) -> None:
    if len(voters) == 2:
        print(
            "kraftlib: warning: a quorum of two voters survives no failure, since both are a majority; take three",
            file=sys.stderr,
        )
