"""ApiVersions (18): the APIs and versions that a server speaks. The first request on every connection (KIP-35, KIP-511,
KIP-584, KIP-1242).

The header of the answer is never flexible, since the client does not know yet what the server speaks; a version that
the server does not know is answered in version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int16, int32, int64, message, string


@message(kind="request", api_key=18, versions="0-5", flexible="3+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ApiVersionsRequest(Message):
    """Asks what the server speaks, and says which software asks; perhaps also the cluster and node that it means to
    have reached."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", ignorable=True, default=None)
    node_id: int = int32("5+", default=-1, ignorable=True)


@message(kind="response", api_key=18, versions="0-5", flexible="3+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ApiVersionsResponse(Message):
    """The range of versions of each API, and the features that are supported and in force."""

    error_code: int = int16("0+")
    api_keys: tuple[ApiVersion, ...] = array("ApiVersion", "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = array("SupportedFeatureKey", "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: tuple[FinalizedFeatureKey, ...] = array("FinalizedFeatureKey", "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ApiVersion(Struct):
        """One API."""

        api_key: int = int16("0+")
        min_version: int = int16("0+")
        max_version: int = int16("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class SupportedFeatureKey(Struct):
        """A feature that this server supports, such as kraft.version."""

        name: str = string("3+")
        min_version: int = int16("3+")
        max_version: int = int16("3+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class FinalizedFeatureKey(Struct):
        """A feature that is in force in the cluster."""

        name: str = string("3+")
        max_version_level: int = int16("3+")
        min_version_level: int = int16("3+")
