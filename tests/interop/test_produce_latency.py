"""How long acknowledgements take while the active controller is killed again and again: ours, and Kafka's."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.interop.clusters import Cluster, on_each_kind
from tests.interop.lab import Lab
from tests.interop.test_havoc import Record
from tests.interop.traffic import PARTITIONS, Traffic

KILLS: Final = int(os.environ.get("KRAFTLIB_KILLS", "6"))
SESSION_MS: Final = 3_000
SHARES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}


@pytest.mark.slow
def test_acknowledgements_under_kills(lab: Lab, record_property: Record) -> None:
    """Three brokers and two producers on either kind of controllers. With every second one a broker dies, too."""
    on_each_kind(lab, measured, record_property)


def measured(lab: Lab, kafka: tuple[int, ...]) -> dict[str, int]:
    """Return the times in ms. Everything that was acknowledged is there at the end."""
    cluster = Cluster(
        lab, controllers=3, kafka=kafka, brokers=3, properties={"broker.heartbeat.interval.ms": 500},
        of_kafka={"broker.session.timeout.ms": SESSION_MS}, words=("--broker-session-timeout-ms", str(SESSION_MS)),
    )  # fmt: skip
    cluster.start_brokers()
    with Traffic(cluster) as traffic:
        for kills in range(KILLS):
            killed = cluster.active()
            cluster.controllers[killed].kill()
            if kills % 2:
                victim = cluster.brokers[kills // 2 % 3]
                victim.kill()
                traffic.wait_for_more()
                victim.start()
                victim.wait_started()
            cluster.active(but=killed)
            cluster.controllers[killed].start()
            traffic.wait_for_more()
            cluster.wait_in_sync()
            cluster.caught_up()
        traffic.wait_for_more()
    found = traffic.check()
    for kind in PARTITIONS:
        times = sorted(int(ms) for _, ms in traffic.lines(kind))
        found |= {f"{kind} {name}, ms": times[round(share * (len(times) - 1))] for name, share in SHARES.items()}
    return found
