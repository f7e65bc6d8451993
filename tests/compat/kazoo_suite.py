"""kazoo's own tests, unchanged, on our client: `python -m tests.compat.kazoo_suite [test_lock test_party ...]`.

Replaces kazoo's client by ours and its ZooKeeper by replicas in this process, runs the tests that kazoo's package has,
and prints how many pass, out of how many, and which do not.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import kazoo.client
import pytest

from kraftlib.compat.kazoo import KazooClient
from tests.coordination.net.ways import Replicas

RECIPES: Final = (
    "test_lock",
    "test_election",
    "test_party",
    "test_queue",
    "test_counter",
    "test_barrier",
    "test_watchers",
    "test_cache",
    "test_lease",
    "test_partitioner",
)
OTHERS: Final = ("test_client", "test_retry", "test_interrupt", "test_paths", "test_exceptions", "test_hosts")


ACLS: Final = "asks for ACLs, which have no effect"
COMMANDS: Final = "asks for a command of ZooKeeper's server"
RECONFIG: Final = "asks for ZooKeeper's reconfiguration"
NOT_OURS: Final[dict[str, str]] = {
    "TestAuthentication::test_add_auth_on_reconnect": "looks into the socket of kazoo's connection",
    "TestAuthentication::test_async_auth_failure": ACLS,
    "TestAuthentication::test_auth": ACLS,
    "TestAuthentication::test_connect_auth": ACLS,
    "TestAuthentication::test_unicode_auth": ACLS,
    "TestClient::test_create_large_value": "ZooKeeper closes the connection; here an error says what is too large",
    "TestClient::test_create_makepath_incompatible_acls": ACLS,
    "TestClient::test_get_acls": ACLS,
    "TestClient::test_request_queuing_session_expired": "spoils the password of ZooKeeper's session",
    "TestClient::test_server_version_retries_eventually_ok": COMMANDS,
    "TestClient::test_server_version_retries_fail": COMMANDS,
    "TestClient::test_set_acls": ACLS,
    "TestClient::test_set_acls_empty": ACLS,
    "TestClient::test_version_no_connection": COMMANDS,
    "TestReconfig::test_add_remove_observer": RECONFIG,
    "TestReconfig::test_bad_input": RECONFIG,
    "TestReconfig::test_no_super_auth": RECONFIG,
    "TestSSLClient::test_create": "asks for the key stores of kazoo's ZooKeeper; test_client.py speaks TLS",
}
"""Tests that fail since they ask for what only ZooKeeper has. One that passes must not be listed."""


class Server:
    """A replica, as kazoo's tests see a server of ZooKeeper."""

    def __init__(self, cluster: Cluster, node_id: int, address: str) -> None:
        self.address = self.secure_address = address
        self._cluster = cluster
        self._node_id = node_id

    @property
    def running(self) -> bool:
        return self._node_id in self._cluster.replicas.running

    def stop(self) -> None:
        self._cluster.do(self._cluster.replicas.kill(self._node_id))

    def run(self) -> None:
        if not self.running:
            self._cluster.do(self._cluster.replicas.start(self._node_id))


class Cluster(list[Server]):
    """The replicas, on a loop in a thread, until `end` or the end of a `with` block."""

    def __init__(self, count: int, **options: Any) -> None:
        self._count = count
        self._options = options
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(started)), daemon=True)
        self._thread.start()
        started.wait()
        addresses = self.replicas.servers.split(",")
        super().__init__(Server(self, node_id, address) for node_id, address in enumerate(addresses, start=1))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _main(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self.replicas = Replicas(self._count, **self._options)
        try:
            for node_id in self.replicas.ids:
                await self.replicas.start(node_id)
            await self.replicas.leader()
            started.set()
            await self._ended.wait()
        finally:
            for node_id in list(self.replicas.running):
                await self.replicas.kill(node_id)

    def start(self) -> None:
        for server in self:
            server.run()

    def terminate(self) -> None:
        """The next test wants them, too."""


class Tally:
    """A plugin of pytest: collects outcomes, and ends a test that hangs."""

    def __init__(self, patience_s: int) -> None:
        self._patience_s = patience_s
        self.passed: list[str] = []
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.rpartition("/")[2]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[name] = str(report.longrepr if crash is None else f"{crash.message}").splitlines()[0][:150]
        elif report.skipped:
            self.skipped[name] = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        elif report.when == "call":
            self.passed.append(name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        def hung(*_: object) -> None:
            raise TimeoutError(f"hung for {self._patience_s} s")

        signal.signal(signal.SIGALRM, hung)
        signal.alarm(self._patience_s)
        try:
            return (yield)
        finally:
            signal.alarm(0)

    def report(self) -> int:
        """Print the outcome; return the number of tests that did what is not expected of them."""
        not_ours = {name: why for name in self.failed if (why := NOT_OURS.get(name.partition("::")[2]))}
        passed = [name for name in self.passed if name not in self.failed]
        wrong = {name: reason for name, reason in self.failed.items() if name not in not_ours}
        wrong |= {name: "passes, but is listed" for name in passed if name.partition("::")[2] in NOT_OURS}
        for title, found in (("skipped by kazoo", self.skipped), ("not ours", not_ours), ("WRONG", wrong)):
            for name, reason in sorted(found.items()):
                print(f"{title}: {name}: {reason}")
        print(f"kazoo's tests on kraftlib: {len(passed)} of {len(passed) + len(self.failed)} pass, ", end="")
        print(f"{len(not_ours)} ask for ZooKeeper itself, {len(self.skipped)} are skipped, {len(wrong)} are wrong")
        return len(wrong)


@contextmanager
def ours(cluster: Cluster) -> Iterator[None]:
    """Put our client, and `cluster`, where kazoo's tests look for theirs."""
    for name in ("OpenSSL", "jks"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = ModuleType(name)  # makes key stores for ZooKeeper, and there is none
    harness = importlib.import_module("kazoo.testing.harness")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kazoo.client, "KazooClient", KazooClient)
        patch.setattr(harness, "KazooClient", KazooClient)
        patch.setattr(harness, "get_global_cluster", lambda: cluster)
        yield


def run(modules: Sequence[str], *, replicas: int = 1, patience_s: int = 60, options: Sequence[str] = ()) -> Tally:
    """Run modules of kazoo's tests and return the outcomes."""
    tally = Tally(patience_s)
    with Cluster(replicas) as cluster, ours(cluster):
        paths = [str(importlib.import_module(f"kazoo.tests.{name}").__file__) for name in modules]
        # Neither our configuration nor kazoo's, and no conftest: plain unittest cases.
        pytest.main([*paths, "-q", "-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider", *options], [tally])
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="such as test_lock; without any, all of them")
    parser.add_argument("--recipes", action="store_true", help="those of the recipes")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--patience-s", type=int, default=60)
    parser.add_argument("-k", default="")
    chosen = parser.parse_args()
    options = ["-k", chosen.k] if chosen.k else []
    modules = [*chosen.modules, *(RECIPES if chosen.recipes else ())] or [*RECIPES, *OTHERS]
    tally = run(modules, replicas=chosen.replicas, patience_s=chosen.patience_s, options=options)
    return min(tally.report(), 1)


if __name__ == "__main__":
    sys.exit(main())
