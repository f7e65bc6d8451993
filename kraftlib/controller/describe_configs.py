"""DescribeConfigs: the values in force, as a controller knows them (KIP-226, KIP-919).

Of the settings of brokers a controller knows those that were changed for all of them, or for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any

from kraftlib.controller.access_rules import CLUSTER_NAME, Operation, ResourceType
from kraftlib.controller.broker_configs import ONLY_OF_LISTENERS, SENSITIVE, base_of, broker_id_of, is_for_all, kind_of
from kraftlib.controller.config_values import ConfigType, Source
from kraftlib.controller.configs import BROKER, GROUP, KNOWN_TYPES, TOPIC
from kraftlib.controller.context import Context
from kraftlib.controller.create_topics import check_topic_name
from kraftlib.controller.other_configs import OF_GROUPS, OF_METRICS, WORDS, check_other_name
from kraftlib.controller.results import Decision, RefusedError
from kraftlib.controller.topic_configs import HIDDEN, SETTINGS, of_brokers
from kraftlib.wire.apis import ErrorCode, error_answer
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

Wanted = DescribeConfigsRequest.DescribeConfigsResource
Row = DescribeConfigsResponse.DescribeConfigsResult
Config = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


def describe_configs(context: Context, request: DescribeConfigsRequest, version: int) -> Decision:
    """Name the values of each resource; the answer has a line for each. A type that there is not ends the request."""
    if any(resource.resource_type not in KNOWN_TYPES for resource in request.resources):
        return Decision(answer=error_answer(request, ErrorCode.INVALID_REQUEST))
    rows = []
    for resource in request.resources:
        named: dict[str, Any] = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            found = _configs(context, resource, with_synonyms=request.include_synonyms)
            rows.append(Row(configs=tuple(found), error_message=None, **named))
        except RefusedError as refused:
            rows.append(Row(error_code=refused.code, error_message=refused.message, **named))
    return Decision(answer=DescribeConfigsResponse(results=tuple(rows)))


def _configs(context: Context, resource: Wanted, *, with_synonyms: bool) -> Iterable[Config]:
    wanted = frozenset(resource.configuration_keys or ())
    if resource.resource_type == TOPIC:
        context.require(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name)
        check_topic_name(resource.resource_name)
        if context.state.topics.named(resource.resource_name) is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        shown = SETTINGS.keys() - (HIDDEN - context.state.configs.of(TOPIC, resource.resource_name).keys())
        keys = [key for key in SETTINGS if key in shown and (not wanted or key in wanted)]
        return [_of_topic(context, resource.resource_name, key, with_synonyms=with_synonyms) for key in keys]
    if resource.resource_type == BROKER:
        context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        name = resource.resource_name
        if name and broker_id_of(name) != context.node_id:
            text = f"Unexpected broker id, expected {context.node_id} or empty string, but received {name[:20]}"
            raise RefusedError(ErrorCode.INVALID_REQUEST, text)
        found = _of_broker(context, name, with_synonyms=with_synonyms)
        return [config for config in found if not wanted or config.name in wanted]
    if resource.resource_type in WORDS:
        return _of_others(context, resource.resource_type, resource.resource_name, wanted, with_synonyms=with_synonyms)
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}.")


def _of_topic(context: Context, topic: str, key: str, *, with_synonyms: bool) -> Config:
    setting, own = SETTINGS[key], context.state.configs.of(TOPIC, topic)
    # A running broker changes the first of the synonyms only; the others are read when it starts.
    broker = next((name for name, _ in setting.synonyms), None)
    found = of_brokers(context.state.configs, setting, node_id=context.node_id)
    places = [one for one in found if one[0] == broker]
    fallback = setting.fallback or (broker or "", setting.default)
    if places or (broker is not None and setting.fallback is None):
        places.append((*fallback, fallback[1], Source.DEFAULT))
    if key in own:
        value = setting.written(own[key])
        places.insert(0, (key, value, value, Source.TOPIC))
    _, _, value, source = places[0] if places else ("", "", setting.default, Source.DEFAULT)
    synonyms = tuple(Synonym(name=name, value=given, source=place) for name, given, _, place in places)
    return Config(
        name=key, value=value, config_source=source, config_type=setting.kind, documentation=None,
        synonyms=synonyms if with_synonyms else (),
    )  # fmt: skip


def _of_others(context: Context, kind: int, name: str, wanted: Set[str], *, with_synonyms: bool) -> Iterator[Config]:
    """Yield the values of a group or of client metrics; neither need exist."""
    settings, source = (OF_GROUPS, Source.GROUP) if kind == GROUP else (OF_METRICS, Source.CLIENT_METRICS)
    judged = (ResourceType.GROUP, name) if kind == GROUP else (ResourceType.CLUSTER, CLUSTER_NAME)
    context.require(Operation.DESCRIBE_CONFIGS, *judged)
    check_other_name(kind, name)
    own = context.state.configs.of(kind, name)
    for key, setting in settings.items():
        if wanted and key not in wanted:
            continue
        places = [(broker, setting.default, Source.DEFAULT) for broker, _ in setting.synonyms]
        if key in own:
            places.insert(0, (key, setting.written(own[key]), source))
        _, value, first = places[0] if places else (key, setting.default, Source.DEFAULT)
        synonyms = (Synonym(name=other, value=text, source=place) for other, text, place in places)
        yield Config(
            name=key, value=value, config_source=first, config_type=setting.kind, documentation=None,
            synonyms=tuple(synonyms) if with_synonyms else (),
        )  # fmt: skip


def _of_broker(context: Context, name: str, *, with_synonyms: bool) -> Iterator[Config]:
    """Yield the settings that were changed: for one node, those for all brokers count where it has none of its own."""
    sources = [*([(name, Source.DYNAMIC_BROKER)] if name else []), ("", Source.DYNAMIC_DEFAULT_BROKER)]
    found: dict[str, list[tuple[str, Source]]] = {}
    for resource, source in sources:
        for key, value in context.state.configs.of(BROKER, resource).items():
            if key not in ONLY_OF_LISTENERS and (resource or is_for_all(key)):
                found.setdefault(key, []).append((value, source))
    for key in found:
        kind = kind_of(key)
        shown = [
            Synonym(name=one, value=None if kind in SENSITIVE else value, source=source)
            for one in dict.fromkeys((key, base_of(key)))
            for value, source in found.get(one, ())
        ]
        yield Config(
            name=key, value=shown[0].value, read_only=kind is ConfigType.UNKNOWN or key != base_of(key),
            config_source=shown[0].source, is_sensitive=kind in SENSITIVE, config_type=kind, documentation=None,
            synonyms=tuple(shown) if with_synonyms else (),
        )  # fmt: skip
