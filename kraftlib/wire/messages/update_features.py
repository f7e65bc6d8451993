"""UpdateFeatures (57): raises or lowers finalized features, kraft.version among them (KIP-584, KIP-1022)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int8, int16, int32, message, string
from kraftlib.wire.bounds import FEATURES


@message(kind="request", api_key=57, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UpdateFeaturesRequest(Message):
    """Asks for other levels."""

    timeout_ms: int = int32("0+", default=60000, name="timeoutMs")
    feature_updates: tuple[FeatureUpdateKey, ...] = array("FeatureUpdateKey", "0+", most=FEATURES)
    validate_only: bool = boolean("1+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class FeatureUpdateKey(Struct):
        """One feature and its new level."""

        feature: str = string("0+")
        max_version_level: int = int16("0+")
        allow_downgrade: bool = boolean("0")
        upgrade_type: int = int8("1+", default=1)


@message(kind="response", api_key=57, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UpdateFeaturesResponse(Message):
    """All or nothing from version 2 on; feature by feature before."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: tuple[UpdatableFeatureResult, ...] = array("UpdatableFeatureResult", "0-1", ignorable=True)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class UpdatableFeatureResult(Struct):
        """The result for one feature."""

        feature: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
