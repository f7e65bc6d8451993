"""`kraftlib run -c CONFIG`: one replica, with a small key-value store inside, until Ctrl-C or SIGTERM.

It is the smallest useful service on top of the library, and the process that `kraftlib demo` and `dev.py bench` start
three times. How clients talk to it stands in `kraftlib.cli.key_value`. With `--no-store` it carries the log and
votes, and reads nothing of it: a voter among Kafka's controllers, whose records are theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.collector import calm_collector
from kraftlib.cli.config_file import FORMS, HELP, read_config
from kraftlib.cli.key_value import KeyValueStore, offer_store
from kraftlib.cli.lines import LineServer
from kraftlib.cli.service import Service
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.client.thread_engine import loop_factory
from kraftlib.runtime.listener import Listener
from kraftlib.types import UNIX, Endpoint, LeaderAndEpoch, parse_endpoint, socket_path

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

SOCKET_NAME: Final = "clients.sock"
"""The Unix socket for clients, in the directory of the replica."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare configuration and the clients' endpoint."""
    parser.description = (
        "Run one replica of a key-value store until Ctrl-C or SIGTERM.\n"
        "Clients send JSON lines, for instance with netcat."
    )
    parser.epilog = (
        "example of a configuration, for the first of three replicas:\n"
        "  node_id = 1\n"
        '  directory = "replica-1"\n'
        '  listen = "127.0.0.1:9001"\n'
        '  voters = ["1@127.0.0.1:9001", "2@127.0.0.1:9002", "3@127.0.0.1:9003"]\n'
        "\n"
        "example:\n"
        "  kraftlib format -c replica-1.toml --cluster-id $(kraftlib random-uuid)\n"
        "  kraftlib run -c replica-1.toml --clients 127.0.0.1:9101\n"
        '  echo \'{"put": {"key": "a", "value": "1"}}\' | nc -N 127.0.0.1 9101'
    )
    parser.add_argument("-c", "--config", required=True, metavar=FORMS, help=HELP)
    parser.add_argument(
        "--clients",
        metavar="HOST:PORT|unix:PATH|none",
        help="the address for clients of the store: a loopback port (default: a free one, which is printed); with"
        " [tls], [sasl], [access] or a Unix socket in the configuration a Unix socket (default: clients.sock in the"
        " directory)",
    )
    parser.add_argument(
        "--no-store",
        action="store_true",
        help="replicate and vote, but apply nothing, beside Kafka's controllers; clients may ask for the status",
    )
    parser.add_argument("--verbose", action="store_true", help="log every change of role on stderr")


def run(options: argparse.Namespace) -> int:
    """Run until told to stop."""
    config = read_config(options.config)
    clients = clients_of(config, options.clients)
    log_to_stderr(logging.DEBUG if options.debug else logging.INFO if options.verbose else logging.WARNING)
    run_loop(config, _serve_until_told(config, clients, bare_of if options.no_store else store_of))
    return 0


def run_loop(config: RaftConfig, program: Coroutine[Any, Any, None]) -> None:
    """Run `program` in the kind of event loop that is configured."""
    with asyncio.Runner(loop_factory=loop_factory(config.event_loop)) as runner:
        runner.run(program)


def clients_of(config: RaftConfig, text: str | None = None, *, socket: Path | None = None) -> Endpoint | None:
    """Return where the clients of a replica connect, None for nowhere, by the option `--clients` or without it.

    `socket` is the path of the Unix socket, if there is one and `text` names none; by default in `directory`.

    Clients do not log in. So a port is on loopback, and refused if [tls], [sasl], [access] or a Unix socket close the
    replica to other users of the machine. Raises: ConfigError.
    """
    places = (config.listen, config.unix_endpoint, *(voter.endpoint for voter in config.voters))
    on_socket = any(place is not None and socket_path(place.host) is not None for place in places)
    is_guarded = on_socket or any(each is not None for each in (config.tls, config.sasl, config.access))
    if text is None:
        path = (config.directory or Path()) / SOCKET_NAME if socket is None else socket
        default = f"{UNIX}{path.absolute()}" if is_guarded else "127.0.0.1:0"
        remedy = "set TMPDIR to a shorter path" if socket else "name a shorter path with --clients unix:PATH, or none"
        return _endpoint(default, remedy)
    if text == "none":
        return None
    endpoint = _endpoint(text, "or none")
    if socket_path(endpoint.host) is not None:
        return endpoint
    if endpoint.host not in LOOPBACK:
        raise ConfigError(f"--clients {text}: the key-value store has no passwords, so it listens on loopback only")
    if is_guarded:
        raise ConfigError(
            f"--clients {text}: the key-value store has no passwords, and any user of this machine could do there what"
            " [tls], [sasl], [access] or the Unix socket of this replica refuse: give --clients unix:PATH, or none"
        )
    return endpoint


def _endpoint(text: str, remedy: str) -> Endpoint:
    try:
        return parse_endpoint(text, lowest_port=0)
    except ConfigError as error:
        raise ConfigError(f"--clients {error}; {remedy}") from None


def log_to_stderr(level: int) -> None:
    """Let the library's log lines be seen; as plain sentences, as long as they are few."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s" if level < logging.WARNING else "kraftlib: %(message)s"
    logging.basicConfig(level=level, stream=sys.stderr, format=form)


@asynccontextmanager
async def serve(client: RaftClient[Any], service: Service, clients: Endpoint | None) -> AsyncIterator[Endpoint | None]:
    """Run a replica and its service for clients; yield their endpoint; then transfer leadership, flush, close."""
    server = LineServer(service.answer)
    async with client:
        calm_collector()
        try:
            yield None if clients is None else await server.start(clients)
        finally:
            await server.close()
            await client.shutdown()


def store_of(
    config: RaftConfig, *, leader_changed: Callable[[LeaderAndEpoch], None] = lambda leader: None
) -> tuple[RaftClient[Any], Service]:
    """Return a replica with a key-value store inside, and the service of the store."""
    store = KeyValueStore(leader_changed=leader_changed)
    client: RaftClient[Any] = RaftClient(config, state_machine=store, serde=JsonSerde())
    service = Service(client)
    offer_store(service, store)
    return client, service


def bare_of(
    config: RaftConfig, *, leader_changed: Callable[[LeaderAndEpoch], None] = lambda leader: None
) -> tuple[RaftClient[Any], Service]:
    """Return a replica with nothing inside, and a service that knows its status."""
    client: RaftClient[Any] = RaftClient(config, listener=_LeaderListener(leader_changed))
    return client, Service(client)


class _LeaderListener(Listener):
    def __init__(self, leader_changed: Callable[[LeaderAndEpoch], None]) -> None:
        self._leader_changed = leader_changed

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._leader_changed(leader)


def told_to_stop() -> asyncio.Event:
    """Return what is set by Ctrl-C and SIGTERM; a second Ctrl-C interrupts at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def told(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told, number)
    return stop


async def until(stop: asyncio.Event, closed: Coroutine[Any, Any, None]) -> None:
    """Wait for `stop`, or for `closed`. Raises: ReplicaFailedError, if the replica stops itself before."""
    ends = [asyncio.create_task(stop.wait()), asyncio.create_task(closed)]
    done, pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()


async def _serve_until_told(
    config: RaftConfig, clients: Endpoint | None, make: Callable[..., tuple[RaftClient[Any], Service]]
) -> None:
    stop = told_to_stop()
    lock = threading.Lock()
    early: list[str] | None = []  # a leader may be known before it was said where we listen

    def tell(leader: LeaderAndEpoch) -> None:
        who = "nobody" if leader.leader_id is None else f"replica {leader.leader_id}"
        own = " (this one)" if leader.leader_id == config.node_id else ""
        line = f"epoch {leader.epoch}: {who}{own} leads"
        with lock:
            if early is None:
                with suppress(OSError):  # a reader that is gone, a full disk: the replica goes on
                    print(line, flush=True)
            else:
                early.append(line)

    client, service = make(config, leader_changed=tell)
    async with serve(client, service, clients) as clients:
        print(
            f"replica {config.node_id}: replicas connect to {client.endpoint}, clients to {clients or 'nothing'};"
            " Ctrl-C stops it",
            flush=True,
        )
        with lock:
            for line in early or ():
                print(line, flush=True)
            early = None
        await until(stop, client.wait_closed())
        print("stopping: leadership is transferred, the log is flushed and closed", flush=True)
