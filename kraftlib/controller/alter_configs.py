"""IncrementalAlterConfigs and AlterConfigs: of one resource all values or none.

Resources are topics, brokers, groups and client metrics.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import CLUSTER_NAME, ResourceType
from kraftlib.controller.access_rules import Operation as Access
from kraftlib.controller.broker_configs import broker_id_of
from kraftlib.controller.config_values import ConfigType, parts_of
from kraftlib.controller.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, KNOWN_TYPES, TOPIC
from kraftlib.controller.context import Context
from kraftlib.controller.create_topics import check_topic_name, clearing
from kraftlib.controller.other_configs import WORDS, check_other_config, check_other_name
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.controller.topic_configs import MIN_IN_SYNC, SETTINGS, VALUE_MAX, check_topic_config
from kraftlib.metadata.config_records import ConfigRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftlib.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

NAME_MAX: Final = 256
"""The longest name of a broker's setting that is stored. Brokers check the names before they forward them."""

CORDONED: Final = "cordoned.log.dirs"

BROKER_LISTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        """advertised.listeners config.providers controller.listener.names controller.quorum.bootstrap.servers
        controller.quorum.voters cordoned.log.dirs early.start.listeners kafka.metrics.reporters log.dirs process.roles
        sasl.oauthbearer.expected.audience ssl.cipher.suites""".split(),
        "",
    ),
    "group.consumer.assignors": "uniform,range",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "group.share.assignors": "simple",
    "listeners": "PLAINTEXT://:9092",
    "log.cleanup.policy": "delete",
    "log.dir": "/tmp/kafka-logs",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.kerberos.principal.to.local.rules": "DEFAULT",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
}
"""Settings of brokers to which APPEND and SUBTRACT apply, and their defaults."""

TOPIC_LISTS: Final = {key: setting.default for key, setting in SETTINGS.items() if setting.kind is ConfigType.LIST}
LISTS: Final[Mapping[int, Mapping[str, str]]] = {TOPIC: TOPIC_LISTS, BROKER: BROKER_LISTS}

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
    rows, records = _alter_all(context, request, _changed)
    return Decision(records, IncrementalAlterConfigsResponse(responses=tuple(Row(**row) for row in rows)))


def alter_configs(context: Context, request: AlterConfigsRequest, version: int) -> Decision:
    """Give each resource these values and no others; the answer has a line for each resource."""
    rows, records = _alter_all(context, request, _replaced)
    row = AlterConfigsResponse.AlterConfigsResourceResponse
    return Decision(records, AlterConfigsResponse(responses=tuple(row(**one) for one in rows)))


def _alter_all(
    context: Context, request: Any, new_values: Callable[[Any, Mapping[str, str]], Mapping[str, str | None]]
) -> tuple[list[dict[str, Any]], list[Message]]:
    """Return the line of each resource, and the records; none, if the request only wants to know."""
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    records: list[Message] = []
    rows: list[dict[str, Any]] = []
    for (kind, name), resource in {(one.resource_type, one.resource_name): one for one in request.resources}.items():
        row = {"error_code": 0, "error_message": None, "resource_type": kind, "resource_name": name}
        try:
            if named[kind, name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            if kind == BROKER_LOGGER and isinstance(request, IncrementalAlterConfigsRequest):
                context.require(Access.CLUSTER_ACTION, ResourceType.CLUSTER)
            _check_type(kind)
            context.require(Access.ALTER_CONFIGS, *_judged_as(kind, name))
            made = _alter(context, kind, name, new_values(resource, context.state.configs.of(kind, name)))
            if len(records) + len(made) > RECORDS_MAX:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of changes per request.")
            records += made
        except RefusedError as refused:
            row |= {"error_code": refused.code, "error_message": refused.message}
        rows.append(row)
    records += clearing(context, records)
    return rows, [] if request.validate_only else records


def _judged_as(kind: int, name: str) -> tuple[ResourceType, str]:
    """Return the resource that rules of access must be about."""
    own = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}.get(kind)
    return (ResourceType.CLUSTER, CLUSTER_NAME) if own is None else (own, name)


def _check_type(kind: int) -> None:
    if kind not in (TOPIC, BROKER, GROUP, CLIENT_METRICS):
        code = ErrorCode.INVALID_REQUEST if kind in KNOWN_TYPES else ErrorCode.UNSUPPORTED_VERSION
        raise RefusedError(code, f"Unexpected resource type {kind}.")


def _changed(resource: Wanted, old: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the new values; None removes one. As in Kafka, of two changes of one key the last one counts."""
    changes = {change.name: change for change in resource.configs}
    return {key: _value(resource.resource_type, change, old.get(key)) for key, change in changes.items()}


def _replaced(resource: AlterConfigsRequest.AlterConfigsResource, old: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the new values; a value that is not named is removed."""
    return {**dict.fromkeys(old), **{config.name: config.value for config in resource.configs}}


def _alter(context: Context, kind: int, name: str, new: Mapping[str, str | None]) -> list[Message]:
    """Return the records that give a resource these values."""
    values = dict(context.state.configs.of(kind, name))
    records: list[Message] = []
    for key, value in new.items():
        if key == MIN_IN_SYNC and kind == BROKER and context.features.has_eligible_leader_replicas:
            _check_min_in_sync(name, value)
        if key == CORDONED and kind == BROKER and not context.caller.is_forwarded:
            _check_cordoned(value, values.get(key))
        # A broker loads key stores anew when it is told the same path again.
        if value != values.get(key) or kind == BROKER:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    _check_name(kind, name)
    for key, value in values.items():
        _check_value(kind, key, value)
    if kind == TOPIC:
        context.check_topic(values)
    _check_existence(context, kind, name)
    return records


def _check_min_in_sync(name: str, value: str | None) -> None:
    """Refuse what would have controllers and brokers know of different sizes (KIP-966)."""
    if name:
        text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise RefusedError(ErrorCode.INVALID_CONFIG, text)
    if value is None:
        text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        raise RefusedError(ErrorCode.INVALID_CONFIG, text)


def _check_cordoned(value: str | None, old: str | None) -> None:
    """Refuse what only a broker can check: which directories it has (KIP-1066)."""
    if not {*parts_of(value or "")} <= {*parts_of(old or "")}:
        text = f"When updating {CORDONED} via controllers, the new value must be a subset of the current one."
        raise RefusedError(ErrorCode.INVALID_CONFIG, text)


def _check_name(kind: int, name: str) -> None:
    if kind == TOPIC:
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
    elif kind in WORDS:
        check_other_name(kind, name)
    elif name and broker_id_of(name) is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{name[:20]!r} is not the id of a broker.")


def _check_existence(context: Context, kind: int, name: str) -> None:
    if kind == TOPIC:
        if context.state.topics.named(name) is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return
    if kind in WORDS:
        return
    cluster, number = context.state.cluster, broker_id_of(name)
    if name and number not in cluster.brokers and number not in cluster.controllers:
        raise RefusedError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {number} found.")


def _value(kind: int, change: Change, old: str | None) -> str | None:
    """Return the value after a change; None, if there is none then."""
    if change.config_operation not in frozenset(Operation):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.config_operation} on {change.name}")
    operation = Operation(change.config_operation)
    if operation is Operation.DELETE:
        return None
    if operation is Operation.SET:
        return change.value
    lists = LISTS.get(kind, {})
    if change.name not in lists:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {change.name} because its type is not LIST."
        )
    if change.value is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    parts = [part for part in _split(lists[change.name] if old is None else old) if part]
    for part in _split(change.value):
        if operation is Operation.APPEND and part not in parts:
            parts.append(part)
        elif operation is Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _split(text: str) -> list[str]:
    """Return the parts as Kafka's controller takes them apart: with their blanks, without empty ones at the end."""
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def _check_value(kind: int, key: str, value: str) -> None:
    if kind == TOPIC:
        check_topic_config(key, value)
    elif kind in WORDS:
        check_other_config(kind, key, value)
    elif not key or len(key) > NAME_MAX or len(value.encode()) > VALUE_MAX:
        text = f"A setting of {len(key)} characters with {len(value.encode())} bytes is too long."
        raise RefusedError(ErrorCode.INVALID_CONFIG, text)
