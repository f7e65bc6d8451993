"""Envelope (58): a client's request that a broker hands on to the controller, with the client's identity (KIP-590)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, binary, boolean, int16, message, string


@message(kind="request", api_key=58, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class EnvelopeRequest(Message):
    """A whole request with its header, and who sent it."""

    request_data: bytes = binary("0+")
    request_principal: bytes | None = binary("0+", nullable="0+")
    client_host_address: bytes = binary("0+")


@message(kind="response", api_key=58, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class EnvelopeResponse(Message):
    """The whole answer with its header."""

    response_data: bytes | None = binary("0+", nullable="0+", default=None)
    error_code: int = int16("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DefaultPrincipalData(Message):
    """The client in an envelope, behind two bytes of version: `User` and a name, as a rule."""

    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
