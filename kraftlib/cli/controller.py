"""`kraftlib controller`: a metadata controller on which Kafka's brokers run, in place of Kafka's own.

Brokers are configured for it as for controllers of Kafka (`controller.quorum.bootstrap.servers`).
"""

from __future__ import annotations

import argparse
import logging
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from kraftlib.cli import formatting, observe
from kraftlib.cli.collector import calm_collector
from kraftlib.cli.config_file import FORMS, HELP, read_config
from kraftlib.cli.importing import path_of
from kraftlib.cli.progress import Bar
from kraftlib.cli.run import log_to_stderr, run_loop, told_to_stop, until
from kraftlib.compat.zookeeper import reader
from kraftlib.config import RaftConfig
from kraftlib.controller import ControllerConfig, MetadataController, format_controller
from kraftlib.errors import ConfigError

LIMITS = "It does not serve a log in which a feature is in force that it does not know: it says which, and ends."


NUMBERS: Final = [field for field in attrs.fields(ControllerConfig) if type(field.default) is int]
SECRET_MAX_BYTES: Final = 65_536


def _secret_in(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            return file.read(SECRET_MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--delegation-token-secret-file {path} cannot be read: {error}") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands."""
    parser.description = "A metadata controller on which brokers of Apache Kafka 3.9 to 4.3 run."
    parser.epilog = (
        "examples:\n"
        "  kraftlib controller format -c controller-1.toml --standalone --cluster-id $(kraftlib random-uuid)\n"
        "  kraftlib controller run -c controller-1.toml\n"
        "  kraftlib controller status --bootstrap 127.0.0.1:9093\n"
        "and in the properties of a broker: process.roles=broker,\n"
        "  controller.quorum.bootstrap.servers=127.0.0.1:9093\n\n" + LIMITS
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = partial(actions.add_parser, formatter_class=argparse.RawDescriptionHelpFormatter)
    formatting.add_arguments(action("format", help="make a directory for a new controller"))
    running = action("run", help="run a controller until Ctrl-C or SIGTERM")
    running.add_argument("-c", "--config", required=True, metavar=FORMS, help=HELP)
    running.add_argument("--verbose", action="store_true", help="log every change of role on stderr")
    for field in NUMBERS:
        name = "--" + field.name.replace("_", "-")
        running.add_argument(name, type=int, default=field.default, metavar="N", help=f"({field.default})")
    running.add_argument(
        "--delegation-token-secret-file",
        metavar="FILE",
        help="the key of delegation tokens, as Kafka's brokers have it",
    )
    running.add_argument(
        "--standard-authorizer",
        action="store_true",
        help="judge clients by the rules of kafka-acls; [access] admins are the super users",
    )
    running.add_argument(
        "--allow-everyone-if-no-acl-found", action="store_true", help="with it: allow what no rule is about"
    )
    running.add_argument(
        "--remote-log-storage-system-enable", action="store_true", help="brokers have tiered storage: topics may use it"
    )
    status = action("status", help="show the cluster: active controller, brokers, topics, configurations")
    observe.add_arguments(status)
    status.set_defaults(once=True)
    importing = action("import-zookeeper", help="make a checkpoint of what Kafka 3.x has in ZooKeeper; brokers stopped")
    importing.add_argument("source", metavar="SOURCE", help="HOST:PORT,…; or dataDir, and dataLogDir, of one server")
    importing.add_argument("directory", metavar="DIR", help="where `kraftlib restore` will find the checkpoint")
    importing.add_argument("--path", default="/", help="Kafka's chroot, the path in zookeeper.connect (/)")
    importing.add_argument("--auth-file", metavar="FILE", help="file with USER:PASSWORD, for the digest scheme")
    importing.add_argument("--timeout-ms", type=int, default=60_000, metavar="MS", help="time to connect (60000)")
    importing.add_argument("--output", choices=("text", "json"), default="text", help="form of the result")


def run(options: argparse.Namespace) -> int:
    """Do what is asked for."""
    if options.action == "format":
        return formatting.run(options, make=format_controller)
    if options.action == "status":
        options.once = True
        return observe.run(options)
    if options.action == "import-zookeeper":
        return _import_zookeeper(options)
    config = read_config(options.config)
    own = ControllerConfig(
        **{field.name: getattr(options, field.name) for field in NUMBERS},
        delegation_token_secret_key=_secret_in(options.delegation_token_secret_file),
        standard_authorizer=options.standard_authorizer,
        allow_everyone_if_no_acl_found=options.allow_everyone_if_no_acl_found,
        remote_log_storage_system_enable=options.remote_log_storage_system_enable,
    )
    log_to_stderr(logging.DEBUG if options.debug else logging.INFO if options.verbose else logging.WARNING)
    run_loop(config, _serve(config, own))
    return 0


def _import_zookeeper(options: argparse.Namespace) -> int:
    files = [part for part in options.source.split(",") if Path(part).is_dir()]
    path = path_of(options)
    with reader(options.source, path, files=files, auth_file=options.auth_file, timeout_ms=options.timeout_ms) as read:
        from kraftlib.migration.checkpoint import import_nodes  # which needs kazoo

        source = read()
        with Bar("translated", len(source.nodes), unit="nodes") as bar:
            found = import_nodes(source, path, Path(options.directory), read_again=read, progress=bar.advance)
    print(found.to_json() if options.output == "json" else found)
    return 0


async def _serve(config: RaftConfig, own: ControllerConfig) -> None:
    stop = told_to_stop()
    async with MetadataController(config, own) as controller:
        calm_collector()
        print(
            f"controller {config.node_id}: brokers connect to {controller.client.endpoint}; Ctrl-C stops it", flush=True
        )
        await until(stop, controller.wait_closed())
        print("stopping: leadership is transferred, the log is flushed and closed", flush=True)
