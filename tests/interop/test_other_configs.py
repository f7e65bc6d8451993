"""Settings of groups and client metrics: a controller of Kafka and ours take and refuse the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlib.controller.other_configs import OF_GROUPS
from kraftlib.wire.messages.alter_configs import AlterConfigsRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.interop.asked import Asked
from tests.interop.lab import Lab
from tests.interop.test_admin_requests import controllers, done

GROUP, CLIENT_METRICS = 32, 16
NUMBERS = ("-1", "0", "1", "2", "3", "10", "11", "99", "100", "4000", "4001", "4999", "5000", "14999", "15000", "15001")
TIMES = ("45000", "60000", "60001", " 50000 ", "x", "", "1.5", str(1 << 31))
WORDS = ("true", "TRUE", "no", "latest", "Latest", "earliest", "read_committed", "none")
DURATIONS = ("PT1H", "P1D", "P1DT2H", "PT1.5S", "PT", "P", "1h", "PT-1H", "P1Y", "pt1h")
CLIENTS = (
    ("interval.ms", "99"), ("interval.ms", "100"), ("interval.ms", "3600000"), ("interval.ms", "3600001"),
    ("interval.ms", "x"), ("interval.ms", " 500 "), ("interval.ms", ""), ("metrics", "a.b,*"), ("metrics", ""),
    ("match", ""), ("match", "client_id=a.*"), ("match", "client_id=(a"), ("match", "client_id"),
    ("match", "client_id="),
    ("match", "user=a"), ("match", "client_id=a,client_source_port=90[0-9]"), ("match", "client_id=a=b"),
    ("match", " client_software_name = x "), ("push", "1"), ("", "1"),
)  # fmt: skip


@pytest.fixture
def both(lab: Lab) -> Iterator[tuple[Asked, Asked]]:
    yield from controllers(lab, elr=1)


def changes() -> Iterator[tuple[int, str, str, int, str | None]]:
    """Yield resource type and name, key, operation and value of one change after the other."""
    for key in (*OF_GROUPS, "consumer.max.lag"):
        kind = "share" if key == "share.auto.offset.reset" else ""
        for value in (*NUMBERS, *TIMES, *WORDS, *(f"by_duration:{one}" for one in DURATIONS if kind)):
            yield GROUP, "g", key, 0, value
    for key, value in CLIENTS:
        yield CLIENT_METRICS, "c", key, 0, value
    for operation in (1, 2, 3):
        for kind, key in (
            (GROUP, "consumer.session.timeout.ms"),
            (CLIENT_METRICS, "metrics"),
            (CLIENT_METRICS, "match"),
        ):
            for value in (None, "client_id=z", "50000"):
                yield kind, "h", key, operation, value
    for kind, name in ((GROUP, ""), (CLIENT_METRICS, ""), (GROUP, "a group"), (CLIENT_METRICS, "x" * 300)):
        yield kind, name, "interval.ms" if kind == CLIENT_METRICS else "share.delivery.count.limit", 0, "1000"


def request(kind: int, name: str, key: str, operation: int, value: str | None) -> IncrementalAlterConfigsRequest:
    row = IncrementalAlterConfigsRequest
    change = row.AlterableConfig(name=key, config_operation=operation, value=value)
    return row(resources=(row.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(change,)),))


@pytest.mark.since("4.3")
def test_a_controller_of_kafka_and_ours_take_the_same_settings(both: tuple[Asked, Asked]) -> None:
    differing = []
    for change in changes():
        theirs, ours = (done(there, request(*change)) for there in both)
        if theirs != ours:
            codes = [one[0]["responses"][0]["error_code"] for one in (theirs, ours)]
            differing.append((change, codes, theirs[1] == ours[1]))
    row = AlterConfigsRequest
    for kind, values in ((GROUP, {"share.delivery.count.limit": "4"}), (CLIENT_METRICS, {"metrics": "a"}), (GROUP, {})):
        configs = tuple(row.AlterableConfig(name=key, value=value) for key, value in values.items())
        resource = row.AlterConfigsResource(resource_type=kind, resource_name="g", configs=configs)
        theirs, ours = (done(there, row(resources=(resource,))) for there in both)
        assert theirs == ours, (kind, values)
    assert differing == []
