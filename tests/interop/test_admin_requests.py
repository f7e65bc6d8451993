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
from tests.interop.admin_requests import BROKERS, Draw, Drawn, heartbeat, registration
from tests.interop.asked import KEY, SUPER_USER, Asked
from tests.interop.clusters import Controller
from tests.interop.kafka import controller
from tests.interop.lab import Lab
from tests.interop.limits import LIMITS, Limits
from tests.interop.processes import wait_for

REQUESTS: Final = int(os.environ.get("KRAFTLIB_ADMIN_REQUESTS", "400"))
SEEDS: Final = tuple(map(int, os.environ.get("KRAFTLIB_ADMIN_SEEDS", "1").split(",")))
IMAGE_S: Final = 1.0
NEWS_S: Final = 0.5
FOREVER_MS: Final = 3_600_000


@pytest.fixture
def pair(lab: Lab, request: pytest.FixtureRequest) -> Iterator[tuple[Asked, Asked]]:
    """Kafka's and ours, with the same features, and eligible leader replicas or none."""
    yield from controllers(lab, elr=request.param, judged=True)


def controllers(lab: Lab, *, elr: int, judged: bool = False) -> Iterator[tuple[Asked, Asked]]:
    """Start one of Kafka's and one of ours; `judged`: ours judges clients by rules of access, too."""
    levels = controller_levels(lab.release.of_levels)
    has_elr = ELIGIBLE_LEADER_REPLICAS in levels
    levels |= {ELIGIBLE_LEADER_REPLICAS: elr} if has_elr else {}
    release, places = lab.release, (lab.endpoint(), lab.endpoint())
    quiet = {
        "metadata.max.idle.interval.ms": 0,
        "broker.session.timeout.ms": FOREVER_MS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{SUPER_USER}",
        "auto.leader.rebalance.enable": "false",
        "delegation.token.secret.key": KEY,
    }
    kafka = controller(
        release, 1, home=lab.home, endpoint=places[0],
        quorum={"controller.quorum.bootstrap.servers": places[0]}, properties=quiet,
    )  # fmt: skip
    features = ("--feature", f"{ELIGIBLE_LEADER_REPLICAS}={elr}") if has_elr else ()
    kafka.format(lab.cluster_id, "--standalone", "--release-version", release.of_levels, *features)
    ours = Controller(lab, 1, places[1], [str(places[1])])
    ours.command += ["--broker-session-timeout-ms", str(FOREVER_MS), "--leader-imbalance-check-interval-ms", "0"]
    format_directory(
        ours.directory, node_id=1, cluster_id=lab.cluster_id, standalone=places[1], release=release.of_levels,
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


def done(there: Asked, request: Any, version: int | None = None) -> tuple[Any, Any]:
    """Return what an answer says, and what was written for it."""
    return as_drawn(there, Drawn(request, version))


def as_drawn(there: Asked, drawn: Drawn) -> tuple[Any, Any]:
    """Do the same as whoever was drawn."""
    if drawn.user is None:
        answer = there.ask(drawn.request, drawn.version)
    else:
        answer = there.forwarded(drawn.request, drawn.version, user=drawn.user, by_token=drawn.by_token)
    records = there.written()
    return there.plain(answer), there.plain(records)


@pytest.mark.each_release
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pair", [0], ids=["isr"], indirect=True)
def test_a_controller_of_kafka_and_ours_do_the_same(lab: Lab, pair: tuple[Asked, Asked], seed: int) -> None:
    """Admin tools and brokers see one controller in place of the other: codes of errors, values, records."""
    compare(lab, pair, seed)


@pytest.mark.since("4.1")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pair", [1], ids=["elr"], indirect=True)
def test_they_do_the_same_with_eligible_leader_replicas(lab: Lab, pair: tuple[Asked, Asked], seed: int) -> None:
    """The same requests where leaders may come from outside the ISR."""
    compare(lab, pair, seed)


def compare(lab: Lab, pair: tuple[Asked, Asked], seed: int) -> None:
    """Register five brokers at both controllers, ask both the same requests, and compare answers and records."""
    limits = LIMITS.get(lab.release.minor, Limits())
    for there in pair:
        there.not_compared = limits.not_compared
        for number in BROKERS:
            there.ask(registration(there, number))
            there.written()
            there.ask(heartbeat(there, number), 1)
            there.written()
    draws = [Draw(seed, there, limits) for there in pair]
    for number in range(REQUESTS):
        drawn = [draw.request() for draw in draws]
        if drawn[0].needs_news and pair[0].has_news:
            time.sleep(NEWS_S)  # Kafka's controller reads these in an image that follows its log
            pair[0].has_news = False
        theirs, ours = map(as_drawn, pair, drawn)
        if theirs != ours and isinstance(drawn[0].request, DescribeConfigsRequest):
            time.sleep(IMAGE_S)  # this, too
            theirs = as_drawn(pair[0], drawn[0])
        assert theirs == ours, f"request {number}: {drawn[0]}"
