"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): rules of access (KIP-11, KIP-140, KIP-290)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, int8, int16, int32, message, string


@message(kind="request", api_key=29, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeAclsRequest(Message):
    """Asks for the rules that fit; null stands for anything."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message(kind="response", api_key=29, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeAclsResponse(Message):
    """The rules, by resource."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: tuple[DescribeAclsResource, ...] = array("DescribeAclsResource", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DescribeAclsResource(Struct):
        """One resource."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        pattern_type: int = int8("1+", default=3)
        acls: tuple[DescribeAclsResponse.AclDescription, ...] = array("AclDescription", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AclDescription(Struct):
        """One rule."""

        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")


@message(kind="request", api_key=30, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreateAclsRequest(Message):
    """New rules."""

    creations: tuple[AclCreation, ...] = array("AclCreation", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AclCreation(Struct):
        """One rule."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        resource_pattern_type: int = int8("1+", default=3)
        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")


@message(kind="response", api_key=30, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreateAclsResponse(Message):
    """The result for each rule."""

    throttle_time_ms: int = int32("0+")
    results: tuple[AclCreationResult, ...] = array("AclCreationResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AclCreationResult(Struct):
        """One rule."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")


@message(kind="request", api_key=31, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DeleteAclsRequest(Message):
    """Filters, of which each deletes the rules that fit."""

    filters: tuple[DeleteAclsFilter, ...] = array("DeleteAclsFilter", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DeleteAclsFilter(Struct):
        """One filter; null stands for anything."""

        resource_type_filter: int = int8("0+")
        resource_name_filter: str | None = string("0+", nullable="0+")
        pattern_type_filter: int = int8("1+", default=3)
        principal_filter: str | None = string("0+", nullable="0+")
        host_filter: str | None = string("0+", nullable="0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")


@message(kind="response", api_key=31, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DeleteAclsResponse(Message):
    """The result for each filter."""

    throttle_time_ms: int = int32("0+")
    filter_results: tuple[DeleteAclsFilterResult, ...] = array("DeleteAclsFilterResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DeleteAclsFilterResult(Struct):
        """One filter."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        matching_acls: tuple[DeleteAclsResponse.DeleteAclsMatchingAcl, ...] = array("DeleteAclsMatchingAcl", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DeleteAclsMatchingAcl(Struct):
        """A rule that is gone."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        pattern_type: int = int8("1+", default=3)
        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")
