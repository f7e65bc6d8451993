"""Requests and responses as frames: header and body, without the four length bytes in front of them.

    request    int16 api key, int16 version, int32 correlation id, int16-sized client id [, tags] | body
    response   int32 correlation id [, tags] | body

The tags are there in flexible versions; in the header of an ApiVersions response they never are, because its receiver
does not know yet what the sender speaks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import attrs

from kraftlib.codec import declared
from kraftlib.codec.declarations import Message
from kraftlib.codec.reader import Buffer, Reader
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.frozen import frozen
from kraftlib.wire import fetch_template
from kraftlib.wire.apis import ApiKey, ErrorCode, api
from kraftlib.wire.bounds import REQUEST_ELEMENTS
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.headers import RequestHeader, ResponseHeader

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""Kafka's `socket.request.max.bytes`. A greater length is refused before anything is allocated for it."""

_FETCH: Final = b"\x00\x01"
_HEAD: Final = struct.Struct(">hhi")
_HEAD_AND_SIZE: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_CLIENT_ID_SIZE: Final = struct.Struct(">h")


@frozen(kw_only=True)
class RequestHead:
    """The fields at the beginning of every request, of any API and version."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@frozen(kw_only=True)
class Request(RequestHead):
    """A request, decoded."""

    message: Message


class UnknownApiError(RemoteProtocolError):
    """The API of the request, or its version, is unknown. `head` names it, and the request to answer.

    An ApiVersions request can be answered all the same, with `refuse_api_versions`. For the others there is no answer
    that its sender could read: close the connection.
    """

    def __init__(self, message: str, *, head: RequestHead) -> None:
        super().__init__(message)
        self.head = head


# Requests -----------------------------------------------------------------------------------------


def encode_request(message: Message, *, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the frame of a request.

    Raises: LocalProtocolError, if this version of the message does not exist or cannot hold it.
    """
    if type(message) is FetchRequest:
        frame = fetch_template.encode_request(
            message, version=version, correlation_id=correlation_id, client_id=client_id
        )
        if frame is not None:
            return frame
    try:
        out = bytearray(_HEAD.pack(message.api_key, version, correlation_id))
    except struct.error:
        raise LocalProtocolError(f"version {version} and correlation id {correlation_id} fit no header") from None
    out += _encode_client_id(client_id)
    if version in message.flexible_versions:
        out.append(0)
    declared.write_into(out, message, version)
    frame = bytes(out)
    if type(message) is FetchRequest:
        fetch_template.learn_request(frame, message)
    return frame


@lru_cache(maxsize=64)
def _encode_client_id(client_id: str | None) -> bytes:
    if client_id is None:
        return b"\xff\xff"
    try:
        data = client_id.encode()
        return _CLIENT_ID_SIZE.pack(len(data)) + data
    except UnicodeEncodeError:
        raise LocalProtocolError(f"client id {client_id!r} has no UTF-8") from None
    except struct.error:
        raise LocalProtocolError(f"client id of {len(data)} bytes is too long") from None


def decode_request_head(frame: Buffer) -> RequestHead:
    """Return the header of a request, even if its API or version is unknown.

    Raises: RemoteProtocolError, if the frame is too short for it.
    """
    api_key, api_version, correlation_id, client_id = _read_head(Reader(frame))
    return RequestHead(api_key=api_key, api_version=api_version, correlation_id=correlation_id, client_id=client_id)


def _read_head(reader: Reader) -> tuple[int, int, int, str | None]:
    try:
        api_key, api_version, correlation_id, size = _HEAD_AND_SIZE.unpack_from(reader.data, reader.position)
    except struct.error:
        raise reader.short(_HEAD_AND_SIZE.size, "a request header") from None
    reader.position += _HEAD_AND_SIZE.size
    if size < -1:
        raise RemoteProtocolError(f"client id of {size} bytes")
    return api_key, api_version, correlation_id, None if size < 0 else reader.string(size)


def decode_request(frame: Buffer, *, elements_max: int = REQUEST_ELEMENTS) -> Request:
    """Read a request of at most so many array elements. Its records, if any, are views of `frame`.

    Raises: UnknownApiError, if we do not know its API or version; RemoteProtocolError, if the bytes do not follow it.
    """
    if frame[:2] == _FETCH:
        hot = fetch_template.decode_request(frame)
        if hot is not None:
            version, correlation_id, who, fetch = hot
            return Request(
                api_key=ApiKey.FETCH, api_version=version, correlation_id=correlation_id, client_id=who, message=fetch
            )
    reader = Reader(frame)
    reader.elements_left = elements_max
    api_key, api_version, correlation_id, client_id = _read_head(reader)
    known = api(api_key)
    if known is None or api_version not in known.versions:
        what = f"api key {api_key}" if known is None else f"version {api_version} of {known.key.name}"
        raise UnknownApiError(f"request of {what}, which we do not know", head=decode_request_head(frame))
    if api_version in known.request.flexible_versions:
        _skip_tags(reader, frame, RequestHeader, 2)
    message = declared.read(known.request, reader, api_version)
    if isinstance(message, FetchRequest):
        fetch_template.learn_request(frame, message)
    return Request(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
        message=message,
    )


# Responses ----------------------------------------------------------------------------------------


def encode_response(message: Message, *, version: int, correlation_id: int) -> bytes:
    """Return the frame of a response.

    Raises: LocalProtocolError, if this version of the message does not exist or cannot hold it.
    """
    if type(message) is FetchResponse and len(message.responses) == 1 and len(message.responses[0].partitions) == 1:
        records = message.responses[0].partitions[0].records
        if records is not None:
            frame = fetch_template.encode_response(
                message, version=version, correlation_id=correlation_id, pieces=(records,)
            )
            if frame is not None:
                return frame
    try:
        out = bytearray(_CORRELATION_ID.pack(correlation_id))
    except struct.error:
        raise LocalProtocolError(f"correlation id {correlation_id} fits no header") from None
    if _has_tags(message.api_key, version in message.flexible_versions):
        out.append(0)
    declared.write_into(out, message, version)
    frame = bytes(out)
    if type(message) is FetchResponse:
        fetch_template.learn_response(frame, message, version)
    return frame


def encode_fetch_response(
    response: FetchResponse, *, version: int, correlation_id: int, pieces: Sequence[bytes | memoryview]
) -> bytes:
    """Return the frame of a Fetch response with the records of `pieces`, joined, in its one partition.

    Else as `encode_response`.
    """
    frame = fetch_template.encode_response(response, version=version, correlation_id=correlation_id, pieces=pieces)
    if frame is not None:
        return frame
    (topic,) = response.responses
    (partition,) = topic.partitions
    partition = attrs.evolve(partition, records=b"".join(pieces))
    topic = attrs.evolve(topic, partitions=(partition,))
    return encode_response(attrs.evolve(response, responses=(topic,)), version=version, correlation_id=correlation_id)


def with_correlation_id(response: bytes, correlation_id: int) -> bytes:
    """Return the frame of a response as the answer to another request of the same version."""
    return _CORRELATION_ID.pack(correlation_id) + response[_CORRELATION_ID.size :]


def decode_response(frame: Buffer, *, api_key: int, version: int) -> tuple[int, Message]:
    """Read the response to a request of this API and version; return its correlation id and message.

    Raises: RemoteProtocolError, if the bytes do not follow it; LocalProtocolError, if we know no such response.
    """
    if api_key == ApiKey.FETCH:
        hot = fetch_template.decode_response(frame, version)
        if hot is not None:
            return hot
    known = api(api_key)
    if known is None or version not in known.versions:
        raise LocalProtocolError(f"api key {api_key} version {version} is none that we know, so we never asked it")
    reader = Reader(frame)
    correlation_id = reader.int32()
    if _has_tags(api_key, version in known.response.flexible_versions):
        _skip_tags(reader, frame, ResponseHeader, 1)
    message = declared.read(known.response, reader, version)
    if isinstance(message, FetchResponse):
        fetch_template.learn_response(frame, message, version)
    return correlation_id, message


def refuse_api_versions(correlation_id: int) -> bytes:
    """Return the answer to an ApiVersions request of a version that we do not know.

    It is in version 0, and holds the versions of ApiVersions itself, with one of which the client may ask again.
    """
    from kraftlib.wire.messages.api_versions import ApiVersionsResponse

    versions = ApiVersionsResponse.valid_versions
    entry = ApiVersionsResponse.ApiVersion(
        api_key=ApiKey.API_VERSIONS, min_version=versions.first, max_version=versions.last
    )
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(entry,))
    return encode_response(response, version=0, correlation_id=correlation_id)


def _has_tags(api_key: int, flexible: bool) -> bool:
    return flexible and api_key != ApiKey.API_VERSIONS


def _skip_tags(reader: Reader, frame: Buffer, header: type[Message], version: int) -> None:
    """Pass over the tags of a header, of which none is defined so far."""
    if reader.position < reader.end and reader.data[reader.position] == 0:
        reader.position += 1
        return
    # Rare enough to begin anew, with the codec that knows all about tags.
    whole = Reader(frame)
    declared.read(header, whole, version)
    reader.position = whole.position


# Frames that are not Kafka's --------------------------------------------------------------------------

# The first four bytes of each HTTP method, and of an answer.
_HTTP: Final = frozenset(
    {b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI ", b"HTTP"}
)


def describe_foreign_bytes(first_bytes: bytes) -> str | None:
    """Return the name of another protocol that begins like this, if it is recognized.

    `first_bytes` are the first four or more of a connection. As lengths, all that is recognised exceeds 100 MiB, so
    no frame is mistaken for it.
    """
    if first_bytes[:2] == b"\x16\x03":
        return "TLS, but this port is plaintext: either give it an ssl context or connect without TLS"
    if first_bytes[:2] == b"\x15\x03":
        return "a TLS alert: the other side gave up a TLS handshake, and this port is plaintext"
    if first_bytes[:4] in _HTTP:
        return "HTTP, but this port speaks Kafka's protocol"
    if first_bytes[:4] == b"SSH-":
        return "SSH, but this port speaks Kafka's protocol"
    return None
