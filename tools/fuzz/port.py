"""A fuzzer of a replica's port: recorded frames of Kafka, mutated, sent to a replica in a process of its own.

    python -m tools.fuzz.port --seconds 120 --seed 1        in CI: two minutes
    python -m tools.fuzz.port --seconds 86400 --rate 0      a campaign: as fast as one processor can

The corpus are the requests of `tests/data/*/wire.jsonl.gz` and the dearest frames of each API. What must hold: the
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
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kraftlib.wire.apis import APIS
from tools.fuzz.dear_frames import dear_frames

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CONNECTIONS: Final = 32
WARM_S: Final = 2.0
RATIO_MAX: Final = 1.2
SLACK_BYTES: Final = 16 * 1024 * 1024
"""Caches and codecs that the first frames of each kind build, once."""

EDGES: Final = (b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f")


def corpus() -> list[bytes]:
    """Return the frames to begin with."""
    found = []
    for path in sorted((ROOT / "tests" / "data").glob("*/wire.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found += [bytes.fromhex(json.loads(line)["request"]) for line in lines]
    for entry in APIS.values():
        found += [frame for _, frame in dear_frames(entry.request, entry.versions.last, beyond=False)]
    return found


def mutated(frame: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Return `frame` with a few things wrong: bits, edges of numbers, pieces lost, doubled or of another frame."""
    data = bytearray(frame)
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                edge = chance.choice(EDGES)
                data[at : at + len(edge)] = edge
            case 2:
                del data[at : at + chance.randrange(1, 16)]
            case 3:
                data[at:at] = data[at : at + chance.randrange(1, 64)]
            case 4:
                data[at:] = chance.choice(others)[at:]
            case _:
                data[2:4] = chance.randrange(20).to_bytes(2, "big")  # another version
    return bytes(data)


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
            pass  # nothing to read yet, or nobody reads what we send
        except OSError:
            one.close()
            self._open[place] = None

    def close(self) -> None:
        """Go."""
        for one in self._open:
            if one is not None:
                one.close()


def run(*, seconds: float, seed: int, rate: int) -> dict[str, Any]:
    """Attack a replica for so long, with `rate` frames a second (0: as fast as can be); return the report."""
    chance, frames = random.Random(seed), corpus()
    with subprocess.Popen(
        [sys.executable, "-m", "tools.fuzz.victim"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as victim:
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
                strangers.send(mutated(chance.choice(frames), chance, frames))
            during = report()
            strangers.close()
            time.sleep(WARM_S)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; the exit status says whether all held."""
    parser = argparse.ArgumentParser(prog="tools.fuzz.port", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--rate", type=int, default=1_000, help="frames a second; 0: as fast as can be")
    options = parser.parse_args(arguments)
    found = run(seconds=options.seconds, seed=options.seed, rate=options.rate)
    print(json.dumps(found))
    wrong = complaints(found)
    for line in wrong:
        print(f"fuzz: {line} (--seed {options.seed})", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
