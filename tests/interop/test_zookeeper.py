"""Imports of a real ZooKeeper: the one that came with Kafka 3.9."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import kazoo.client
import pytest
from kazoo.handlers.threading import KazooTimeoutError

from kraftlib.compat.kazoo import KazooClient
from kraftlib.compat.kazoo.source import read_source
from kraftlib.compat.kazoo.zookeeper_files import read_files
from tests.compat.kazoo_suite import Cluster
from tests.interop.jars import libraries
from tests.interop.lab import Lab
from tests.interop.ours import ROOT
from tests.interop.processes import PATIENCE_S, Process, wait_for

RELEASE = "3.9.2"


def zookeeper(lab: Lab) -> tuple[Process, Any]:
    """Start a server and return it with a client."""
    place = lab.endpoint()
    settings = lab.home / "zoo.cfg"
    settings.write_text(
        f"dataDir={lab.home / 'data'}\nclientPort={place.port}\nclientPortAddress=127.0.0.1\ntickTime=2000\n"
        "admin.enableServer=false\n"
    )
    extended = "-Dzookeeper.extendedTypesEnabled=true"
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = ["java", "-Xmx128m", extended, "-cp", f"{libraries(RELEASE)}/*", main, str(settings)]
    server = Process(command, log=lab.home / "zookeeper.log")
    lab.keep(server)
    server.start()
    client = kazoo.client.KazooClient(hosts=f"127.0.0.1:{place.port}")
    try:
        client.start(timeout=PATIENCE_S)
    except KazooTimeoutError:
        raise AssertionError(server.tail()) from None
    return server, client


def importing(lab: Lab, source: Any, target: Cluster, *words: str) -> Process:
    hosts = ",".join(f"{host}:{port}" for host, port in source.hosts)
    command = ["import", "zookeeper", hosts, "--bootstrap", target[0].address, *words]
    process = Process(
        [sys.executable, "-m", "kraftlib.cli", *command],
        log=lab.home / "import.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    lab.keep(process)
    process.start()
    return process


def ended(process: Process) -> int | None:
    wait_for("the end of the import", lambda: not process.running)
    return process.status


def fill(client: Any) -> None:
    client.ensure_path("/svc/way")
    client.create("/svc/null", None)
    client.create("/svc/ü", "ä".encode())
    client.create("/svc/large", bytes(900_000))
    client.create("/svc/mine", b"", ephemeral=True)
    for parent in ("/svc", "/svc/way"):
        for _ in range(300):
            client.create(f"{parent}/n-", b"1", sequence=True)
        client.delete(f"{parent}/n-{client.get(parent)[1].cversion - 1:010}")
        client.set(parent, b"second")


def assert_equal_trees(one: Any, other: Any, path: str) -> int:
    """Compare through both clients; return the number of nodes. Numbers of transactions differ, as they must."""
    (data, stat), (other_data, other_stat) = one.get(path), other.get(path)
    assert data == other_data, path
    told = [(s.version, s.ctime, s.mtime, s.dataLength) for s in (stat, other_stat)]
    assert told[0] == told[1], path
    names = [name for name in one.get_children(path) if not one.exists(f"{path}/{name}").ephemeralOwner]
    assert sorted(names) == sorted(other.get_children(path)), path
    return 1 + sum(assert_equal_trees(one, other, f"{path}/{name}") for name in names)


@pytest.fixture
def target() -> Iterator[Cluster]:
    with Cluster(1) as cluster:
        yield cluster


@pytest.mark.usefixtures("version")
def test_a_tree_of_zookeeper_is_copied_and_followed_until_the_switch_over(lab: Lab, target: Cluster) -> None:
    server, source = zookeeper(lab)
    fill(source)
    once = importing(lab, source, target, "--path", "/svc")
    assert ended(once) == 0, once.tail()
    assert "equal: 603 nodes" in once.log_text()
    assert "1 ephemeral nodes are left out" in once.log_text()

    source.set("/svc/way", b"third")
    source.delete("/svc/ü")
    refused = importing(lab, source, target, "--path", "/svc")
    assert ended(refused) == 1
    assert "give --replace" in refused.log_text()

    follower = importing(lab, source, target, "--path", "/svc", "--replace", "--every", "0.1")
    follower.wait_for_line("equal: 602 nodes")
    source.create("/svc/way/late", b"")
    follower.wait_for_line("equal: 603 nodes")
    follower.kill()

    ours = KazooClient(hosts=target[0].address)
    ours.start(timeout=PATIENCE_S)
    assert assert_equal_trees(source, ours, "/svc") == 603
    for parent in ("/svc", "/svc/way"):
        assert ours.create(f"{parent}/n-", sequence=True) == source.create(f"{parent}/n-", sequence=True)
    ours.stop()
    ours.close()

    read = read_source(source, "/")
    server.kill()
    assert read_files([lab.home / "data"], "/") == read, "as the files of a killed server have it"
    source.stop()
    source.close()
