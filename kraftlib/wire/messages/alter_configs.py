"""AlterConfigs (33): all values of a resource at once; a value that is not named is removed (KIP-133)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int8, int16, int32, message, string


@message(kind="request", api_key=33, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterConfigsRequest(Message):
    """Resources, and all values of each."""

    resources: tuple[AlterConfigsResource, ...] = array("AlterConfigsResource", "0+")
    validate_only: bool = boolean("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AlterConfigsResource(Struct):
        """One resource; it gets these values and no others, or stays as it is."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: tuple[AlterConfigsRequest.AlterableConfig, ...] = array("AlterableConfig", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AlterableConfig(Struct):
        """One value."""

        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")


@message(kind="response", api_key=33, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterConfigsResponse(Message):
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
