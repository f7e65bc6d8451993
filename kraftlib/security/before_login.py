"""The requests that a peer may send before it has logged in (SASL): few, and small ones.

`kraftlib.security.sasl_server` handles them. It is loaded only where SASL is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlib.codec.versions import Versions
from kraftlib.wire.apis import ApiKey

FRAME_MAX_BYTES: Final = 64 * 1024
"""The largest frame before authentication."""

SERVED: Final[Mapping[int, Versions]] = {
    ApiKey.SASL_HANDSHAKE: Versions(1, 1),
    ApiKey.SASL_AUTHENTICATE: Versions(0, 2),
}
"""The versions that are served, and named in the answer to ApiVersions where SASL is on."""


class SaslError(Exception):
    """The server does not let us in, or is not the one that it should be. The message says why, with a remedy."""


def may_stand_first(api_key: int) -> bool:
    """Whether a client may send this before it has authenticated."""
    return api_key == ApiKey.API_VERSIONS or api_key in SERVED


def too_early(api_key: int) -> str:
    """Return why another request ends the connection, for our log."""
    return f"it asked for API {api_key} before it has authenticated"
