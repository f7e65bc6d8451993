"""`kraftlib observe`: follow the metadata of a running Kafka cluster, or of a quorum of ours, without a vote.

It fetches like a broker does: the whole log from its beginning, or a snapshot and the records after it, then every
record as it is committed. It finds the leader by itself and follows it through elections. It shows a table of the
cluster as it is now, or, with `--output json`, a feed of changes: one JSON object a record.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kraftlib.archive.directory import OBSERVERS_FROM
from kraftlib.cli.login import add_login_arguments, login_of
from kraftlib.cli.quorum import Description, describe
from kraftlib.cli.run import told_to_stop, until
from kraftlib.cli.usage import servers_of
from kraftlib.codec.json_form import to_json
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, ProtocolError
from kraftlib.metadata.frame import UnknownRecordError, decode_record
from kraftlib.metadata.image import ClusterImage
from kraftlib.metadata.table import record_type_name
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import BatchReader, CommittedBatch, LoadedSnapshot
from kraftlib.runtime.listener import Listener
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint, LeaderAndEpoch, OffsetAndEpoch
from kraftlib.wire_client import Login, UnreachableError

REPAINT_S: Final = 0.5
CLEAR: Final = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the cluster and the form."""
    parser.description = "Follow the metadata of a running Kafka cluster or of a kraftlib quorum until Ctrl-C."
    parser.epilog = (
        "examples:\n"
        "  kraftlib observe --bootstrap 127.0.0.1:9093                       a live table\n"
        "  kraftlib observe --bootstrap 127.0.0.1:9093 --output json         a feed of changes\n"
        "  kraftlib observe --bootstrap 127.0.0.1:9093 --once --output json  the cluster as it is now"
    )
    parser.add_argument(
        "--bootstrap", required=True, metavar="HOST:PORT,…", help="controllers; one that answers is enough"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table", help="json: one object a record")
    parser.add_argument("--once", action="store_true", help="show the cluster as it is now, and end")
    parser.add_argument(
        "--directory", metavar="DIR", help="keep log and snapshots in this directory, and continue from it"
    )
    parser.add_argument("--timeout-ms", type=int, default=10_000, help="time limit for finding the leader (10000)")
    add_login_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Follow until told to stop."""
    servers = servers_of(options)
    login = login_of(options)
    found = find(servers, timeout_ms=options.timeout_ms, login=login)
    config = observer_config(servers, found, Path(options.directory) if options.directory else None, login=login)
    asyncio.run(observe(config, options, found))
    return 0


def find(servers: Sequence[Endpoint], *, timeout_ms: int, login: Login | None = None) -> Description:
    """Return what the leader says of its quorum; ask again while there is none.

    Raises: UnreachableError that tells what everybody said.
    """
    deadline = time.monotonic() + timeout_ms / 1_000
    while True:
        try:
            return describe(servers, timeout_s=timeout_ms / 1_000, login=login)
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def observer_config(
    servers: Sequence[Endpoint], found: Description, directory: Path | None, *, login: Login | None = None
) -> RaftConfig:
    """Return the configuration of an observer; its directory is formatted on first use."""
    taken = {row.replica_id for row in (*found.voters, *found.observers)}
    node_id = next(
        number for number in iter(lambda: random.randrange(OBSERVERS_FROM, 2**31), None) if number not in taken
    )
    if directory is not None:
        if found.cluster_id is None:
            raise ConfigError("the leader does not send its cluster id, which a directory needs")
        from kraftlib.storage.meta_properties import read_meta_properties

        known = read_meta_properties(directory)
        node_id = node_id if known is None else known.node_id
        format_directory(
            directory, node_id=node_id, cluster_id=found.cluster_id, no_initial_controllers=True, ignore_formatted=True
        )
    return RaftConfig(
        node_id=node_id,
        directory=directory,
        cluster_id=found.cluster_id,
        bootstrap_servers=tuple(servers),
        engine="inline",
        tls=None if login is None else login.tls,
        sasl=None if login is None else login.sasl,
    )


class Observer(Listener):
    """Replays what is committed, and tells it record by record where that is wanted."""

    def __init__(self, *, feed: bool, stop: asyncio.Event) -> None:
        self.unheard: OSError | None = None
        """The reason why printing stopped: the reader is gone, or a disk is full."""
        self.image = ClusterImage()
        self.leader = LeaderAndEpoch(None, 0)
        self.last_offset = -1
        self.changed = asyncio.Event()
        self._feed = feed
        self._stop = stop

    def handle_commit(self, reader: BatchReader) -> None:
        """Replay committed batches."""
        for batch in reader:
            for line in self._replay(batch):
                self._tell(line)
            self.last_offset = batch.last_offset
        self.changed.set()

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Begin anew with a snapshot."""
        self.image = ClusterImage()
        snapshot_id = reader.snapshot_id
        self._tell({"event": "snapshot", "end_offset": snapshot_id.offset, "epoch": snapshot_id.epoch})
        for batch in reader:
            for line in self._replay(batch, snapshot_id):
                self._tell(line)
        self.last_offset = snapshot_id.offset - 1
        self.changed.set()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Take note of the leader."""
        self.leader = leader
        self._tell({"event": "leader", "leader_id": leader.leader_id, "epoch": leader.epoch})
        self.changed.set()

    def _replay(self, batch: CommittedBatch, snapshot_id: OffsetAndEpoch | None = None) -> Iterator[Mapping[str, Any]]:
        for control in batch.control_records:
            data = to_json(control, control.version)
            yield {"event": "control", "offset": batch.base_offset, "type": type(control).__name__, "data": data}
        for record in batch.records:
            place = {"offset": record.offset} if snapshot_id is None else {"snapshot": str(snapshot_id)}
            line = {"event": "record", **place, "epoch": record.epoch, "timestamp_ms": record.timestamp_ms}
            try:
                message, version = decode_record(record.value)
            except UnknownRecordError as error:
                self.image.add_fault(str(error))
                yield {**line, "type": error.api_key, "version": error.version, "value": record.value.hex()}
            except ProtocolError as error:  # no metadata record at all: a quorum of ours, with records of its own
                self.image.add_fault(f"offset {record.offset}: {error}")
                yield {**line, "value": record.value.hex()}
            else:
                self.image.apply(message)
                name = record_type_name(type(message))
                yield {**line, "type": name, "version": version, "data": to_json(message, version)}

    def _tell(self, line: Mapping[str, Any]) -> None:
        if self._feed:
            self.say(json.dumps(line))

    def say(self, text: str) -> None:
        """Print, and stop everything if that cannot be done."""
        if self.unheard is not None:
            return
        try:
            print(text, flush=True)
        except OSError as error:
            self.unheard = error
            self._stop.set()


async def observe(config: RaftConfig, options: argparse.Namespace, found: Description) -> None:
    """Follow the cluster, and show it."""
    stop = told_to_stop()
    observer = Observer(feed=options.output == "json" and not options.once, stop=stop)
    client: RaftClient[bytes] = RaftClient(config, listener=observer)
    async with client:
        try:
            async with asyncio.timeout(options.timeout_ms / 1_000):
                await client.wait_for_leader()
                await client.wait_for_offset(max(found.high_watermark, 1) - 1)  # all that there was when we came
        except TimeoutError:
            raise UnreachableError(f"nothing was fetched within {options.timeout_ms} ms: {client.status()}") from None
        if options.once:
            picture = picture_of(client, observer)
            print(json.dumps(picture) if options.output == "json" else table(picture))
            return
        painting = asyncio.create_task(_paint(client, observer)) if options.output == "table" else None
        try:
            await until(stop, client.wait_closed())
        finally:
            if painting is not None:
                painting.cancel()
        if observer.unheard is not None:
            raise observer.unheard


async def _paint(client: RaftClient[bytes], observer: Observer) -> None:
    """Show the cluster whenever it changes, but not more often than can be read."""
    while True:
        observer.changed.clear()
        shown = table(picture_of(client, observer))
        if sys.stdout.isatty():
            shown = f"{CLEAR}{fitted(shown, shutil.get_terminal_size().lines)}"
        observer.say(shown if sys.stdout.isatty() else f"---\n{shown}")
        await observer.changed.wait()
        await asyncio.sleep(REPAINT_S)


def picture_of(client: RaftClient[bytes], observer: Observer) -> dict[str, Any]:
    """Return everything as plain values."""
    status = client.status()
    return {
        "cluster_id": status.cluster_id,
        "leader_id": observer.leader.leader_id,
        "epoch": observer.leader.epoch,
        "offset": observer.last_offset,
        "kraft_version": status.kraft_version,
        "voters": {
            str(voter.id): {"directory_id": voter.directory_id, "endpoints": voter.endpoints} for voter in status.voters
        },
        **observer.image.to_dict(),
    }


def table(picture: Mapping[str, Any]) -> str:
    """Return the cluster as text for people."""
    leader = "nobody" if picture["leader_id"] is None else f"controller {picture['leader_id']}"
    lines = [
        f"cluster {picture['cluster_id']}, {leader} leads epoch {picture['epoch']}, offset {picture['offset']}",
        "features  " + ", ".join(f"{name}={level}" for name, level in picture["features"].items()),
    ]
    if picture["voters"]:
        places = (f"{number} ({_places(voter['endpoints'])})" for number, voter in picture["voters"].items())
        lines.append("voters    " + ", ".join(places))
    brokers = [
        [number, "fenced" if broker["fenced"] else "active", _places(broker["endpoints"]), broker["rack"] or "-"]
        for number, broker in picture["brokers"].items()
    ]
    topics = [
        [
            name,
            str(len(topic["partitions"])),
            str(sum(len(partition["replicas"]) for partition in topic["partitions"].values())),
            str(sum(len(partition["isr"]) for partition in topic["partitions"].values())),
            str(sum(partition["leader"] < 0 for partition in topic["partitions"].values())),
        ]
        for name, topic in picture["topics"].items()
    ]
    settings = [
        [resource, name, value] for resource, entries in picture["configs"].items() for name, value in entries.items()
    ]
    lines += _columns(["broker", "state", "endpoints", "rack"], brokers)
    lines += _columns(["topic", "partitions", "replicas", "in sync", "offline"], topics)
    lines += _columns(["config of", "name", "value"], settings)
    return "\n".join(map(_printable, [*lines, *(f"not understood: {fault}" for fault in picture["faults"][-5:])]))


def fitted(text: str, height: int) -> str:
    """Cut what does not fit into a window of so many lines, and say how much that is."""
    lines = text.splitlines()
    room = max(1, height - 2)  # a line for the note below, one for the cursor
    if len(lines) <= room + 1:
        return text
    return "\n".join([*lines[:room], f"... and {len(lines) - room:,} lines more: a larger window or --once shows them"])


def _printable(line: str) -> str:
    """Escape what would forge a line or steer the terminal: racks, listeners and settings are any text."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def _places(endpoints: Mapping[str, str]) -> str:
    return ", ".join(f"{name}://{place}" for name, place in endpoints.items())


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    shown = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in (head, *rows))
    return ["", *(line.rstrip() for line in shown)]
