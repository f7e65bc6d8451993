"""A fuzzer of a replica's port: recorded frames of Kafka, mutated, sent to a replica in a process of its own.

    dev.py fuzz --port --seconds 120 --seed 1        two minutes
    dev.py fuzz --port --controller                  a metadata controller, on which brokers of Kafka run
    dev.py fuzz --port --seconds 86400 --rate 0      a campaign: as fast as one processor can

The corpus are the requests of `tests/data/*/wire.jsonl.gz` and the dearest frames of each API. The promises: the
replica lives, logs no error, lets no exception reach its event loop, and goes on to commit; once the strangers are
gone its resident memory is at most 1.2 times that of before. The report has the 99th percentile of a commit before and
during the attack. A seed decides which frames are sent; how they meet the replica's own work is up to the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kraftlib.wire.apis import APIS
from tools.fuzz.dear_frames import dear_frames
from tools.fuzz.mutation import mutated

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CONNECTIONS: Final = 32
UNCHANGED: Final = 0.2
"""The share of frames that are sent as they are."""
WARM_S: Final = 2.0
RATIO_MAX: Final = 1.2
SLACK_BYTES: Final = 4 * 1024 * 1024
"""Caches and codecs that the first frames of each kind build, once."""
QUIET_S: Final = 5.0
"""A replica gives memory back when strangers have been gone for some seconds."""


def corpus() -> list[bytes]:
    """Return the frames to begin with."""
    found = []
    for path in sorted((ROOT / "tests" / "data").glob("*/wire.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found += [bytes.fromhex(json.loads(line)["request"]) for line in lines]
    for entry in APIS.values():
        found += [frame for _, frame in dear_frames(entry.request, entry.versions.last, beyond=False)]
    return found


class Strangers:
    """Connections that send, never wait, and are made anew when the replica has closed them."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._port = port
        self._chance = chance
        self._open: list[socket.socket | None] = [None] * CONNECTIONS
        self.frames = 0

    def send(self, frame: bytes) -> None:
        """Send `frame` over one of the connections; sometimes with a length that is wrong."""
        place = self._chance.randrange(CONNECTIONS)
        one = self._open[place]
        if one is None:
            one = self._open[place] = socket.create_connection(("127.0.0.1", self._port), timeout=10)
            one.setblocking(False)
        length = len(frame) if self._chance.random() < 0.98 else self._chance.getrandbits(32)
        self.frames += 1
        try:
            one.sendall(length.to_bytes(4, "big") + frame)
            if self._chance.random() < 0.8 and not one.recv(1 << 20):
                raise ConnectionResetError
        except BlockingIOError:
            pass  # nothing to read yet, or our bytes are not read
        except OSError:
            one.close()
            self._open[place] = None

    def close(self) -> None:
        """Go."""
        for one in self._open:
            if one is not None:
                one.close()


def run(*, seconds: float, seed: int, rate: int, kind: str = "replica") -> dict[str, Any]:
    """Attack a replica, or a controller, for that time, with `rate` frames a second (0: as fast as can be).

    Returns the report.
    """
    chance, frames = random.Random(seed), corpus()
    with (
        tempfile.TemporaryDirectory(prefix="kraftlib-fuzz-") as directory,
        subprocess.Popen(
            [sys.executable, "-m", "tools.fuzz.victim", f"{directory}/1", kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        ) as victim,
    ):  # fmt: skip
        try:
            assert victim.stdin is not None
            assert victim.stdout is not None
            port = int(victim.stdout.readline())

            def report() -> dict[str, Any]:
                assert victim.stdin is not None
                assert victim.stdout is not None
                victim.stdin.write("\n")
                victim.stdin.flush()
                return dict(json.loads(victim.stdout.readline()))

            time.sleep(WARM_S)
            before = report()
            strangers = Strangers(port, chance)
            began = time.monotonic()
            while (passed := time.monotonic() - began) < seconds:
                if rate and strangers.frames > passed * rate:
                    time.sleep(0.001)
                    continue
                frame = chance.choice(frames)
                strangers.send(frame if chance.random() < UNCHANGED else mutated(frame, frames, chance))
            during = report()
            strangers.close()
            time.sleep(QUIET_S)
            after = report()
        finally:
            with suppress(OSError):
                victim.communicate(timeout=60)
    return {"seed": seed, "frames": strangers.frames, "before": before, "during": during, "after": after}


def complaints(found: dict[str, Any]) -> list[str]:
    """Return what did not hold."""
    before, during, after = found["before"], found["during"], found["after"]
    wrong = [f"a fault: {fault}" for fault in after["faults"]]
    if not during["commits"] or not after["commits"]:
        wrong.append("the replica has stopped committing")
    if after["resident_bytes"] > RATIO_MAX * before["resident_bytes"] + SLACK_BYTES:
        wrong.append(f"{after['resident_bytes']} bytes stay resident, {before['resident_bytes']} were before")
    return wrong


def report(options: argparse.Namespace) -> int:
    """Run with `seconds`, `seed` and `rate`, and print; the exit status says whether all held."""
    kind = "controller" if options.controller else "replica"
    found = run(seconds=options.seconds, seed=options.seed, rate=options.rate, kind=kind)
    if options.output == "json":
        print(json.dumps(found))
    else:
        before, during, after = (found[name] for name in ("before", "during", "after"))
        print(
            f"{found['frames']:,} frames; p99 of a commit {before['p99_ms']:.1f} ms before, {during['p99_ms']:.1f} ms"
            f" meanwhile; {before['resident_bytes'] >> 20} MiB before, {after['resident_bytes'] >> 20} MiB afterwards"
        )
    wrong = complaints(found)
    for line in wrong:
        print(f"fuzz: {line} (--seed {options.seed})", file=sys.stderr)
    return 1 if wrong else 0
