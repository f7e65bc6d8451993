"""A controller of Kafka and one of ours are asked to change levels of features; answers and records are compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pytest

from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.interop.admin_requests import BROKERS, heartbeat, registration
from tests.interop.asked import Asked
from tests.interop.lab import Lab
from tests.interop.test_admin_requests import controllers, done

LEVELS: Final = {
    "metadata.version": (-1, 0, 6, 7, 16, 22, 25, 29, 30, 31),
    "eligible.leader.replicas.version": (0, 1, 2, 0),
    "group.version": (1, 0, 2),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (1, 0, 2, 3),
    "no.such.feature": (0, 1),
}
KINDS: Final = (0, 1, 2, 3, 9)


def requests() -> Iterator[tuple[UpdateFeaturesRequest, int]]:
    """Each level of each feature in each way, alone, and some of them together."""
    row = UpdateFeaturesRequest.FeatureUpdateKey
    for name, levels in LEVELS.items():
        for level, kind in itertools.product(levels, KINDS):
            one = row(feature=name, max_version_level=level, upgrade_type=kind)
            yield UpdateFeaturesRequest(feature_updates=(one,), validate_only=True), 2
            yield UpdateFeaturesRequest(feature_updates=(one,)), 2 - (level + kind) % 2
        for level in levels:
            for may in (False, True):
                yield (
                    UpdateFeaturesRequest(
                        feature_updates=(row(feature=name, max_version_level=level, allow_downgrade=may),)
                    ),
                    0,
                )
    good = row(feature="group.version", max_version_level=1), row(feature="share.version", max_version_level=1)
    bad = row(feature="streams.version", max_version_level=7)
    for rows in ((), good, (*good, bad)):
        yield from ((UpdateFeaturesRequest(feature_updates=rows), version) for version in (1, 2))


@pytest.mark.since("4.3")
@pytest.mark.parametrize("elr", [0, 1])
def test_levels_of_features_change_as_with_kafkas_controller(lab: Lab, elr: int) -> None:
    """`kafka-features` sees one controller in place of the other: errors, and levels in the log."""
    pair: tuple[Asked, Asked]
    for pair in controllers(lab, elr=elr):
        for number in BROKERS:
            for there in pair:
                there.ask(registration(there, number))
                there.written()
                there.ask(heartbeat(there, number))
                there.written()
        for number, (request, version) in enumerate(requests()):
            theirs, ours = (done(there, request, version) for there in pair)
            assert theirs == ours, f"request {number}: {request} in version {version}"


@pytest.mark.since("4.3")
def test_a_broker_whose_number_is_written_otherwise_makes_kafkas_controller_resign(lab: Lab) -> None:
    """Kafka keeps the settings of broker `03` under that name, and looks for those of broker 3 as it turns on ELRs."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="log.cleaner.threads", value="1")
    row = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=2
    )
    request = UpdateFeaturesRequest(feature_updates=(row,))
    pair: tuple[Asked, Asked]
    for pair in controllers(lab, elr=1):
        for number in BROKERS:
            for there in pair:
                there.ask(registration(there, number))
                there.written()
        for name in ("2", "03"):
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=4, resource_name=name, configs=(config,)
            )
            for there in pair:
                assert done(there, IncrementalAlterConfigsRequest(resources=(resource,)))[1], "it is written"
            theirs, ours = (there.ask(request) for there in pair)
            assert ours.error_code == ErrorCode.NONE
            assert theirs.error_code == (ErrorCode.NONE if name == "2" else ErrorCode.UNKNOWN_SERVER_ERROR)
