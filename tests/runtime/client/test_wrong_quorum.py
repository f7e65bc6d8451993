"""A replica that was set up for another quorum: both sides say so, over real frames."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kraftlib.config import RaftConfig
from tests.runtime.quorum import Quorum, until


class Mistaken(Quorum):
    """Replica 3 is configured otherwise than the others."""

    def __init__(self, mistake: Callable[[RaftConfig], RaftConfig]) -> None:
        super().__init__()
        self._mistake = mistake

    def config(self, node_id: int) -> RaftConfig:
        config = super().config(node_id)
        return self._mistake(config) if node_id == 3 else config


def other_cluster(config: RaftConfig) -> RaftConfig:
    return attrs.evolve(config, cluster_id="other")


def other_voters(config: RaftConfig) -> RaftConfig:
    return attrs.evolve(config, voters=config.voters[1:])


def seen_by_both(together: Quorum, reason: str) -> bool:
    def count(client: Any) -> int:
        return int(client.status().refused.get(reason, 0))

    return count(together.clients[3]) > 1 and count(together.clients[1]) + count(together.clients[2]) > 1


@pytest.mark.parametrize(
    ("mistake", "reason", "texts"),
    [
        (other_cluster, "another cluster", ("is of cluster 'other', and we are of 'test'", "says: \"cluster 'test'\"")),
        (
            other_voters,
            "another list of voters",
            ("counts the voters {2, 3}, and we count {1, 2, 3}", "says: 'voters {1, 2, 3}'"),
        ),
    ],
    ids=["cluster id", "list of voters"],
)
async def test_a_replica_that_was_set_up_for_another_quorum_is_not_silent(
    mistake: Callable[[RaftConfig], RaftConfig], reason: str, texts: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The others elect a leader without it. Each side names both sides' values, once for each peer."""
    together = Mistaken(mistake)
    try:
        await together.start()
        await together.leader(not_id=3)
        await until(lambda: seen_by_both(together, reason))

        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        told = [text for text in warnings if reason in text]
        for number in (1, 2, 3):
            assert len([text for text in told if text.startswith(f"replica {number},")]) <= 3  # two, and "somebody"
        for text in texts:
            assert any(text in warning for warning in told)
        sums = [client.metrics()["refused-total"] for client in together.clients.values()]
        assert sums[2] > 1
        assert sums[0] + sums[1] > 1
    finally:
        await together.close()
