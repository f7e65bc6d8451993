"""A controller of Kafka and one of ours are asked the same, some hundred times; answers and records are compared."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kraftlib.controller.bootstrap import controller_levels
from kraftlib.controller.features import ELIGIBLE_LEADER_REPLICAS
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest
from tests.interop.admin_requests import BROKERS, Draw, heartbeat, registration
from tests.interop.asked import Asked
from tests.interop.clusters import Controller
from tests.interop.kafka import controller
from tests.interop.lab import Lab
from tests.interop.processes import wait_for

REQUESTS: Final = int(os.environ.get("KRAFTLIB_ADMIN_REQUESTS", "400"))
SEEDS: Final = tuple(map(int, os.environ.get("KRAFTLIB_ADMIN_SEEDS", "1").split(",")))
IMAGE_S: Final = 1.0
FOREVER_MS: Final = 3_600_000


KEY: Final = "the key of the tokens"


@pytest.fixture(params=(0, 1), ids=("isr", "elr"))
def pair(lab: Lab, request: pytest.FixtureRequest) -> Iterator[tuple[Asked, Asked]]:
    """Kafka's and ours, with the same features and five brokers; without and with eligible leader replicas."""
    yield from controllers(lab, elr=request.param)


def controllers(lab: Lab, *, elr: int, judged: bool = False) -> Iterator[tuple[Asked, Asked]]:
    """Start one of Kafka's and one of ours; `judged`: ours judges clients by rules of access, too."""
    levels = {**controller_levels(lab.release.minor), ELIGIBLE_LEADER_REPLICAS: elr}
    release, places = lab.release, (lab.endpoint(), lab.endpoint())
    quiet = {
        "metadata.max.idle.interval.ms": 0,
        "broker.session.timeout.ms": FOREVER_MS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.leader.rebalance.enable": "false",
        "delegation.token.secret.key": KEY,
    }
    kafka = controller(
        release, 1, home=lab.home, endpoint=places[0],
        quorum={"controller.quorum.bootstrap.servers": places[0]}, properties=quiet,
    )  # fmt: skip
    kafka.format(lab.cluster_id, "--standalone", "--feature", f"{ELIGIBLE_LEADER_REPLICAS}={elr}")
    ours = Controller(lab, 1, places[1], [str(places[1])])
    ours.command += ["--broker-session-timeout-ms", str(FOREVER_MS), "--leader-imbalance-check-interval-ms", "0"]
    format_directory(
        ours.directory, node_id=1, cluster_id=lab.cluster_id, standalone=places[1], release=release.minor,
        levels={name: level for name, level in levels.items() if level},
    )  # fmt: skip
    secret = lab.home / "token.key"
    secret.write_text(KEY)
    ours.command += ["--delegation-token-secret-file", str(secret)]
    ours.command += ["--standard-authorizer"] if judged else []
    for process in (kafka, ours):
        lab.keep(process)
        process.start()
    kafka.wait_started()
    both = tuple(wait_for("an active controller", lambda place=place: asked(lab, place)) for place in places)
    yield both  # type: ignore[misc]
    for one in both:
        assert one is not None
        one.close()


def asked(lab: Lab, place: Endpoint) -> Asked | None:
    """Return a connection to a controller, once it is active."""
    try:
        there = Asked(place, lab.cluster_id)
    except OSError:
        return None
    is_active = False
    try:
        there.written()
        is_active = bool(there.state.features.metadata_version and list(there.state.cluster.controllers.items()))
    finally:
        if not is_active:
            there.close()
    return there if is_active else None


def done(there: Asked, request: Any, version: int | None = None, *, is_forwarded: bool = False) -> tuple[Any, Any]:
    """Return what an answer says, and what was written for it."""
    answer = (there.forwarded if is_forwarded else there.ask)(request, version)
    records = there.written()
    return there.plain(answer), there.plain(records)


@pytest.mark.since("4.3")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_controller_of_kafka_and_ours_do_the_same(pair: tuple[Asked, Asked], seed: int) -> None:
    """Admin tools and brokers see one controller in place of the other: codes of errors, values, records."""
    for number in BROKERS:
        for there in pair:
            there.ask(registration(there, number))
            there.written()
            there.ask(heartbeat(there, number))
            there.written()
    draws = [Draw(seed, there) for there in pair]
    for number in range(REQUESTS):
        drawn = [draw.request() for draw in draws]
        (is_forwarded, _) = [draw.is_forwarded(one) for draw, (one, _) in zip(draws, drawn, strict=True)]
        theirs, ours = (done(there, *one, is_forwarded=is_forwarded) for there, one in zip(pair, drawn, strict=True))
        if theirs != ours and isinstance(drawn[0][0], DescribeConfigsRequest):
            # Kafka's controller reads this in an image that follows its log.
            time.sleep(IMAGE_S)
            theirs = done(pair[0], *drawn[0])
        assert theirs == ours, f"request {number}: {drawn[0]}"
