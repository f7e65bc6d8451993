"""`kraftlib archive`: keep the whole history of a metadata log, and look at the archive."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Final

import attrs

from kraftlib.archive.directory import ArchiveDirectory, find_archives, open_archive
from kraftlib.archive.follower import Progress, follow
from kraftlib.archive.report import Description, Findings, describe, verify
from kraftlib.cli.login import add_login_arguments, login_of
from kraftlib.cli.observe import find
from kraftlib.cli.run import told_to_stop
from kraftlib.cli.usage import servers_of
from kraftlib.errors import ConfigError, DirectoryInUseError
from kraftlib.wire_client import UnreachableError

TELL_EVERY_S: Final = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    parser.description = "Keep every batch that a quorum, ours or Kafka's, commits; nothing is ever deleted."
    parser.epilog = (
        "examples:\n"
        "  kraftlib archive follow --bootstrap 127.0.0.1:9093 --directory history    until Ctrl-C\n"
        "  kraftlib archive follow --bootstrap 127.0.0.1:9093 --directory history --once\n"
        "  kraftlib archive status --directory history                               ranges, gaps, checkpoints\n"
        "  kraftlib archive verify --directory history                               read it all; status 1 where bad"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    following = verbs.add_parser("follow", help="follow a quorum and write everything that it commits, until Ctrl-C")
    following.add_argument(
        "--bootstrap", required=True, metavar="HOST:PORT,…", help="controllers; one that answers is enough"
    )
    following.add_argument("--once", action="store_true", help="write everything that is committed by now, and end")
    following.add_argument("--fleet", action="store_true", help="allow archives of several clusters in one directory")
    following.add_argument("--segment-bytes", type=int, default=256 << 20, help="size of a segment (268435456)")
    following.add_argument("--timeout-ms", type=int, default=10_000, help="time limit for finding the leader (10000)")
    add_login_arguments(following)
    status = verbs.add_parser("status", help="list ranges, gaps and checkpoints")
    checking = verbs.add_parser("verify", help="read and check everything; exit status 1 if anything is wrong")
    for verb in (following, status, checking):
        verb.add_argument("--directory", required=True, metavar="DIR", help="root of the archive")
        verb.add_argument("--output", choices=("text", "json"), default="text", help="json: one object a line")


def run(options: argparse.Namespace) -> int:
    """Do what the verb says."""
    root = Path(options.directory)
    if options.verb == "follow":
        return _follow(options, root)
    archives = find_archives(root)
    if not archives:
        raise ConfigError(f"{root} holds no archive: `kraftlib archive follow` makes one")
    if options.verb == "status":
        for archive in archives:
            told = describe(archive)
            print(json.dumps(told.to_dict()) if options.output == "json" else text_of(told))
        return 0
    return max(_verify(archive, options.output) for archive in archives)


def _follow(options: argparse.Namespace, root: Path) -> int:
    servers = servers_of(options)
    login = login_of(options)
    found = find(servers, timeout_ms=options.timeout_ms, login=login)
    if found.cluster_id is None:
        raise ConfigError("the leader does not send its cluster id, which an archive needs")
    archive = open_archive(root, cluster_id=found.cluster_id, fleet=options.fleet)
    teller = Teller(as_json=options.output == "json")
    teller.began(archive)

    async def work() -> Progress:
        return await follow(
            archive,
            servers,
            stop=told_to_stop(),
            on_progress=teller.progress,
            segment_bytes=options.segment_bytes,
            timeout_ms=options.timeout_ms,
            until_offset=found.high_watermark if options.once else None,
            tls=None if login is None else login.tls,
            sasl=None if login is None else login.sasl,
        )

    try:
        teller.ended(asyncio.run(work()))
    except TimeoutError as error:
        raise UnreachableError(str(error)) from error
    return 0


class Teller:
    """Says how far a follower is: to people now and then on stderr, to programs with every write on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told_at = time.monotonic()
        self._told: Progress | None = None

    def began(self, archive: ArchiveDirectory) -> None:
        """Name the archive."""
        if self._as_json:
            self._line({"event": "began", "cluster_id": archive.cluster_id, "path": str(archive.path)})
        else:
            print(f"cluster {archive.cluster_id} into {archive.path}; Ctrl-C stops it", file=sys.stderr, flush=True)

    def progress(self, now: Progress) -> None:
        """Take note of a write."""
        if self._as_json:
            self._say("wrote", now)
            return
        at = time.monotonic()
        if self._told is None or at - self._told_at >= TELL_EVERY_S:
            self._tell(now, at)

    def ended(self, now: Progress) -> None:
        """Say how far it came."""
        if self._as_json:
            self._say("ended", now)
        else:
            self._tell(now, time.monotonic())

    def _tell(self, now: Progress, at: float) -> None:
        records = now.end_offset - (self._told.end_offset if self._told else now.end_offset)
        rate = records / max(at - self._told_at, 1e-3)
        behind = max(now.high_watermark - now.end_offset, 0)
        print(
            f"offset {now.end_offset}, epoch {now.epoch}: {behind} behind, {rate:.0f} records/s",
            file=sys.stderr,
            flush=True,
        )
        self._told, self._told_at = now, at

    def _say(self, event: str, now: Progress) -> None:
        self._line({"event": event, **attrs.asdict(now)})

    def _line(self, line: dict[str, object]) -> None:
        print(json.dumps(line), flush=True)


def text_of(told: Description) -> str:
    """Return a description for people."""
    lines = [
        f"cluster {told.cluster_id}, {told.path}",
        f"  {told.segments} segments, {told.log_bytes} bytes; {len(told.checkpoints)} checkpoints, "
        f"{told.checkpoint_bytes} bytes",
        *(f"  offsets {held.start_offset} to {held.end_offset}" for held in told.ranges),
        *(f"  missing {gap.start_offset} to {gap.end_offset}: a checkpoint stands for them" for gap in told.gaps),
        *(f"  checkpoint {checkpoint}" for checkpoint in told.checkpoints),
    ]
    if told.torn_bytes:
        lines.append(f"  {told.torn_bytes} bytes of a batch that is not whole: being written, or cut at the next start")
    return "\n".join(lines)


def _verify(archive: ArchiveDirectory, output: str) -> int:
    teller = _Meter(sys.stderr.isatty())
    found = verify(archive, on_bytes=teller.add, is_written=_is_followed(archive))
    teller.end()
    print(_json_of(archive, found) if output == "json" else _text_of_findings(archive, found))
    return 1 if found.problems else 0


def _is_followed(archive: ArchiveDirectory) -> bool:
    try:
        archive.lock().release()
    except DirectoryInUseError:
        return True
    return False


class _Meter:
    """Says on a terminal how many bytes were read."""

    def __init__(self, shown: bool) -> None:
        self._shown, self._bytes = shown, 0

    def add(self, count: int) -> None:
        self._bytes += count
        if self._shown:
            print(f"\r{self._bytes >> 20} MiB read", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def _json_of(archive: ArchiveDirectory, found: Findings) -> str:
    return json.dumps({"cluster_id": archive.cluster_id, "path": str(archive.path), **attrs.asdict(found)})


def _text_of_findings(archive: ArchiveDirectory, found: Findings) -> str:
    verdict = "all is well" if not found.problems else f"{len(found.problems)} problems"
    counts = f"{found.batches} batches, {found.records} records, {found.checkpoints} checkpoints, {found.gaps} gaps"
    head = f"cluster {archive.cluster_id}: {counts}: {verdict}"
    return "\n".join([head, *(f"  {problem}" for problem in found.problems)])
