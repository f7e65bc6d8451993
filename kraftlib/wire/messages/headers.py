"""The headers that stand before every request and response.

A request of a flexible version has header version 2, else 1; a response of a flexible version has 1, else 0,
and that of ApiVersions always has 0.
"""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, int16, int32, message, string


@message(kind="header", versions="1-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RequestHeader(Message):
    """The header of a request: API, version and client. The client id never has a compact length."""

    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible="none")


@message(kind="header", versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ResponseHeader(Message):
    """Which request is answered."""

    correlation_id: int = int32("0+")
