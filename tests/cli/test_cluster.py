"""Three real processes: what dies outside the script is started again, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from kraftlib.cli import cluster as cluster_module
from kraftlib.cli.cluster import Cluster, ClusterError, RefusedError, Voter, free_ports
from kraftlib.cli.quorum import describe
from kraftlib.types import parse_endpoint
from tests.cli.processes import wait_for_end


@pytest.mark.slow
async def test_a_cluster_elects_kills_restarts_and_leaves_nothing_behind(tmp_path: Path) -> None:
    deaths: list[tuple[int, int]] = []
    died = asyncio.Event()

    def note(voter: Voter, status: int) -> None:
        deaths.append((voter.number, status))
        died.set()

    async with asyncio.timeout(100), Cluster(tmp_path, on_death=note) as cluster:
        leader, epoch = await cluster.leader()
        statuses = await cluster.statuses()
        while {status["leader_id"] for _, status in statuses} != {leader.number}:
            statuses = await cluster.statuses()  # it leads before the others have heard of it
        assert len(statuses) == 3
        for _, status in statuses:
            # Each of them leads `kraftlib quorum status` to the leader, over Kafka's protocol.
            found = await asyncio.to_thread(describe, [parse_endpoint(status["endpoint"])], timeout_s=10)
            assert (found.leader_id, found.epoch) == (leader.number, epoch)

        # In the script: it stays down, and the others elect.
        killed = await cluster.kill(leader.number)
        assert killed is leader
        with pytest.raises(ConnectionError):
            await killed.ask("status")
        new, _ = await cluster.leader(after_epoch=epoch)
        assert new is not leader
        await cluster.start(leader.number)

        # Outside the script: it comes back by itself.
        other = next(voter for voter in cluster.voters.values() if voter not in (leader, new))
        before = other.pid
        os.kill(before, signal.SIGKILL)
        await died.wait()
        while len(await cluster.statuses()) < 3:
            pass  # each of these waits for the voters that are there
        assert other.pid != before
        assert deaths == [(other.number, -signal.SIGKILL)]

        with pytest.raises(RefusedError, match="ConfigError"):
            await new.ask("no such method")
        pids = [voter.pid for voter in cluster.voters.values()]
    for pid in pids:
        wait_for_end(pid)


async def test_a_voter_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that could are not left behind."""
    started: list[int] = []
    start = Voter.start

    async def note(voter: Voter) -> None:
        await start(voter)
        started.append(voter.pid)

    monkeypatch.setattr(Voter, "start", note)
    monkeypatch.setattr(cluster_module, "START_ATTEMPTS", 1)
    cluster = Cluster(tmp_path, settings={"no_such_setting": 1})
    with pytest.raises(ClusterError, match=r"voter \d did not start: kraftlib: .*unknown key 'no_such_setting'"):
        await cluster.__aenter__()
    for pid in started:
        wait_for_end(pid)


def test_ports_are_free_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(5)

    assert len(set(ports)) == 5
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            assert port < 32_768


def test_without_free_ports_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(cluster_module, "PORTS", range(port, port + 1))
        with pytest.raises(ClusterError, match="no 3 free ports"):
            free_ports(3)
