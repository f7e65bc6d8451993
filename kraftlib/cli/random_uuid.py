"""`kraftlib random-uuid`: a new id, as `kafka-storage random-uuid` prints one."""

from __future__ import annotations

import argparse

from kraftlib.types import new_uuid, uuid_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no options."""
    parser.description = "Print a new random id: for a cluster, or for the directory of a replica."
    parser.epilog = "example:\n  kraftlib format -c replica.toml --cluster-id $(kraftlib random-uuid) --standalone"


def run(options: argparse.Namespace) -> int:
    """Print one id."""
    print(uuid_text(new_uuid()))
    return 0
