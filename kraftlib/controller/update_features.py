"""UpdateFeatures: the levels of features change, all of a request or none (KIP-584, KIP-778, KIP-1022).

A level must be one that this controller, every registered broker and every registered controller support. For a lower
one the request must say that it is a downgrade. A metadata.version goes back only over versions that have not changed
the records; Kafka knows an unsafe downgrade and refuses it, and so does this controller. kraft.version is the replica's
own: it decides after this controller would take the other features of the request, and before they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.controller.configs import BROKER
from kraftlib.controller.context import Context
from kraftlib.controller.features import ELIGIBLE_LEADER_REPLICAS, SUPPORTED, SupportedRange
from kraftlib.controller.results import Decision, RefusedError
from kraftlib.controller.topic_configs import MIN_IN_SYNC, SETTINGS
from kraftlib.controller.versions import CHANGED_RECORDS, ELR_SINCE, METADATA_VERSION
from kraftlib.metadata.config_records import ConfigRecord, FeatureLevelRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
KRAFT_VERSION: Final = "kraft.version"
UNSUPPORTED: Final = Versions(0, 0)
"""The range of a feature that a node does not name: it may be absent."""
Update = UpdateFeaturesRequest.FeatureUpdateKey


def is_about_kraft_version(request: Message) -> bool:
    """Whether the replica has a say in this: kraft.version is among the features."""
    return isinstance(request, UpdateFeaturesRequest) and any(
        row.feature == KRAFT_VERSION for row in request.feature_updates
    )


def split(request: UpdateFeaturesRequest) -> tuple[UpdateFeaturesRequest, UpdateFeaturesRequest | None]:
    """Return what the replica decides on, and the rest of the request, if there is any."""
    own = tuple(row for row in request.feature_updates if row.feature == KRAFT_VERSION)
    others = tuple(row for row in request.feature_updates if row.feature != KRAFT_VERSION)
    rest = attrs.evolve(request, feature_updates=others) if others else None
    return attrs.evolve(request, feature_updates=own), rest


def with_kraft_version(response: UpdateFeaturesResponse) -> UpdateFeaturesResponse:
    """Return the answer about the rest as that to the whole request: kraft.version has its level."""
    row = UpdateFeaturesResponse.UpdatableFeatureResult(feature=KRAFT_VERSION, error_message=None)
    return response if response.error_code else attrs.evolve(response, results=(*response.results, row))


def update_features(context: Context, request: UpdateFeaturesRequest, version: int) -> Decision:
    """Change the levels; the answer says what is wrong with the first one that cannot be."""
    updates = {row.feature: row for row in request.feature_updates}
    proposed = dict(context.features.levels.items())
    proposed.update((name, row.max_version_level) for name, row in updates.items())
    try:
        for row in updates.values():
            _check(context, row, proposed)
    except RefusedError as refused:
        text = f"The update failed for all features since the following feature had an error: {refused.message}"
        return Decision(answer=UpdateFeaturesResponse(error_code=refused.code, error_message=text))
    records: list[Message] = [
        FeatureLevelRecord(name=name, feature_level=row.max_version_level) for name, row in updates.items()
    ]
    if ELIGIBLE_LEADER_REPLICAS in updates and proposed[ELIGIBLE_LEADER_REPLICAS]:
        records += _one_size_for_all(context)
    result = UpdateFeaturesResponse.UpdatableFeatureResult
    answer = UpdateFeaturesResponse(
        error_message=None, results=tuple(result(feature=name, error_message=None) for name in updates)
    )
    return Decision(() if request.validate_only else records, answer)


def _check(context: Context, row: Update, proposed: Mapping[str, int]) -> None:
    """Raises: RefusedError, unless this feature may have this level.

    Like Kafka's controller it looks at the upgrade type only, so that nothing is lowered by version 0 of the request.
    """
    name, level, kind = row.feature, row.max_version_level, row.upgrade_type
    now = context.features.levels.get(name) or 0
    problem = None
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        problem = "The controller does not support the given upgrade type"
    elif level < 0:
        problem = "A feature version cannot be less than 0"
    elif (who := _without_support(context, name, level)) is not None:
        problem = f"{who} does not support it"
    elif level < now and kind == UPGRADE:
        problem = "Can't downgrade the version of this feature without setting the upgrade type to a downgrade"
    elif level > now and kind != UPGRADE:
        problem = "Can't downgrade to a newer version"
    elif name == METADATA_VERSION and any(level < changed <= now for changed in CHANGED_RECORDS):
        problem = "Refusing to perform the requested downgrade because it might delete metadata information"
    elif name == ELIGIBLE_LEADER_REPLICAS and level and proposed[METADATA_VERSION] < ELR_SINCE:
        problem = f"It depends on {METADATA_VERSION} {ELR_SINCE}"
    if problem is not None:
        text = f"Invalid update version {level} for feature {name}. {problem}."
        raise RefusedError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _without_support(context: Context, name: str, level: int) -> str | None:
    """Return the first node that does not support a level: this controller, a broker, another controller."""
    if name not in SUPPORTED or level not in SUPPORTED[name]:
        return f"Controller {context.node_id}"
    cluster = context.state.cluster
    for broker_id, broker in cluster.brokers.items():
        if level not in _range_of(name, broker.features):
            return f"Broker {broker_id}"
    for controller_id, controller in cluster.controllers.items():
        if controller_id != context.node_id and level not in _range_of(name, controller.features):
            return f"Controller {controller_id}"
    return None


def _range_of(name: str, features: Iterable[SupportedRange]) -> Versions:
    ranges = (Versions(row.min_supported_version, row.max_supported_version) for row in features if row.name == name)
    return next(ranges, UNSUPPORTED)


def _one_size_for_all(context: Context) -> Iterator[ConfigRecord]:
    """Yield what makes min.insync.replicas one setting of all brokers: the ELR rests on it (KIP-966)."""
    configs = context.state.configs
    if MIN_IN_SYNC not in configs.of(BROKER, ""):
        size = SETTINGS[MIN_IN_SYNC].default
        yield ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_IN_SYNC, value=size)
    for kind, name in configs.resources:
        if kind == BROKER and name and MIN_IN_SYNC in configs.of(BROKER, name):
            yield ConfigRecord(resource_type=BROKER, resource_name=name, name=MIN_IN_SYNC, value=None)
