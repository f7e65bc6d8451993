"""How soon a broker knows what its controllers have decided: on ours, and on Kafka's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.interop.clusters import Cluster, on_each_kind
from tests.interop.kafka import ACLS, CONFIGS, TOPICS, Output
from tests.interop.lab import Lab
from tests.interop.processes import wait_for
from tests.interop.test_havoc import Record

CHANGES: Final = 15
KILLS: Final = 3
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.mark.slow
@pytest.mark.each_release
def test_news_of_topics_settings_and_rules(lab: Lab, record_property: Record) -> None:
    """Three controllers of either kind and one broker. At the end active controllers are killed."""
    on_each_kind(lab, measured, record_property)


def measured(lab: Lab, kafka: tuple[int, ...]) -> dict[str, str]:
    """Return median and longest times: of Kafka's tool, and from its end until the broker shows the change."""
    cluster = Cluster(lab, controllers=3, kafka=kafka, properties=AUTHORIZER, of_kafka=AUTHORIZER)
    cluster.start_brokers()
    found: dict[str, str] = {}

    def run(main: str, *words: object) -> Output:
        return lab.tools.run(main, "--bootstrap-server", cluster.bootstrap, *words)

    def measure(name: str, change: Callable[[int], object], is_shown: Callable[[int], bool]) -> None:
        asked, shown = [], []
        for number in range(CHANGES):
            time.sleep(0.037 * (number % 5))  # so that changes meet each moment of a Fetch that waits
            began = time.monotonic()
            change(number)
            told = time.monotonic()
            wait_for(name, lambda number=number: is_shown(number), every_s=0.001)
            asked.append(told - began)
            shown.append(time.monotonic() - told)
        for what, times in (("tool", asked), ("then shown", shown)):
            found[f"{name}, {what}, ms"] = f"{statistics.median(times) * 1_000:.0f} to {max(times) * 1_000:.0f}"

    def described(number: int) -> str:
        return run(TOPICS, "--describe", "--topic", f"topic-{number}").out

    setting = ("--entity-type", "topics", "--entity-name", "topic-0", "--alter", "--add-config")
    rule = ("--allow-principal", "User:ann", "--operation", "Read", "--topic")
    measure(
        "a topic",
        lambda number: run(TOPICS, "--create", "--topic", f"topic-{number}", "--partitions", 3).ok(),
        lambda number: described(number).count("Leader: 10") == 3,
    )
    measure(
        "a setting",
        lambda number: run(CONFIGS, *setting, f"retention.ms={200_000 + number}").ok(),
        lambda number: f"retention.ms={200_000 + number}" in described(0),
    )
    measure(
        "a rule",
        lambda number: run(ACLS, "--add", *rule, f"of-{number}").ok(),
        lambda number: f"of-{number}" in run(ACLS, "--list").out,
    )
    waits = []
    for number in range(KILLS):
        active = cluster.active()
        began = time.monotonic()
        cluster.controllers[active].kill()
        create = ("--create", "--topic", f"after-{number}")
        wait_for("a topic", lambda create=create: run(TOPICS, *create).status == 0, every_s=0)
        waits.append(time.monotonic() - began)
        cluster.controllers[active].start()
        cluster.caught_up()
    found["from a kill to the next topic, ms"] = ", ".join(f"{wait * 1_000:.0f}" for wait in sorted(waits))
    return found
