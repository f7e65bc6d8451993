"""DescribeConfigs (32): the values in force, and where each of them comes from (KIP-133, KIP-226)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int8, int16, int32, message, string


@message(kind="request", api_key=32, versions="0-4", flexible="4+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeConfigsRequest(Message):
    """Resources, and the keys that are asked for."""

    resources: tuple[DescribeConfigsResource, ...] = array("DescribeConfigsResource", "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DescribeConfigsResource(Struct):
        """One resource; without keys all of them are meant."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configuration_keys: tuple[str, ...] | None = array("string", "0+", nullable="0+")


@message(kind="response", api_key=32, versions="0-4", flexible="4+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeConfigsResponse(Message):
    """The values of each resource."""

    throttle_time_ms: int = int32("0+")
    results: tuple[DescribeConfigsResult, ...] = array("DescribeConfigsResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DescribeConfigsResult(Struct):
        """One resource."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: tuple[DescribeConfigsResponse.DescribeConfigsResourceResult, ...] = array(
            "DescribeConfigsResourceResult", "0+"
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DescribeConfigsResourceResult(Struct):
        """One value; the synonyms are the places where it is looked for, in that order."""

        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")
        read_only: bool = boolean("0+")
        is_default: bool = boolean("0")
        config_source: int = int8("1+", default=-1, ignorable=True)
        is_sensitive: bool = boolean("0+")
        synonyms: tuple[DescribeConfigsResponse.DescribeConfigsSynonym, ...] = array(
            "DescribeConfigsSynonym", "1+", ignorable=True
        )
        config_type: int = int8("3+", ignorable=True)
        documentation: str | None = string("3+", nullable="0+", ignorable=True)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DescribeConfigsSynonym(Struct):
        """One place, and the value there."""

        name: str = string("1+")
        value: str | None = string("1+", nullable="0+")
        source: int = int8("1+")
