"""Fetch by template: the one exchange that runs for every batch does not go through the general codec.

Two Fetch requests of one follower differ in five numbers, two answers of one leader in three and in their records. All
of these stand at fixed places, so a frame that the general codec has made or read is the template of those that follow:
numbers are put in or taken out, and everything else is compared as it stands. A frame that differs in any other way
(another number of topics, unknown tags, a new value) is left to the general codec, and its result may become the next
template. So both ways agree, byte for byte and field for field.

    request     0 api key, version | 4 correlation id | 8 client id, tags | then the body:
                0 … | 43 epoch int32, offset int64, last epoch int32 | 59 … | 92 high watermark int64 | 100 …
    response    0 correlation id | 4 … | 39 high watermark int64 | 47 … | 55 log start offset int64 | 63 … |
                68 records with their size | …

A request of version 17 has no high watermark; responses of both versions are alike.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import attrs

from kraftlib.codec import declared
from kraftlib.codec.reader import Buffer, Reader
from kraftlib.codec.varint import encode_uvarint
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse

VERSIONS: Final = (17, 18)
MAX_TEMPLATES: Final = 2_048
"""Templates of each kind. A leader needs one or two for each replica that fetches from it; if unknown clients need
more, all are learned anew."""

EXAMPLE_MAX_BYTES: Final = 512
"""A longer frame, with endless names in it, is no example: it would stay in memory."""

_HEAD: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_POSITION: Final = struct.Struct(">iqi")
_OFFSET: Final = struct.Struct(">q")

_POSITION_AT: Final = 43
_REQUEST_WATERMARK_AT: Final = 92
_BODY_MIN: Final = 100
_NO_WATERMARK: Final = 0x7FFFFFFFFFFFFFFF

_RESPONSE_BODY_AT: Final = 5
_RESPONSE_WATERMARK_AT: Final = 39
_LOG_START_AT: Final = 55
_RECORDS_AT: Final = 68

T = TypeVar("T")


def _remember(memory: dict[Any, T], key: Any, value: T) -> None:
    if len(memory) >= MAX_TEMPLATES:
        memory.clear()
    memory[key] = value


# Requests -----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class FetchRequestTemplate:
    """A request to put numbers into. The version is that of the example."""

    example: bytes
    position_at: int
    watermark_at: int | None

    def frame(
        self,
        *,
        correlation_id: int,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        high_watermark: int,
    ) -> bytes:
        """Return a request like the example, with these numbers. Raises: struct.error, if one of them is too large."""
        frame = bytearray(self.example)
        _CORRELATION_ID.pack_into(frame, 4, correlation_id)
        _POSITION.pack_into(frame, self.position_at, current_leader_epoch, fetch_offset, last_fetched_epoch)
        if self.watermark_at is not None:
            _OFFSET.pack_into(frame, self.watermark_at, high_watermark)
        return bytes(frame)


_request_templates: dict[Any, FetchRequestTemplate] = {}
_request_examples: dict[bytes, tuple[str, FetchRequest]] = {}

_request_values: Final[Callable[[FetchRequest], tuple[Any, ...]]] = attrgetter(
    "cluster_id",
    "replica_id",
    "replica_state.replica_id",
    "replica_state.replica_epoch",
    "max_wait_ms",
    "min_bytes",
    "max_bytes",
    "isolation_level",
    "session_id",
    "session_epoch",
    "rack_id",
    "unknown_tagged_fields",
)
_fetch_values: Final[Callable[[FetchRequest.FetchPartition], tuple[Any, ...]]] = attrgetter(
    "partition", "log_start_offset", "partition_max_bytes", "replica_directory_id.int"
)


def encode_request(request: FetchRequest, *, version: int, correlation_id: int, client_id: str | None) -> bytes | None:
    """Return the frame of a request like one that was learned; None, if there was none."""
    template = _request_templates.get(_request_key(request, version, client_id))
    if template is None:
        return None
    partition = request.topics[0].partitions[0]
    try:
        return template.frame(
            correlation_id=correlation_id,
            current_leader_epoch=partition.current_leader_epoch,
            fetch_offset=partition.fetch_offset,
            last_fetched_epoch=partition.last_fetched_epoch,
            high_watermark=partition.high_watermark,
        )
    except struct.error:
        return None  # the general codec says which field it is


def decode_request(frame: Buffer) -> tuple[int, int, str, FetchRequest] | None:
    """Read a request like one that was learned: version, correlation id, client id, message; None, if none was."""
    if len(frame) < _HEAD.size:
        return None
    _, version, correlation_id, size = _HEAD.unpack_from(frame)
    body = _HEAD.size + size + 1
    if version not in VERSIONS or size < 0 or len(frame) < body + _BODY_MIN:
        return None
    example = _request_examples.get(_request_rest(frame, version, body))
    if example is None:
        return None
    client_id, request = example
    topic = request.topics[0]
    old = topic.partitions[0]
    epoch, offset, last_epoch = _POSITION.unpack_from(frame, body + _POSITION_AT)
    partition = FetchRequest.FetchPartition(
        partition=old.partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=old.log_start_offset,
        partition_max_bytes=old.partition_max_bytes,
        replica_directory_id=old.replica_directory_id,
        high_watermark=_NO_WATERMARK if version == 17 else _OFFSET.unpack_from(frame, body + _REQUEST_WATERMARK_AT)[0],
    )
    message = FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=request.replica_state,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=(FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=(partition,)),),
        rack_id=request.rack_id,
        unknown_tagged_fields=request.unknown_tagged_fields,
    )
    return version, correlation_id, client_id, message


def learn_request(frame: Buffer, message: FetchRequest) -> None:
    """Take a frame of `message` that the general codec has just made or read, to make and to read others like it."""
    _, version, _, size = _HEAD.unpack_from(frame)
    body = _HEAD.size + size + 1
    if version not in VERSIONS or size < 0 or len(frame) > EXAMPLE_MAX_BYTES or frame[body - 1] != 0:
        return
    client_id = str(frame[_HEAD.size : body - 1], "utf-8")
    key = _request_key(message, version, client_id)
    if key is None:
        return
    # Read again, because a message of ours may hold what does not go over the wire.
    request = declared.read(FetchRequest, Reader(frame, body), version)
    if declared.write(request, version) != frame[body:]:
        return
    template = FetchRequestTemplate(
        example=bytes(frame),
        position_at=body + _POSITION_AT,
        watermark_at=None if version == 17 else body + _REQUEST_WATERMARK_AT,
    )
    _remember(_request_templates, key, template)
    _remember(_request_examples, _request_rest(frame, version, body), (client_id, request))


def _request_key(request: FetchRequest, version: int, client_id: str | None) -> Any:
    """Return all that a template stands for; None, if a request cannot be made from one."""
    if version not in VERSIONS or client_id is None or len(request.topics) != 1:
        return None
    topic = request.topics[0]
    if len(topic.partitions) != 1:
        return None
    partition = topic.partitions[0]
    if (
        request.forgotten_topics_data
        or request.replica_state.unknown_tagged_fields
        or topic.unknown_tagged_fields
        or partition.unknown_tagged_fields
    ):
        return None
    if version > 17 and (partition.high_watermark == _NO_WATERMARK or not partition.replica_directory_id.int):
        return None  # then a tag is left out, and the fields after it stand elsewhere
    return version, client_id, topic.topic_id.int, _request_values(request), _fetch_values(partition)


def _request_rest(frame: Buffer, version: int, body: int) -> bytes:
    """Return a request without the numbers that change."""
    position_at = body + _POSITION_AT
    if version == 17:
        return b"".join((frame[:4], frame[8:position_at], frame[position_at + 16 :]))
    watermark_at = body + _REQUEST_WATERMARK_AT
    return b"".join(
        (frame[:4], frame[8:position_at], frame[position_at + 16 : watermark_at], frame[watermark_at + 8 :])
    )


# Responses ----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class FetchResponseTemplate:
    """The bytes before and behind the records of a response."""

    head: bytes
    tail: bytes

    def parts(
        self, *, correlation_id: int, high_watermark: int, log_start_offset: int, pieces: Sequence[Buffer]
    ) -> list[Buffer]:
        """Return an answer like the example in pieces. Raises: struct.error, if a number is too large."""
        head = bytearray(self.head)
        _CORRELATION_ID.pack_into(head, 0, correlation_id)
        _OFFSET.pack_into(head, _RESPONSE_WATERMARK_AT, high_watermark)
        _OFFSET.pack_into(head, _LOG_START_AT, log_start_offset)
        head += encode_uvarint(sum(map(len, pieces)) + 1)
        return [head, *pieces, self.tail]


_response_templates: dict[Any, FetchResponseTemplate] = {}
_response_examples: dict[tuple[int, bytes], FetchResponse] = {}

_response_values: Final[Callable[[FetchResponse], tuple[Any, ...]]] = attrgetter(
    "throttle_time_ms", "error_code", "session_id"
)
_answer_values: Final[Callable[[FetchResponse.PartitionData], tuple[Any, ...]]] = attrgetter(
    "partition_index",
    "error_code",
    "last_stable_offset",
    "diverging_epoch.epoch",
    "diverging_epoch.end_offset",
    "current_leader.leader_id",
    "current_leader.leader_epoch",
    "snapshot_id.end_offset",
    "snapshot_id.epoch",
    "preferred_read_replica",
)
_answer_unknown: Final[Callable[[FetchResponse.PartitionData], tuple[Any, ...]]] = attrgetter(
    "unknown_tagged_fields",
    "diverging_epoch.unknown_tagged_fields",
    "current_leader.unknown_tagged_fields",
    "snapshot_id.unknown_tagged_fields",
)
_NOTHING_UNKNOWN: Final = ((), (), (), ())
_endpoint_values: Final[Callable[[FetchResponse.NodeEndpoint], tuple[Any, ...]]] = attrgetter(
    "node_id", "host", "port", "rack"
)


def encode_response(
    response: FetchResponse, *, version: int, correlation_id: int, pieces: Sequence[Buffer]
) -> bytes | None:
    """Return the frame of an answer like one that was learned, with these records; None, if there was none.

    The records come in pieces, batch by batch, and are copied here for the only time.
    """
    template = _response_templates.get(_response_key(response, version))
    if template is None:
        return None
    partition = response.responses[0].partitions[0]
    try:
        return b"".join(
            template.parts(
                correlation_id=correlation_id,
                high_watermark=partition.high_watermark,
                log_start_offset=partition.log_start_offset,
                pieces=pieces,
            )
        )
    except struct.error:
        return None  # the general codec says which field it is


def decode_response(frame: Buffer, version: int) -> tuple[int, FetchResponse] | None:
    """Read an answer like one that was learned: correlation id, message; None, if there was none."""
    if version not in VERSIONS or len(frame) <= _RECORDS_AT:
        return None
    place = _records_in(frame)
    if place is None:
        return None
    start, end = place
    response = _response_examples.get((version, _response_rest(frame, end)))
    if response is None:
        return None
    topic = response.responses[0]
    old = topic.partitions[0]
    partition = FetchResponse.PartitionData(
        partition_index=old.partition_index,
        error_code=old.error_code,
        high_watermark=_OFFSET.unpack_from(frame, _RESPONSE_WATERMARK_AT)[0],
        last_stable_offset=old.last_stable_offset,
        log_start_offset=_OFFSET.unpack_from(frame, _LOG_START_AT)[0],
        diverging_epoch=old.diverging_epoch,
        current_leader=old.current_leader,
        snapshot_id=old.snapshot_id,
        aborted_transactions=old.aborted_transactions,
        preferred_read_replica=old.preferred_read_replica,
        records=memoryview(frame)[start:end],
    )
    message = FetchResponse(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        responses=(FetchResponse.FetchableTopicResponse(topic_id=topic.topic_id, partitions=(partition,)),),
        node_endpoints=response.node_endpoints,
    )
    return _CORRELATION_ID.unpack_from(frame)[0], message


def _records_in(frame: Buffer) -> tuple[int, int] | None:
    """Return where the records of an answer begin and end; None, if they are null or the general codec refuses them."""
    size = shift = 0  # one more than that of the records
    for at in range(_RECORDS_AT, min(_RECORDS_AT + 5, len(frame))):
        size |= (frame[at] & 0x7F) << shift
        if frame[at] < 0x80:
            return (at + 1, at + size) if 0 < size <= len(frame) - at else None
        shift += 7
    return None


def learn_response(frame: Buffer, message: FetchResponse, version: int) -> None:
    """Take a frame of `message` that the general codec has just made or read, to make and to read others like it."""
    if version not in VERSIONS or len(frame) <= _RECORDS_AT or frame[_RESPONSE_BODY_AT - 1] != 0:
        return
    key = _response_key(message, version)
    if key is None or message.responses[0].partitions[0].records is None:
        return
    reader = Reader(frame, _RECORDS_AT)
    reader.skip(reader.uvarint() - 1)
    head, tail = bytes(frame[:_RECORDS_AT]), bytes(frame[reader.position :])
    if len(tail) > EXAMPLE_MAX_BYTES:
        return
    # An example must not keep megabytes alive, so it is one without records.
    example = declared.read(FetchResponse, head[_RESPONSE_BODY_AT:] + b"\x01" + tail, version)
    if declared.write(example, version) != head[_RESPONSE_BODY_AT:] + b"\x01" + tail:
        return
    _remember(_response_templates, key, FetchResponseTemplate(head=head, tail=tail))
    _remember(_response_examples, (version, _response_rest(frame, reader.position)), example)


def _response_key(response: FetchResponse, version: int) -> Any:
    """Return all that a template stands for; None, if an answer cannot be made from one."""
    if version not in VERSIONS or len(response.responses) != 1 or len(response.node_endpoints) > 1:
        return None
    topic = response.responses[0]
    if len(topic.partitions) != 1 or topic.unknown_tagged_fields or response.unknown_tagged_fields:
        return None
    partition = topic.partitions[0]
    if partition.aborted_transactions or _answer_unknown(partition) != _NOTHING_UNKNOWN:
        return None
    endpoint = None
    if response.node_endpoints:
        endpoint = _endpoint_values(response.node_endpoints[0])
        if response.node_endpoints[0].unknown_tagged_fields:
            return None
    no_transactions = partition.aborted_transactions is None
    return version, topic.topic_id.int, no_transactions, _response_values(response), _answer_values(partition), endpoint


def _response_rest(frame: Buffer, tail_at: int) -> bytes:
    """Return an answer without the numbers that change and without records."""
    return b"".join((frame[4:39], frame[47:55], frame[63:68], frame[tail_at:]))
