"""`python -m tools.bench.watchers PLACE … --observers N`: N observers in one process, for `dev.py bench --observers`.

Each has a connection of its own and fetches as a Kafka broker does, with an id and a directory id, and keeps nothing.
Behind a tree they are spread over the places, and mark their Fetches as an observer of kraftlib with `upstreams` does.
It has a record once it also knows that it is committed. The first 8 bytes of a record's value say when it was appended,
in ns of CLOCK_MONOTONIC, which processes share. A line says that all have fetched; when stdin ends, another one says
when all had each record.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from kraftlib.consensus.extensions.upstreams import MARK
from kraftlib.records.batch import parse_header, read_batch
from kraftlib.runtime.net.framing import FrameReader, framed
from kraftlib.types import METADATA_TOPIC_ID, Offset, parse_endpoint
from kraftlib.wire.fetch_template import FetchRequestTemplate
from kraftlib.wire.frames import MAX_FRAME_BYTES, decode_response, encode_request
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse

FIRST_ID: Final = 1_000
VERSION: Final = 18
CLIENT_ID: Final = "observer"
BODY_AT: Final = 8 + 2 + len(CLIENT_ID) + 1
STAMP: Final = struct.Struct(">q")


class Arrivals:
    """Says when all observers had a record."""

    def __init__(self, observers: int) -> None:
        self._observers: Final = observers
        self._stamps: Final[dict[Offset, int | None]] = {}
        self._counts: Final[dict[Offset, int]] = {}
        self.answers = 0
        """Number of all answers."""
        self.arrivals: Final[list[tuple[int, int]]] = []
        """When each record was appended, and when the last observer had it, in ns."""

    def learn(self, records: Any) -> tuple[Offset, int] | None:
        """Take the records of an answer; return their end and the epoch of the last one."""
        position, last = 0, None
        while position < len(records):
            header = parse_header(records, position)
            if header.base_offset not in self._stamps:
                batch = read_batch(records, position)
                values = [None] if header.is_control else [STAMP.unpack_from(value)[0] for value in batch.values()]
                self._stamps.update(enumerate(values, header.base_offset))
            position += header.size
            last = header.last_offset + 1, header.epoch
        return last

    def has(self, start: Offset, end: Offset) -> None:
        """An observer has the committed records `[start, end)`."""
        for offset in range(start, end):
            stamp = self._stamps[offset]
            count = self._counts[offset] = self._counts.get(offset, 0) + 1
            if stamp is not None and count == self._observers:
                self.arrivals.append((stamp, time.monotonic_ns()))


class Observer(asyncio.Protocol):
    """One observer. `first_answer` is set once its first Fetch was answered without an error."""

    def __init__(self, number: int, arrivals: Arrivals, *, behind_tree: bool) -> None:
        self.first_answer: Final = asyncio.get_running_loop().create_future()
        self._arrivals: Final = arrivals
        self._reader: Final = FrameReader(MAX_FRAME_BYTES)
        self._request: Final = _request(FIRST_ID + number, MARK if behind_tree else ())
        self._correlation_id = 0
        self._epoch = self._last_epoch = 0
        self._end = self._known = 0
        self._high_watermark = -1

    def connection_made(self, transport: Any) -> None:
        """Fetch."""
        self._transport = transport
        self._fetch()

    def data_received(self, data: bytes) -> None:
        """Take an answer, and fetch again."""
        self._reader.feed(data)
        while (frame := self._reader.next_frame()) is not None:
            _, message = decode_response(frame, api_key=FetchResponse.api_key, version=VERSION)
            self._take(message)
            self._fetch()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the caller that waits for the first answer."""
        if not self.first_answer.done():
            self.first_answer.set_exception(ConnectionError(f"the other side closed the connection: {error}"))

    def _take(self, message: Any) -> None:
        self._arrivals.answers += 1
        partition = message.responses[0].partitions[0]
        if partition.error_code:
            self._epoch = partition.current_leader.leader_epoch
            return
        if (last := self._arrivals.learn(partition.records or b"")) is not None:
            self._end, self._last_epoch = last
        self._high_watermark = partition.high_watermark
        committed = min(self._end, self._high_watermark)
        if committed > self._known:
            self._arrivals.has(self._known, committed)
            self._known = committed
        if not self.first_answer.done():
            self.first_answer.set_result(None)

    def _fetch(self) -> None:
        self._correlation_id += 1
        frame = self._request.frame(
            correlation_id=self._correlation_id,
            current_leader_epoch=self._epoch,
            fetch_offset=self._end,
            last_fetched_epoch=self._last_epoch,
            high_watermark=self._high_watermark,
        )
        self._transport.write(framed(frame))


def _request(replica_id: int, mark: tuple[tuple[int, bytes], ...]) -> FetchRequestTemplate:
    partition = FetchRequest.FetchPartition(replica_directory_id=UUID(int=replica_id), high_watermark=-1)
    topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    state = FetchRequest.ReplicaState(replica_id=replica_id)
    request = FetchRequest(
        cluster_id="bench", replica_state=state, max_wait_ms=500, max_bytes=1 << 20, topics=(topic,),
        unknown_tagged_fields=mark,
    )  # fmt: skip
    example = encode_request(request, version=VERSION, correlation_id=0, client_id=CLIENT_ID)
    return FetchRequestTemplate(example=example, position_at=BODY_AT + 43, watermark_at=BODY_AT + 92)


async def watch(places: Sequence[str], observers: int, *, behind_tree: bool) -> None:
    """Fetch until stdin ends."""
    loop, arrivals = asyncio.get_running_loop(), Arrivals(observers)
    for number in range(observers):
        make = partial(Observer, number, arrivals, behind_tree=behind_tree)
        endpoint = parse_endpoint(places[number % len(places)])
        _, observer = await loop.create_connection(make, endpoint.host, endpoint.port)
        await observer.first_answer
    print(json.dumps({"ready": observers}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps({"answers": arrivals.answers, "arrivals": arrivals.arrivals}), flush=True)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", metavar="PLACE", help="host:port of the leader, or of the upstreams")
    parser.add_argument("--observers", type=int, required=True)
    parser.add_argument("--behind-tree", action="store_true", help="the places are upstreams")
    options = parser.parse_args()
    asyncio.run(watch(options.places, options.observers, behind_tree=options.behind_tree))


if __name__ == "__main__":
    main()
