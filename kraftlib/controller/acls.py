"""CreateAcls, DescribeAcls, DeleteAcls: rules of access, which brokers judge by (KIP-11, KIP-290, KIP-801).

The controller keeps the rules. Brokers judge by them, and so does the controller, where `standard_authorizer` is set
(`access_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import ANYTHING, CLUSTER_NAME, LITERAL, ResourceType, Rule
from kraftlib.controller.context import Context
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.metadata.security_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from kraftlib.wire.apis import ErrorCode, error_answer
from kraftlib.wire.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

UNKNOWN, ANY = 0, 1
"""Of any of the enumerations: an element that the sender does not know, and the one that matches all in a filter. At
the first one Kafka's controller hangs up; here it is INVALID_REQUEST."""

RESOURCE_TYPES: Final = range(1, 8)
MATCH: Final = 2
PATTERN_TYPES: Final = range(1, 5)
OPERATIONS: Final = range(1, 16)
PERMISSIONS: Final = range(1, 4)

Filter = DeleteAclsRequest.DeleteAclsFilter | DescribeAclsRequest


def create_acls(context: Context, request: CreateAclsRequest, version: int) -> Decision:
    """Create what is not there yet; the answer has a line for each rule."""
    codes = [_codes(wanted) for wanted in request.creations]
    if any(UNKNOWN in row for row in codes):
        return Decision(answer=error_answer(request, ErrorCode.INVALID_REQUEST))
    if any(ANY in row or row[1] == MATCH for row in codes):  # Kafka's controller stumbles over what only filters have
        return Decision(answer=error_answer(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    present = {_content(rule) for rule in context.state.keyed.access_rules()}
    records: list[Message] = []
    rows = []
    for wanted in request.creations:
        code, text = 0, None
        try:
            _check(wanted)
            rule = AccessControlEntryRecord(
                id=context.new_uuid(),
                resource_type=wanted.resource_type,
                resource_name=wanted.resource_name,
                pattern_type=wanted.resource_pattern_type,
                principal=wanted.principal,
                host=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission_type,
            )
            if len(records) == RECORDS_MAX:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of rules per request.")
            records += [] if _content(rule) in present else [rule]
            present.add(_content(rule))
        except RefusedError as refused:
            code, text = refused.code, refused.message
        rows.append(CreateAclsResponse.AclCreationResult(error_code=code, error_message=text))
    return Decision(records, CreateAclsResponse(results=tuple(rows)))


def _content(rule: Rule) -> tuple[object, ...]:
    """Return all of a rule but its id."""
    resource = (rule.resource_type, rule.pattern_type, rule.resource_name)
    return *resource, rule.principal, rule.host, rule.operation, rule.permission_type


def _codes(wanted: CreateAclsRequest.AclCreation) -> tuple[int, int, int, int]:
    return wanted.resource_type, wanted.resource_pattern_type, wanted.operation, wanted.permission_type


def _are_known(resource_type: int, pattern_type: int, operation: int, permission_type: int) -> bool:
    return (
        resource_type in RESOURCE_TYPES
        and pattern_type in PATTERN_TYPES
        and operation in OPERATIONS
        and permission_type in PERMISSIONS
    )


def _check(wanted: CreateAclsRequest.AclCreation) -> None:
    what = None
    if wanted.resource_type == ResourceType.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        what = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not wanted.resource_name:
        what = "Resource name should not be empty"
    elif not _are_known(*_codes(wanted)):
        what = "Invalid resourceType, patternType, operation or permissionType"
    elif ":" not in wanted.principal:
        what = (
            f"Could not parse principal from `{wanted.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if what is not None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, what)


def describe_acls(context: Context, request: DescribeAclsRequest, version: int) -> Decision:
    """Name the rules that fit, by resource."""
    if UNKNOWN in _filter_codes(request):
        text = "The filter has elements that are not known."
        return Decision(answer=DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text))
    fits = _matcher(request)
    found: dict[tuple[int, str, int], list[DescribeAclsResponse.AclDescription]] = {}
    for rule in filter(fits, context.state.keyed.access_rules()):
        row = DescribeAclsResponse.AclDescription(
            principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission_type
        )
        found.setdefault((rule.resource_type, rule.resource_name, rule.pattern_type), []).append(row)
    resources = tuple(
        DescribeAclsResponse.DescribeAclsResource(
            resource_type=kind, resource_name=name, pattern_type=pattern, acls=tuple(rows)
        )
        for (kind, name, pattern), rows in found.items()
    )
    return Decision(answer=DescribeAclsResponse(error_message=None, resources=resources))


def delete_acls(context: Context, request: DeleteAclsRequest, version: int) -> Decision:
    """Delete the rules that fit one of the filters; the answer has a line for each filter."""
    if any(UNKNOWN in _filter_codes(one) for one in request.filters):
        return Decision(answer=error_answer(request, ErrorCode.INVALID_REQUEST))
    rules = list(context.state.keyed.access_rules())
    gone: dict[UUID, Message] = {}
    rows = []
    for one in request.filters:
        if not _are_known(*_filter_codes(one)):
            text, code = "The filter has elements that are not known.", ErrorCode.INVALID_REQUEST
            rows.append(DeleteAclsResponse.DeleteAclsFilterResult(error_code=code, error_message=text))
            continue
        found = list(filter(_matcher(one), rules))
        new = {rule.id: RemoveAccessControlEntryRecord(id=rule.id) for rule in found}
        if len(gone.keys() | new.keys()) > RECORDS_MAX:
            text = "Excessively large number of rules per request."
            rows.append(
                DeleteAclsResponse.DeleteAclsFilterResult(error_code=ErrorCode.POLICY_VIOLATION, error_message=text)
            )
            continue
        gone.update(new)
        rows.append(DeleteAclsResponse.DeleteAclsFilterResult(error_message=None, matching_acls=_described(found)))
    return Decision(list(gone.values()), DeleteAclsResponse(filter_results=tuple(rows)))


def _described(rules: Sequence[Rule]) -> tuple[DeleteAclsResponse.DeleteAclsMatchingAcl, ...]:
    return tuple(
        DeleteAclsResponse.DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=rule.resource_type,
            resource_name=rule.resource_name,
            pattern_type=rule.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission_type,
        )
        for rule in rules
    )


def _filter_codes(one: Filter) -> tuple[int, int, int, int]:
    return one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type


def _matcher(one: Filter) -> Callable[[Rule], bool]:
    """Return whether a rule fits a filter (KIP-290: MATCH means the rules that concern a resource of this name)."""

    def plain(wanted: Any, value: Any, anything: Any) -> bool:
        return bool(wanted in (anything, value))

    def fits_name(rule: Rule) -> bool:
        name, pattern = one.resource_name_filter, one.pattern_type_filter
        if name is None or name == rule.resource_name:
            return pattern in (ANY, MATCH, rule.pattern_type)
        if pattern != MATCH:
            return False
        return rule.resource_name == ANYTHING if rule.pattern_type == LITERAL else name.startswith(rule.resource_name)

    return lambda rule: (
        plain(one.resource_type_filter, rule.resource_type, ANY)
        and fits_name(rule)
        and plain(one.principal_filter, rule.principal, None)
        and plain(one.host_filter, rule.host, None)
        and plain(one.operation, rule.operation, ANY)
        and plain(one.permission_type, rule.permission_type, ANY)
    )
