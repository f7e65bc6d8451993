"""The command `kraftlib`: one module per command, loaded only when that command is asked for.

A command module has `add_arguments(parser)` and `run(options) -> exit status`. An error that the library raises for its
caller becomes one line on stderr and exit status 1; a wrong command line is 2, Ctrl-C is 130.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from kraftlib import __version__
from kraftlib.cli.usage import UsageError
from kraftlib.errors import InvariantError, KraftError
from kraftlib.form import describe

COMMANDS: Final[dict[str, str]] = {
    "format": "make a directory for a new replica",
    "run": "run a replica of a small key-value store, from a TOML file",
    "controller": "run a metadata controller on which Kafka's brokers live",
    "quorum": "show leader, voters and replicas of a running quorum; change its voters",
    "observe": "follow the metadata of a running Kafka cluster: brokers, topics, partitions, configs",
    "archive": "keep everything that a quorum commits, also after its replicas delete it",
    "dump-log": "print segments, checkpoints and indexes, kraftlib's or Kafka's",
    "snapshot": "take, list, verify and convert snapshots",
    "backup": "copy the state of a running quorum, or of a stopped replica",
    "restore": "begin a new cluster with a backup",
    "verify-dir": "read every file of a replica's directory, and report damage",
    "doctor": "look over the configuration, directory, disk, certificates and network of a replica",
    "import": "copy the nodes of a ZooKeeper, or of its files, into a quorum, and compare them",
    "recover": "make a new quorum after a majority of the voters is lost for good",
    "skip-record": "skip a record that no state machine can apply",
    "spark": "query logs and snapshots with Spark: audits, reports, histories, SQL, compaction, sweeps",
    "simulate": "run whole quorums on simulated time, with faults of all kinds",
    "random-uuid": "print a new cluster or directory id",
    "sasl-user": "print the line of a user for the users_file of [sasl]",
    "demo": "run three voters, write 10,000 records, kill the leader and check that nothing is lost",
}
HIDDEN: Final = ("voter",)
"""Commands that only other programs use: the processes of `demo` and of the benchmarks."""

MODULES: Final = {"format": "formatting", "import": "importing"}
"""The module of each command that does not have its name."""

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


class Command(Protocol):
    """The interface of a command module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options, description and an example."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Do it and return the exit status."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    prepare_streams()
    try:
        options = parse(arguments)
    except SystemExit as exit_:  # argparse has said what is wrong, or printed the help
        return exit_.code if isinstance(exit_.code, int) else 2
    return exit_status(lambda: load(options.command).run(options), debug=options.debug)


def prepare_streams() -> None:
    """Let every text be printed, also without stdout or stderr, or where their encoding lacks a character."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by our parent: no file of ours may take its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def exit_status(run: Callable[[], int], *, debug: bool = False) -> int:
    """Return the exit status of a command; an error for its user becomes one line, unless `debug` is set."""
    try:
        status = run()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (KraftError, OSError, InvariantError) as error:
        if debug:
            raise
        print(f"kraftlib: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def one_line(error: BaseException) -> str:
    """Return what `error` says, fit for a terminal; our own bugs say that they are."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, InvariantError):
        return f"a bug of kraftlib: {text} (--debug shows where)"
    return text


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; only the module of the command that is asked for gets loaded."""
    common = argparse.ArgumentParser(add_help=False)
    # Allowed before and after the command; SUPPRESS, else the second reading would undo the first.
    common.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error, and log"
    )
    parser = argparse.ArgumentParser(
        prog="kraftlib",
        parents=[common],
        description="Kafka's KRaft as a Python library: replicas, and tools for their files.",
        epilog="`kraftlib COMMAND --help` has the details and an example. Begin with `kraftlib demo`.",
    )
    parser.add_argument("--version", action="version", version=f"kraftlib {__version__} ({describe()})")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        child = commands.add_parser(
            name, help=text, parents=[common], formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == asked:
            load(name).add_arguments(child)
    if asked in HIDDEN:
        load(asked).add_arguments(commands.add_parser(asked, parents=[common]))
    options = parser.parse_args(arguments)
    options.debug = getattr(options, "debug", False)
    return options


def load(name: str) -> Command:
    """Import the module of the command `name`."""
    if name not in COMMANDS and name not in HIDDEN:
        raise ValueError(f"there is no command {name!r}")
    module: Any = importlib.import_module(f"kraftlib.cli.{MODULES.get(name, name.replace('-', '_'))}")
    return cast("Command", module)
