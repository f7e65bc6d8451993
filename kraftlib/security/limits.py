"""Limits of one TCP transport, the options of the table `[limits]` (KIP-498 tells what happens without them)."""

from __future__ import annotations

from typing import Final

import attrs

from kraftlib.frozen import immutable
from kraftlib.validators import MEBIBYTE, at_least

FRAME_MAX_BYTES: Final = 100 * MEBIBYTE
"""Kafka's `socket.request.max.bytes`."""


@immutable(kw_only=True)
class TcpLimits:
    """Deadlines and caps of a `TcpTransport`. The defaults suit a quorum and its tools; tests make them small."""

    connections_max: int = attrs.field(default=256, validator=at_least(1))
    """Accepted connections at one time, those of voters apart. One beyond takes the place of another that says nothing,
    or is closed at once."""

    connections_per_address_max: int = attrs.field(default=64, validator=at_least(1))
    """The same for one remote address, so that one host cannot take all."""

    voter_connections_max: int = attrs.field(default=64, validator=at_least(1))
    """Accepted connections of voters at one time, beside the others: a voter never waits until a stranger leaves."""

    idle_ms: int = attrs.field(default=1_000, validator=at_least(1))
    """A connection that has asked nothing for this long is closed when a new one would be beyond these limits."""

    idle_max_ms: int = attrs.field(default=600_000, validator=at_least(1))
    """A connection that has asked nothing for this long is closed, unless it is a voter's (Kafka's
    `connections.max.idle.ms`)."""

    handshake_ms: int = attrs.field(default=10_000, validator=at_least(1))
    """A TLS handshake takes no longer."""

    handshakes_per_second: int = attrs.field(default=25, validator=at_least(1))
    """Handshakes, of TLS or else of SASL, of one remote address in the long run, with `connections_per_address_max` at
    once; one beyond is closed. A handshake whose peer is not authenticated counts as five. Addresses of voters have no
    such bound (KIP-612)."""

    first_frame_ms: int = attrs.field(default=10_000, validator=at_least(1))
    """An accepted connection that has sent no whole frame by then is closed."""

    newcomer_frame_max_bytes: int = attrs.field(default=MEBIBYTE, validator=at_least(1_024))
    """The largest frame of a connection that is not authenticated and has sent no valid request of a replica yet."""

    frame_ms: int = attrs.field(default=30_000, validator=at_least(1))
    """A frame that has begun to arrive is whole by then, or the connection is closed."""

    stall_ms: int = attrs.field(default=30_000, validator=at_least(1))
    """A peer that does not read its answers for this long is closed."""

    send_buffer_max_bytes: int = attrs.field(default=8 * MEBIBYTE, validator=at_least(1))
    """While more than this waits for a peer to read it, or for an earlier answer, no request of that peer is taken."""

    answers_max_bytes: int = attrs.field(default=128 * MEBIBYTE, validator=at_least(1))
    """Answers of all accepted connections together that wait for a peer to read them, or for an earlier answer. Beyond
    it those peers are closed that have left their answers unread for longest."""

    unfinished_max_bytes: int = attrs.field(default=64 * MEBIBYTE, validator=at_least(1))
    """Unfinished frames of all accepted connections together; the one that goes beyond is closed. A single frame may
    have the full size."""

    pipeline_max: int = attrs.field(default=32, validator=at_least(1))
    """Unanswered requests of one accepted connection; more are not taken before earlier ones are answered. Also the
    number taken in one turn of the event loop, so that no connection keeps others waiting. Kafka's replicas have
    one."""

    requests_per_second: int = attrs.field(default=50_000, validator=at_least(1))
    """Requests of one accepted connection, over a fifth of a second; those beyond are taken later. A replica waits for
    each answer and never comes near (Kafka's hot loops reach 3,000): it holds back floods only."""

    queue_max: int = attrs.field(default=1_024, validator=at_least(1))
    """Unanswered requests to one destination; those beyond fail."""

    connect_ms: int = attrs.field(default=2_000, validator=at_least(1))
    """An attempt to connect that takes longer has failed. The addresses of one name share this time."""

    backoff_ms: int = attrs.field(default=50, validator=at_least(0))
    """After a failed attempt the next one is made no earlier, doubling with each failure (Kafka's policy)."""

    backoff_max_ms: int = attrs.field(default=500, validator=at_least(0))
    """The longest such pause."""
