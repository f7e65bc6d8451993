"""SaslAuthenticate (36): one token of the mechanism in each direction (KIP-152; KIP-368 for the lifetime)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, binary, int16, int64, message, string


@message(kind="request", api_key=36, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SaslAuthenticateRequest(Message):
    """The client's token."""

    auth_bytes: bytes = binary("0+")


@message(kind="response", api_key=36, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SaslAuthenticateResponse(Message):
    """The server's token, or why there is none."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
    """After this time the client authenticates again on the same connection; 0: never."""
