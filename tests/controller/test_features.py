from __future__ import annotations

from kraftlib.controller.features import Features
from kraftlib.controller.journal import Journal
from kraftlib.metadata import FeatureLevelRecord
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest


def features(**levels: int) -> Features:
    made = Features(Journal())
    for name, level in levels.items():
        made.replay(FeatureLevelRecord(name=name.replace("_", "."), feature_level=level))
    return made


def ranges(**given: tuple[int, int]) -> list[BrokerRegistrationRequest.Feature]:
    return [
        BrokerRegistrationRequest.Feature(
            name=name.replace("_", "."), min_supported_version=low, max_supported_version=high
        )
        for name, (low, high) in given.items()
    ]


def test_a_level_of_zero_removes_a_feature_and_a_snapshot_begins_with_the_metadata_version() -> None:
    made = features(group_version=1, metadata_version=21, share_version=1)
    made.replay(FeatureLevelRecord(name="share.version", feature_level=0))

    assert made.metadata_version == 21
    records = list(made.snapshot(dict(made.levels.items())))
    assert [getattr(record, "name") for record in records] == ["metadata.version", "group.version"]  # noqa: B009


def test_a_broker_must_support_every_level_that_is_in_force() -> None:
    made = features(metadata_version=21, group_version=1)
    assert made.why_not(ranges(metadata_version=(7, 30), group_version=(0, 1))) is None
    assert "metadata.version" in (made.why_not(ranges(metadata_version=(22, 30), group_version=(0, 1))) or "")
    assert "group.version" in (made.why_not(ranges(metadata_version=(7, 30))) or "")


def test_what_this_release_does_not_know_is_named() -> None:
    assert features(metadata_version=30).unsupported() is None
    assert features(metadata_version=31).unsupported() == "metadata.version 31"
    assert features(metadata_version=30, eligible_leader_replicas_version=2).unsupported() is not None
