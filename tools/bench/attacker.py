"""`python -m tools.bench.attacker HOST:PORT,… --rate N --seconds S`: frames of a stranger, at a constant rate.

All frames are drawn before the first one leaves: to encode a large one takes as long as ten are sent. `--burst N` sends
N frames at once, and pauses for as long as they would have taken.

A stranger reaches the ports and has neither certificate nor secret. It speaks as the voters, raises epochs, resigns in
the leader's name, removes voters, announces frames that never come, asks for more than there can be, logs in with a
wrong password, and keeps connections that say nothing. With `--tls` every second frame begins a handshake that it does
not end: that costs it nothing, and the other side a key exchange and a signature. A connection that is closed is made
anew. It runs at the lowest priority, so that its cost for others is the work it makes them do. It prints a line when it
begins, and at the end one line of JSON: its deeds, and how late the frames left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import socket
import ssl
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint, parse_endpoint
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest
from kraftlib.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlib.wire.messages.sasl_handshake import SaslHandshakeRequest
from kraftlib.wire.messages.vote import VoteRequest

CONNECTIONS_MAX: Final = 48
"""Open at one time, the silent ones included."""

ALONE: Final = frozenset({"garbage", "http", "announced", "silence", "login", "hello"})
"""Kinds of frames after which nothing else may follow on their connection."""

VOTERS: Final = (1, 2, 3)
EPOCHS: Final = range(1, 1_000)


class Stranger:
    """The frames of one stranger, drawn from a seed."""

    def __init__(self, seed: int, cluster_id: str | None, *, tls: bool = False) -> None:
        self._random: Final = random.Random(seed)
        self._cluster_id: Final = cluster_id
        self._kinds: Final[dict[str, Callable[[], bytes]]] = {
            "garbage": lambda: self._random.randbytes(self._random.randint(1, 200)),
            "http": lambda: b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
            "announced": lambda: (100 << 20).to_bytes(4, "big") + b"\0" * 64,
            "vote": lambda: self._framed(self._vote(), 2),
            "begin": lambda: self._framed(self._begin(), 1),
            "end": lambda: self._framed(self._end(), 1),
            "fetch": lambda: self._framed(self._fetch(), 17),
            "remove": lambda: self._framed(self._remove(), 0),
            "describe": lambda: self._framed(DescribeQuorumRequest(), 1),
            "versions": lambda: self._framed(ApiVersionsRequest(client_software_name="stranger"), 3),
            "login": lambda: self._login(),
            "wide": lambda: self._wide(),
            "silence": lambda: b"",
        }
        self._tls: Final = tls

    def draw(self) -> tuple[str, bytes]:
        """Return the kind of the next frame, and its bytes with their length."""
        if self._tls and self._random.random() < 0.5:
            return "hello", client_hello()
        kind = self._random.choice(list(self._kinds))
        return kind, self._kinds[kind]()

    def _framed(self, message: Message, version: int) -> bytes:
        frame = encode_request(message, version=version, correlation_id=1, client_id="stranger")
        return len(frame).to_bytes(4, "big") + frame

    def _voter(self) -> int:
        return self._random.choice(VOTERS)

    def _vote(self) -> VoteRequest:
        epoch = self._random.choice(EPOCHS)
        row = VoteRequest.PartitionData(
            replica_epoch=epoch, replica_id=self._voter(), last_offset_epoch=epoch - 1, last_offset=1 << 40,
            pre_vote=self._random.random() < 0.5,
        )  # fmt: skip
        topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
        return VoteRequest(cluster_id=self._cluster_id, voter_id=-1, topics=(topic,))

    def _begin(self) -> BeginQuorumEpochRequest:
        row = BeginQuorumEpochRequest.PartitionData(leader_id=self._voter(), leader_epoch=self._random.choice(EPOCHS))
        topic = BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
        return BeginQuorumEpochRequest(cluster_id=self._cluster_id, voter_id=-1, topics=(topic,))

    def _end(self) -> EndQuorumEpochRequest:
        row = EndQuorumEpochRequest.PartitionData(leader_id=self._voter(), leader_epoch=self._random.choice(EPOCHS))
        topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
        return EndQuorumEpochRequest(cluster_id=self._cluster_id, topics=(topic,))

    def _fetch(self) -> FetchRequest:
        row = FetchRequest.FetchPartition(
            partition_max_bytes=1 << 30, fetch_offset=self._random.choice((0, 1, 1 << 40)), last_fetched_epoch=1,
            current_leader_epoch=self._random.choice(EPOCHS),
        )  # fmt: skip
        topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(row,))
        who = FetchRequest.ReplicaState(replica_id=self._voter())
        return FetchRequest(
            cluster_id=self._cluster_id, replica_state=who, max_bytes=1 << 30, max_wait_ms=60_000, topics=(topic,)
        )

    def _remove(self) -> RemoveRaftVoterRequest:
        return RemoveRaftVoterRequest(
            cluster_id=self._cluster_id, voter_id=self._voter(), voter_directory_id=uuid.UUID(int=1)
        )

    def _login(self) -> bytes:
        name = f"replica-{self._voter()}"
        first = f"n,,n={name},r={self._random.getrandbits(64):016x}".encode()
        return self._framed(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1) + self._framed(
            SaslAuthenticateRequest(auth_bytes=first), 2
        )

    def _wide(self) -> bytes:
        """An array of thousands of elements where one is meant."""
        row = VoteRequest.PartitionData(replica_epoch=1, replica_id=1)
        topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,) * 4_000)
        return self._framed(VoteRequest(cluster_id=self._cluster_id, voter_id=-1, topics=(topic,)), 0)


def client_hello() -> bytes:
    """Return the first flight of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


class Connections:
    """Connections to the ports under attack, as many as are allowed."""

    def __init__(self, targets: Sequence[Endpoint], seed: int) -> None:
        self._targets: Final = targets
        self._random: Final = random.Random(seed)
        self._open: Final[list[socket.socket]] = []
        self.counts: Final[Counter[str]] = Counter()

    def send(self, data: bytes, *, alone: bool) -> None:
        """Send over any open connection, or over a new one. After nonsense nothing else may follow (`alone`)."""
        self._sweep()
        if not self._open or alone or len(self._open) < CONNECTIONS_MAX // 2:
            self._connect()
        if not self._open:
            return
        chosen = self._open[-1] if alone else self._random.choice(self._open)
        try:
            chosen.send(data)
        except OSError:
            self._drop(chosen)

    def close(self) -> None:
        """Close what is open."""
        for each in list(self._open):
            self._drop(each)

    def _connect(self) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            self._drop(self._open[0])
        target = self._random.choice(self._targets)
        made = socket.socket(socket.AF_INET6 if ":" in target.host else socket.AF_INET, socket.SOCK_STREAM)
        made.settimeout(0.2)
        try:
            made.connect((target.host, target.port))
        except OSError as error:
            self.counts[f"not connected: {type(error).__name__}"] += 1
            made.close()
            return
        made.setblocking(False)
        self.counts["connections"] += 1
        self._open.append(made)

    def _sweep(self) -> None:
        """Take what was answered, and let those go that were closed."""
        readable, _, _ = select.select(self._open, [], [], 0)
        for each in readable:
            try:
                data = each.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.counts["closed by the other side"] += 1
                self._drop(each)
            else:
                self.counts["answers"] += 1

    def _drop(self, which: socket.socket) -> None:
        with contextlib.suppress(ValueError):
            self._open.remove(which)
        which.close()


def attack(
    frames: Sequence[tuple[str, bytes]], connections: Connections, *, rate: int, burst: int = 1
) -> dict[str, int]:
    """Send `rate` frames a second, so many at once; return what was done, by kind, and how late frames left, in µs."""
    late: list[float] = []
    began = time.monotonic()
    for number, (kind, data) in enumerate(frames):
        due = began + number // burst * burst / rate
        while (now := time.monotonic()) < due:
            time.sleep(due - now)
        late.append(now - due)
        connections.send(data, alone=kind in ALONE)
    connections.close()
    late.sort()
    return {
        "frames": len(frames),
        "rate": round(len(frames) / (time.monotonic() - began)),
        "late p50": round(late[len(late) // 2] * 1e6),
        "late p99": round(late[len(late) * 99 // 100] * 1e6),
        **connections.counts,
        **{f"frame: {kind}": count for kind, count in Counter(kind for kind, _ in frames).items()},
    }


def main() -> None:
    """Attack what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", help="host:port,… of the replicas")
    parser.add_argument("--rate", type=int, default=1_000, help="frames a second (1000)")
    parser.add_argument("--burst", type=int, default=1, help="send so many of them at once (1)")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true", help="the ports speak TLS")
    parser.add_argument("--cluster-id", help="as a user who has read it somewhere knows it")
    options = parser.parse_args()
    os.nice(19)
    stranger = Stranger(options.seed, options.cluster_id, tls=options.tls)
    frames = [stranger.draw() for _ in range(round(options.rate * options.seconds))]
    print("begins", flush=True)
    targets = [parse_endpoint(text) for text in options.targets.split(",")]
    print(json.dumps(attack(frames, Connections(targets, options.seed), rate=options.rate, burst=options.burst)))


if __name__ == "__main__":
    main()
