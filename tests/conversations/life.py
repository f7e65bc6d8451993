"""The lives of two real quorums (tests/data), told message by message: who asked whom, when, and what was answered.

What the captures do not hold is told here as stage directions: when a controller was started, killed or stopped. They
can be read off the captures (correlation ids begin anew, answers end), and were.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, Final

import attrs

from kraftlib.records.batch import Batch, read_batches
from kraftlib.types import ZERO_UUID, Endpoint, OffsetAndEpoch, ReplicaKey
from kraftlib.wire import frames
from kraftlib.wire.apis import ApiKey
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tests.captured import DATA, pairs

RAFT_APIS: Final = {
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
}
"""What the core answers and asks; the rest is for controllers."""


@attrs.frozen(kw_only=True, eq=False)
class Pair:
    """A question and its answer, if one came."""

    sent_ms: float
    answered_ms: float | None
    source: int | None
    """Id of the replica that asked; None for a tool."""
    target: int
    head: frames.Request
    response: Any
    frame: bytes

    @property
    def request(self) -> Any:
        """The question."""
        return self.head.message

    @property
    def version(self) -> int:
        """Version of both messages."""
        return self.head.api_version

    def __str__(self) -> str:
        kind = type(self.request).__name__.removesuffix("Request")
        return f"{kind} at {self.sent_ms:.1f} {self.source} -> {self.target}"


@attrs.frozen(kw_only=True)
class Run:
    """One process of a controller: from its start to its end."""

    start_ms: float
    stop_ms: float | None = None
    """When it was told to stop gracefully; None: it was killed, or lived on."""
    end_ms: float = float("inf")


def fetch_partition(message: Any) -> Any:
    """The one partition of a Fetch or its answer."""
    topics = message.topics if isinstance(message, FetchRequest) else message.responses
    return topics[0].partitions[0]


def fetch_error(response: FetchResponse) -> int:
    """The error of an answer to Fetch, wherever it stands."""
    error: int = response.error_code or fetch_partition(response).error_code
    return error


@attrs.frozen(kw_only=True, slots=False)
class Life:
    """All that a quorum said."""

    release: str
    pairs: tuple[Pair, ...]
    batches: tuple[Batch, ...]
    """The log of controller 1, which reaches from offset 0 to the end."""
    cluster_id: str
    keys: dict[int, ReplicaKey]
    runs: dict[int, tuple[Run, ...]]
    ports: int
    """Port of node 0."""
    is_static: bool
    snapshots: tuple[OffsetAndEpoch, ...]
    """Snapshots that the controllers made, all of them alike."""

    def endpoint(self, node_id: int) -> Endpoint:
        """Where a controller is reached."""
        return Endpoint("127.0.0.1", self.ports + node_id)

    def asked_of(self, node_id: int) -> Iterator[Pair]:
        """What a controller was asked, in the order of arrival."""
        return (pair for pair in self.pairs if pair.target == node_id)

    def asked_by(self, node_id: int) -> Iterator[Pair]:
        """What a controller asked, in the order of sending."""
        return (pair for pair in self.pairs if pair.source == node_id)

    @cached_property
    def refused_fetches(self) -> tuple[Pair, ...]:
        """The Fetches that were answered with an error."""
        return tuple(
            pair
            for pair in self.pairs
            if isinstance(pair.request, FetchRequest) and pair.response is not None and fetch_error(pair.response)
        )

    def listens(self, node_id: int, at_ms: float) -> bool:
        """Whether that controller answered at that time: from its first answer on, as long as its process ran."""
        for run in self.runs[node_id]:
            if run.start_ms <= at_ms < run.end_ms:
                answered = (pair.answered_ms for pair in self.asked_of(node_id) if pair.sent_ms >= run.start_ms)
                return next((first is not None and first <= at_ms for first in answered), False)
        return False


RUNS: Final[dict[str, dict[int, tuple[Run, ...]]]] = {
    "kafka-4.3.1": {
        1: (Run(start_ms=-500, stop_ms=38_558.5, end_ms=38_662), Run(start_ms=45_200)),
        2: (Run(start_ms=-500, stop_ms=70_596.5),),
        3: (Run(start_ms=-408, end_ms=22_464), Run(start_ms=30_890, end_ms=70_596)),
        10: (Run(start_ms=5_630, end_ms=69_760),),
        4: (Run(start_ms=53_415, stop_ms=69_766, end_ms=69_770),),
    },
    "kafka-3.9.2": {
        1: (Run(start_ms=-1_000, stop_ms=37_067, end_ms=37_130), Run(start_ms=43_470)),
        2: (Run(start_ms=-1_000, stop_ms=55_264.5),),
        10: (Run(start_ms=6_035, end_ms=54_763),),
        3: (Run(start_ms=-1_000, end_ms=21_459), Run(start_ms=29_440, stop_ms=54_760, end_ms=54_770)),
    },
}

PORTS: Final = {"kafka-4.3.1": 9400, "kafka-3.9.2": 9500}

SNAPSHOTS: Final = {"kafka-4.3.1": ((81, 1), (159, 4), (272, 4)), "kafka-3.9.2": ((86, 1),)}


@cache
def life(release: str) -> Life:
    """Read a life."""
    told = [_pair(pair) for pair in pairs(release, "life") if pair["api_key"] in RAFT_APIS and pair["port"] % 100 < 10]
    log = next((DATA / release / "n1").glob("*/00000000000000000000.log"))
    keys: dict[int, ReplicaKey] = {}
    for pair in told:
        if isinstance(pair.request, FetchRequest):
            directory_id = pair.request.topics[0].partitions[0].replica_directory_id
            known = pair.source if pair.source is not None else -1
            keys.setdefault(known, ReplicaKey(known, None if directory_id == ZERO_UUID else directory_id))
    return Life(
        release=release,
        pairs=tuple(sorted(told, key=lambda pair: pair.sent_ms)),
        batches=read_batches(log.read_bytes()),
        cluster_id=str(told[0].request.cluster_id),
        keys=keys,
        runs=RUNS[release],
        ports=PORTS[release],
        is_static=release == "kafka-3.9.2",
        snapshots=tuple(OffsetAndEpoch(offset=offset, epoch=epoch) for offset, epoch in SNAPSHOTS[release]),
    )


def _pair(told: dict[str, Any]) -> Pair:
    head = frames.decode_request(told["request"])
    client, _, number = (head.client_id or "").rpartition("-")
    response = None
    if told["response"]:
        _, response = frames.decode_response(told["response"], api_key=head.api_key, version=head.api_version)
    return Pair(
        sent_ms=told["ms"],
        answered_ms=told["ms"] + told["answer_ms"] if told["response"] else None,
        source=int(number) if client == "raft-client" else None,
        target=told["port"] % 100,
        head=head,
        response=response,
        frame=told["request"],
    )
