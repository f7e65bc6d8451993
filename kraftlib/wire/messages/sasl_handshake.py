"""SaslHandshake (17): the mechanism by which a client wants to authenticate (KIP-43).

Version 1 precedes SaslAuthenticate; after version 0 come tokens without a frame of their own.
"""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, array, int16, message, string


@message(kind="request", api_key=17, versions="0-1", flexible="none")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SaslHandshakeRequest(Message):
    """Chooses a mechanism, such as SCRAM-SHA-512."""

    mechanism: str = string("0+")


@message(kind="response", api_key=17, versions="0-1", flexible="none")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SaslHandshakeResponse(Message):
    """Whether the server accepts it, and the mechanisms that it accepts."""

    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array("string", "0+")
