"""Versions: our answer to ApiVersions, and the choice that follows from a peer's (KIP-35, 511, 584, 1242).

The first request on every connection asks for the ranges of versions that the peer serves, and per API the highest
version that both sides know is spoken. Nothing else is ever guessed, so replicas of different releases form one quorum.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Final

from kraftlib import __version__
from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import NO_VERSIONS, Versions
from kraftlib.wire.apis import FIRST_PRIVATE_KEY, ApiKey, ErrorCode, PrivateApiKey
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SERVED: Final[Mapping[int, Versions]] = {
    ApiKey.FETCH: Versions(13, 18),  # older ones name the topic, which a KRaft leader refuses
    ApiKey.API_VERSIONS: Versions(0, 5),
    ApiKey.VOTE: Versions(0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: Versions(0, 1),
    ApiKey.END_QUORUM_EPOCH: Versions(0, 1),
    ApiKey.DESCRIBE_QUORUM: Versions(0, 2),
    ApiKey.FETCH_SNAPSHOT: Versions(0, 1),
    ApiKey.ADD_RAFT_VOTER: Versions(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Versions(0, 0),
    ApiKey.UPDATE_RAFT_VOTER: Versions(0, 0),
    # Not of replicas but of admin clients, which reach the quorum by these.
    ApiKey.UPDATE_FEATURES: Versions(0, 2),
    ApiKey.DESCRIBE_CLUSTER: Versions(0, 2),
}
"""The APIs that a replica serves and says it serves, as a controller of Kafka 4.4 does (KIP-35)."""

PRIVATE: Final[Mapping[int, Versions]] = {
    PrivateApiKey.READ_BARRIER: Versions(0, 0),
    PrivateApiKey.SNAPSHOT_HASH: Versions(0, 0),
    PrivateApiKey.ELECTION_PRIORITY: Versions(0, 0),
    PrivateApiKey.PROPOSE: Versions(0, 0),
    PrivateApiKey.STATE_DIGEST: Versions(0, 0),
}
"""The APIs that only kraftlib replicas serve each other (`RaftConfig.private_apis`); other peers do not see them."""

SERVICE: Final[Mapping[int, Versions]] = {
    PrivateApiKey.CALL: Versions(0, 0),
    PrivateApiKey.QUERY: Versions(0, 0),
    PrivateApiKey.WATCH: Versions(0, 0),
}
"""The APIs for clients of a replicated machine, which a replica serves whose application has one (`kraftlib.open`)."""

SOFTWARE_NAME: Final = "kraftlib"
"""The client software name of our requests, by which kraftlib replicas recognize each other."""

SUPPORTED_FEATURES: Final[Mapping[str, Versions]] = {"kraft.version": Versions(0, 1)}
"""The features of a replica: Kafka looks for kraft.version here before it adds a voter."""

METADATA_VERSION: Final = "metadata.version"
"""A feature of controllers and brokers, which a replica of kraftlib does not have."""

ASKED: Final = 4
"""The version of our ApiVersions requests. Version 5 costs one more request at each peer before Kafka 4.4, and its new
fields have no use at a controller: every request of the protocol has the cluster id anyway."""

NO_NODE: Final = -1
_OUTER: Final = frozenset(string.ascii_letters + string.digits)
_INNER: Final = _OUTER | frozenset("-.")


def question() -> ApiVersionsRequest:
    """Return the first request on every connection."""
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)


def answer(
    request: ApiVersionsRequest,
    version: int,
    *,
    finalized: Mapping[str, int],
    served: Mapping[int, Versions] = SERVED,
    supported: Mapping[str, Versions] = SUPPORTED_FEATURES,
) -> ApiVersionsResponse:
    """Return the answer to a request of a version that we know; private APIs are named to our own kind alone.

    The cluster and node that version 5 means to have reached (KIP-1242) must be named both or neither; Kafka's
    controllers look no further, and neither do we. `finalized` holds the levels of the features that are in force;
    level 0 is not told, as in Kafka.
    """
    named = is_software_name(request.client_software_name) and is_software_name(request.client_software_version)
    meant = (request.cluster_id is None) == (request.node_id == NO_NODE)
    if version >= 3 and not (named and meant):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    # A client of version 3 takes a minimum of 0 for an error; version 4 says that it does not.
    lowest = 0 if version >= 4 else 1
    return ApiVersionsResponse(
        api_keys=tuple(
            ApiVersionsResponse.ApiVersion(api_key=int(key), min_version=range_.first, max_version=range_.last)
            for key, range_ in sorted(served.items())
            if key < FIRST_PRIVATE_KEY or request.client_software_name == SOFTWARE_NAME
        ),
        supported_features=tuple(
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=range_.first, max_version=range_.last)
            for name, range_ in sorted(supported.items())
            if range_.first >= lowest
        ),
        finalized_features=tuple(
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.items())
            if level > 0
        ),
    )


def is_software_name(text: str) -> bool:
    """Whether a client may call itself that (KIP-511): letters, digits, and dots and dashes within."""
    return bool(text) and text[0] in _OUTER and text[-1] in _OUTER and _INNER.issuperset(text)


def ranges(response: ApiVersionsResponse) -> dict[int, Versions]:
    """Return the versions of each API that a peer serves."""
    return {row.api_key: Versions(row.min_version, row.max_version) for row in response.api_keys}


def is_controller(response: ApiVersionsResponse) -> bool:
    """Whether a peer with this answer is a controller of Kafka: it supports the feature `metadata.version`."""
    return any(feature.name == METADATA_VERSION for feature in response.supported_features)


def common_version(request: type[Message], theirs: Mapping[int, Versions]) -> int | None:
    """Return the highest version of a request that both sides know; None, if there is none."""
    both = request.valid_versions.intersection(theirs.get(request.api_key, NO_VERSIONS))
    return both.last if both.first <= both.last else None


def version_to_ask_again(response: ApiVersionsResponse) -> int | None:
    """Return the version of ApiVersions that a peer has named when it refused ours; None, if it named none of ours.

    Before KIP-511 a peer named nothing at all; then version 0 is known to it.
    """
    named = common_version(ApiVersionsRequest, ranges(response)) if response.api_keys else 0
    return named if named is not None and named < ASKED else None
