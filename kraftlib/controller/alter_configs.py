"""IncrementalAlterConfigs: values of topics and brokers; the changes of one resource are made all or not at all."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.configs import BROKER, TOPIC
from kraftlib.controller.context import Context
from kraftlib.controller.create_topics import check_topic_name
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.controller.topic_configs import DEFAULTS, LISTS, VALUE_MAX, check_topic_config, check_topic_key
from kraftlib.metadata.config_records import ConfigRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

NAME_MAX: Final = 256
"""The longest name of a broker's setting that is stored. Brokers check the names before they forward them."""

BROKER_LISTS: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "log.cleanup.policy",
        "metric.reporters",
        "sasl.enabled.mechanisms",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
    }
)

Wanted = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = IncrementalAlterConfigsRequest.AlterableConfig
Row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


class Operation(enum.IntEnum):
    """A kind of change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(context: Context, request: IncrementalAlterConfigsRequest, version: int) -> Decision:
    """Change what can be changed; the answer has a line for each resource."""
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    records: list[Message] = []
    rows: list[Row] = []
    for resource in request.resources:
        code, text = 0, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            made = _alter(context, resource)
            if len(records) + len(made) > RECORDS_MAX:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of changes per request.")
            records += made
        except RefusedError as refused:
            code, text = refused.code, refused.message
        rows.append(
            Row(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    answer = IncrementalAlterConfigsResponse(responses=tuple(rows))
    return Decision(() if request.validate_only else records, answer)


def _alter(context: Context, resource: Wanted) -> list[Message]:
    _check_resource(context, resource)
    if max(Counter(change.name for change in resource.configs).values(), default=0) > 1:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    kind, name = resource.resource_type, resource.resource_name
    present = context.state.configs.of(kind, name)
    records: list[Message] = []
    for change in resource.configs:
        old = present.get(change.name)
        new = _value(kind, change, old)
        _check_value(kind, change, new)
        # A broker loads key stores anew when it is told the same path again.
        if new != old or (kind == BROKER and new is not None):
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=change.name, value=new))
    return records


def _check_resource(context: Context, resource: Wanted) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        check_topic_name(name)
        if context.state.topics.named(name) is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif kind == BROKER:
        is_known = name.isascii() and name.isdigit() and int(name[:10]) in context.state.cluster.brokers
        if name and not is_known:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"There is no broker {name[:20]!r}.")
    else:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind}.")


def _value(kind: int, change: Change, old: str | None) -> str | None:
    """Return the value after a change; None, if there is none then."""
    if change.config_operation not in frozenset(Operation):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.config_operation} on {change.name}")
    operation = Operation(change.config_operation)
    if operation is Operation.DELETE:
        return None
    if change.value is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if operation is Operation.SET:
        return change.value
    if change.name not in (LISTS if kind == TOPIC else BROKER_LISTS):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {change.name} because its type is not LIST."
        )
    before = old if old is not None else DEFAULTS.get(change.name, "") if kind == TOPIC else ""
    parts = [part.strip() for part in before.split(",") if part.strip()]
    given = [part.strip() for part in change.value.split(",") if part.strip()]
    if operation is Operation.APPEND:
        return ",".join([*parts, *(part for part in given if part not in parts)])
    return ",".join(part for part in parts if part not in given)


def _check_value(kind: int, change: Change, value: str | None) -> None:
    if kind == TOPIC:
        if value is None:
            check_topic_key(change.name)
        else:
            check_topic_config(change.name, value)
    elif not change.name or len(change.name) > NAME_MAX or len(value or "") > VALUE_MAX:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"A setting of {len(change.name)} characters with {len(value or '')} is too long."
        )
