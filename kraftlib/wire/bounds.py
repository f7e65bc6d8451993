"""The number of elements that an array of a message can mean: more are refused before an object is made for them.

KRaft replicates one partition of one topic, so a request names one of each; a few more are read, because the answer to
them is an error and not the end of the connection. Requests of brokers to a controller are bounded by
`REQUEST_ELEMENTS` alone: the leader of a quorum without a controller refuses such a request as a whole.
"""

from __future__ import annotations

from typing import Final

TOPICS: Final = 16
PARTITIONS: Final = 16
"""Of one topic."""

LISTENERS: Final = 64
"""Of one replica. The core accepts fewer, and answers with an error to the others."""

VOTERS: Final = 256
FEATURES: Final = 256

PROPOSED_VALUES: Final = 1_024
"""Values of one forwarded append."""

PROPOSED_BYTES: Final = 1_000 * 1_024
"""Bytes of these values, and of the values that a client sends: with their frame they stay below
`newcomer_frame_max_bytes`."""

WATCHES: Final = 256
"""Watches of one client, which share one request."""

QUESTION_BYTES: Final = 64 * 1024
"""Of the question of one Query, and of the selector of one watch."""

CHANGES: Final = 1_024
"""Changes of one watch in one response."""

DIGESTS: Final = 8
"""Digests of its state that one replica tells another."""

DIGEST_BYTES: Final = 32
"""Of a digest: SHA-256."""

DIFFERING: Final = 256
"""Replicas that one replica names as differing."""

REQUEST_ELEMENTS: Final = 2_048
"""Array elements and tagged fields of one request, all arrays together: some 20 ms of work at most."""
