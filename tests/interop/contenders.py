"""etcd and ZooKeeper, as quorums of three on loopback, and the program that puts load on them and on us.

All of it is fetched by name, once, into the cache of `tests.interop.jars`: etcd's server and the Go modules of the load
by `go build`, with the checksums of `services/go.sum`, and ZooKeeper's jars by Maven.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.jars import FETCH_TIMEOUT_S, FetchError, MissingToolsError, cache, ensure_tools, once, say
from tests.interop.processes import Process, free_ports, wait_for

SERVICES: Final = Path(__file__).with_name("services")
ZOOKEEPER: Final = "3.9.4"
ETCD_PACKAGE: Final = "go.etcd.io/etcd/server/v3"
BUILD_TIMEOUT_S: Final = 1_800
HEAP_MB: Final = 512
CONNECTIONS_MAX: Final = 4_096


def programs() -> Path:
    """Return the directory with `etcd` and `load`. Raises: MissingToolsError, FetchError."""
    sources = sorted([*SERVICES.glob("*.go"), *SERVICES.glob("go.*")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    home = cache() / f"services-{digest}"
    once(home, _build)
    return home


def _build(place: Path) -> None:
    if shutil.which("go") is None:
        raise MissingToolsError("etcd and the load are built with Go: install it (Debian: apt install golang-go)")
    say("building etcd and the load: once, some minutes")
    for name, package in (("etcd", ETCD_PACKAGE), ("load", ".")):
        command = ["go", "build", "-o", str(place / name), package]
        built = subprocess.run(command, cwd=SERVICES, check=False, timeout=BUILD_TIMEOUT_S, stdout=sys.stderr)
        if built.returncode:
            raise FetchError(f"`{' '.join(command)}` ended with {built.returncode}; its own words are above")


def zookeeper_jars() -> Path:
    """Return the directory with ZooKeeper's jars. Raises: MissingToolsError, FetchError."""
    home = cache() / f"zookeeper-{ZOOKEEPER}"
    once(home, _fetch)
    return home


def _fetch(place: Path) -> None:
    ensure_tools()
    say(f"fetching the jars of ZooKeeper {ZOOKEEPER}: once")
    command = ["mvn", "-q", "-B", "-f", str(SERVICES / "pom.xml"), f"-Dzookeeper.version={ZOOKEEPER}"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={place}"]
    fetched = subprocess.run(command, check=False, timeout=FETCH_TIMEOUT_S, stdout=sys.stderr)
    if fetched.returncode:
        raise FetchError(f"Maven ended with {fetched.returncode}; its own words are above")


def start(home: Path, commands: Mapping[str, Sequence[str]], stack: ExitStack) -> None:
    """Start the processes by name, and end them with `stack`."""
    for name, command in commands.items():
        process = Process(command, log=home / f"{name}.log")
        process.start()
        stack.callback(process.kill)


def start_etcd(home: Path, stack: ExitStack) -> Sequence[str]:
    """Start three servers of etcd with their defaults; return where clients connect."""
    home.mkdir()
    binary = programs() / "etcd"
    ports = free_ports(6)
    peers = {f"etcd-{at}": f"http://127.0.0.1:{port}" for at, port in enumerate(ports[:3], 1)}
    cluster = ",".join(f"{name}={url}" for name, url in peers.items())
    commands = {}
    for (name, url), port in zip(peers.items(), ports[3:], strict=True):
        client = f"http://127.0.0.1:{port}"
        options = {
            "name": name,
            "data-dir": str(home / name),
            "listen-peer-urls": url,
            "initial-advertise-peer-urls": url,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "initial-cluster": cluster,
            "log-level": "error",
        }
        commands[name] = [str(binary), *(f"--{option}={value}" for option, value in options.items())]
    start(home, commands, stack)
    return [f"127.0.0.1:{port}" for port in ports[3:]]


def start_zookeeper(home: Path, stack: ExitStack) -> Sequence[str]:
    """Start three servers of ZooKeeper with their defaults, and any number of clients; return where these connect."""
    home.mkdir()
    ports = free_ports(9)
    servers = "".join(f"server.{at + 1}=127.0.0.1:{ports[at]}:{ports[3 + at]}\n" for at in range(3))
    commands = {}
    for at in range(3):
        data = home / f"zookeeper-{at + 1}"
        data.mkdir()
        (data / "myid").write_text(f"{at + 1}\n")
        settings = home / f"zookeeper-{at + 1}.cfg"
        settings.write_text(
            f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nclientPort={ports[6 + at]}\n"
            f"clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n{servers}"
        )
        classes = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        jars = f"{zookeeper_jars()}/*"
        commands[data.name] = ["java", f"-Xmx{HEAP_MB}m", "-cp", jars, classes, str(settings)]
    start(home, commands, stack)
    return [f"127.0.0.1:{port}" for port in ports[6:]]


def wait_until_served(kind: str, servers: Sequence[str]) -> None:
    """Wait until a client can write through every server."""
    for server in servers:
        wait_for(f"{kind} at {server}", lambda: _writes(kind, server))  # noqa: B023 - called in this very turn


def _writes(kind: str, server: str) -> bool:
    command = [str(programs() / "load"), kind, server, "1", "put", "0.1"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
