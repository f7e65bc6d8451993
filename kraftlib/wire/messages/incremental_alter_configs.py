"""IncrementalAlterConfigs (44): values are set, removed, or extended (KIP-339)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int8, int16, int32, message, string


@message(kind="request", api_key=44, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class IncrementalAlterConfigsRequest(Message):
    """Resources, and the changes of each."""

    resources: tuple[AlterConfigsResource, ...] = array("AlterConfigsResource", "0+")
    validate_only: bool = boolean("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AlterConfigsResource(Struct):
        """One resource; its changes are made all or not at all."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: tuple[IncrementalAlterConfigsRequest.AlterableConfig, ...] = array("AlterableConfig", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AlterableConfig(Struct):
        """One change."""

        name: str = string("0+")
        config_operation: int = int8("0+")
        value: str | None = string("0+", nullable="0+")


@message(kind="response", api_key=44, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class IncrementalAlterConfigsResponse(Message):
    """The result for each resource."""

    throttle_time_ms: int = int32("0+")
    responses: tuple[AlterConfigsResourceResponse, ...] = array("AlterConfigsResourceResponse", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AlterConfigsResourceResponse(Struct):
        """One resource."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
