"""`kraftlib recover DIR…`: the way on when a majority of the voters is lost for good.

It reads every directory that is left, says how far each reaches and what may be lost, and refuses while a majority is
there that knows its votes: then start them, and they will elect a leader. Otherwise the most complete replica goes on
as the only voter, in an epoch beyond all that were seen. The others are formatted anew and added.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraftlib.cli.progress import Bar
from kraftlib.errors import ConfigError
from kraftlib.offline.lost_quorum import Remains, Verdict, judge, read_remains
from kraftlib.plain_values import parse_voters
from kraftlib.storage import names
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.claim import claim_directory
from kraftlib.storage.new_quorum import begin_new_quorum
from kraftlib.types import LAST_EPOCH_TO_STAND_IN, OffsetAndEpoch, parse_endpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is left, and where the new quorum begins."""
    parser.description = (
        "Recover after a majority of the voters is lost for good: report which records may be lost, and let the most\n"
        "complete replica continue as the only voter. All replicas must be stopped. Refuses while a majority is left\n"
        "that can elect a leader. Try --dry-run first."
    )
    parser.epilog = (
        "examples:\n"
        "  kraftlib recover data-2 data-3 --dry-run\n"
        "  kraftlib recover data-2 data-3 --advertised 127.0.0.1:9002"
    )
    parser.add_argument("directories", nargs="+", metavar="DIR", help="every directory of the quorum that is left")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan and the records that may be lost; change nothing"
    )
    parser.add_argument(
        "--advertised", metavar="HOST:PORT", help="for a dynamic quorum: the address of the remaining voter"
    )
    parser.add_argument("--voters", metavar="LIST", help="the earlier voters of a static quorum: id@host:port,…")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of the result")


def run(options: argparse.Namespace) -> int:
    """Look, judge, and do it, if it is to be done."""
    remains = []
    with Bar("reading", len(options.directories), unit="directories") as bar:
        for name in options.directories:
            remains.append(read_remains(Path(name)))
            bar.advance(1)
    static = [voter.id for voter in parse_voters(options.voters)] if options.voters else []
    verdict = judge(remains, static_voters=static)
    done = None
    if not verdict.has_majority and not options.dry_run:
        done = recover(verdict, advertised=options.advertised)
    if options.output == "json":
        print(json.dumps(_as_json(remains, verdict, done)))
    else:
        print("\n".join(_as_text(remains, verdict, done)))
    if verdict.has_majority:
        print(
            f"kraftlib: {verdict.electors} of {len(verdict.voters)} voters are here, a majority: start them, and "
            "they elect a leader that has everything",
            file=sys.stderr,
        )
        return 1
    return 0


def recover(verdict: Verdict, *, advertised: str | None) -> OffsetAndEpoch:
    """Let the best replica go on alone; return where its log ends then. Raises: ConfigError, StorageError."""
    best = verdict.best
    if verdict.epoch > LAST_EPOCH_TO_STAND_IN:
        raise ConfigError(
            f"the log of node {best.key.id} ends in epoch {best.end.epoch}, and no quorum can go on with it: format a"
            " new cluster, and let your state machine load the newest snapshot there"
        )
    controllers: Sequence[InitialController] = ()
    if verdict.kraft_version >= 1:
        if advertised is None or best.key.directory_id is None:
            raise ConfigError(f"the address of node {best.key.id} is unknown: add --advertised HOST:PORT")
        controllers = [InitialController(best.key.id, parse_endpoint(advertised), best.key.directory_id)]
    claim = claim_directory(best.path)
    try:
        return begin_new_quorum(
            best.path / names.PARTITION_DIRECTORY,
            epoch=verdict.epoch,
            timestamp_ms=time.time_ns() // 1_000_000,
            controllers=controllers,
            static_voters=() if controllers else (best.key.id,),
        )
    finally:
        claim.lock.release()


def _as_text(remains: Sequence[Remains], verdict: Verdict, done: OffsetAndEpoch | None) -> list[str]:
    best = verdict.best
    lines = [
        f"{one.path}: node {one.key.id}, "
        + (f"damaged: {one.damage}" if one.damage else f"log {one.start_offset} to {one.end}, {_vote_of(one)}")
        for one in remains
    ]
    gone = [str(voter.id) for voter in verdict.voters if voter not in verdict.present]
    lines.append(
        f"voters: {', '.join(str(voter.id) for voter in verdict.voters)}; not here: {', '.join(gone) or 'none'}"
    )
    if verdict.has_majority:
        return lines
    lines.append(f"the most complete: node {best.key.id}, which has everything below offset {best.end.offset}")
    if gone:
        lines.append(
            f"may be lost: the records that the lost voters have acknowledged from offset {best.end.offset} on; and "
            "the kept log may hold records that were never acknowledged"
        )
    else:
        lines.append(
            "all voters are here: no acknowledged record is lost, and the kept log may hold unacknowledged records"
        )
    if done is not None:
        lines.append(
            f"node {best.key.id} is the only voter now, its log ends at {done}: start it; format the others anew and"
        )
        add = "add them" if verdict.kraft_version else "set `voters` to it alone in its configuration"
        lines.append(f"{add}; {_what_fences(verdict)}")
    else:
        lines.append(f"without --dry-run it would go on alone in epoch {verdict.epoch}; {_what_fences(verdict)}")
    return lines


def _what_fences(verdict: Verdict) -> str:
    if verdict.fences:
        return f"a replica that still has the old voters is fenced by epoch {verdict.epoch}"
    return (
        "the epochs of this quorum are used up, so no epoch fences the others: never start an old directory of them"
        " again, and close the port to the peer that raised the epochs"
    )


def _vote_of(one: Remains) -> str:
    return "its vote is lost" if one.has_lost_vote else f"vote of {one.vote_epoch}"


def _as_json(remains: Sequence[Remains], verdict: Verdict, done: OffsetAndEpoch | None) -> dict[str, Any]:
    return {
        "replicas": [
            {
                "path": str(one.path),
                "node_id": one.key.id,
                "start_offset": one.start_offset,
                "end_offset": one.end.offset,
                "end_epoch": one.end.epoch,
                "vote_epoch": one.vote_epoch,
                "has_lost_vote": one.has_lost_vote,
                "damage": one.damage,
            }
            for one in remains
        ],
        "voters": [voter.id for voter in verdict.voters],
        "present": [voter.id for voter in verdict.present],
        "majority": verdict.has_majority,
        "best": verdict.best.key.id,
        "may_be_lost_from": verdict.best.end.offset,
        "epoch": verdict.epoch,
        "fences": verdict.fences,
        "end": None if done is None else str(done),
    }
