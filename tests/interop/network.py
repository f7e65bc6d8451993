"""A network of its own for each broker, so that it can be cut off from controllers, or from other brokers.

Controllers and brokers are known as `localhost`, which a hosts file makes another address of loopback for each broker
(127.0.0.10 for broker 10). Links listen there at the same ports and lead to 127.0.0.1, so each belongs to one broker.
While a link is cut, what is sent stays on the way in either direction, as it does while packets are lost: a request may
arrive long after its sender has given it up.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable
from typing import Final

from kraftlib.types import Endpoint
from tests.interop.clusters import Cluster
from tests.interop.kafka import KafkaNode

NAME: Final = "localhost"
BETWEEN_BROKERS: Final = "BROKERS"
CHUNK: Final = 1 << 16


class Network:
    """The links from each broker of a cluster, whose `host` is `NAME`, to its controllers and to the other brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._links: dict[tuple[int, int], Link] = {}
        inner = {node.node_id: cluster.lab.endpoint().port for node in cluster.brokers}
        for node in cluster.brokers:
            self._settle(node, inner[node.node_id])
            ports = {number: controller.endpoint.port for number, controller in cluster.controllers.items()}
            for number, port in (ports | inner).items():  # a broker has requests to itself, too
                self._links[node.node_id, number] = Link(Endpoint(_address(node), port))

    def _settle(self, node: KafkaNode, port: int) -> None:
        """Have a broker see its own network, and be reached by other brokers at `port`."""
        hosts = node.properties_file.with_suffix(".hosts")
        hosts.write_text(f"{_address(node)} {NAME}\n127.0.0.1 {socket.gethostname()}\n")
        node.command.insert(1, f"-Djdk.net.hosts.file={hosts}")
        node.properties |= {
            "listeners": f"PLAINTEXT://{node.endpoint},{BETWEEN_BROKERS}://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://{node.endpoint},{BETWEEN_BROKERS}://{NAME}:{port}",
            "listener.security.protocol.map": (f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{BETWEEN_BROKERS}:PLAINTEXT"),
            "inter.broker.listener.name": BETWEEN_BROKERS,
        }
        node.write_properties()

    def cut(self, node: KafkaNode, *others: int) -> None:
        """Let nothing pass any more between a broker and these nodes, whoever connects to whom."""
        for link in self._between(node, others):
            link.is_open.clear()

    def mend(self, node: KafkaNode, *others: int) -> None:
        """Let everything pass again, what has been sent meanwhile first."""
        for link in self._between(node, others):
            link.is_open.set()

    def close(self) -> None:
        """End all links."""
        for link in self._links.values():
            link.close()

    def _between(self, node: KafkaNode, others: Iterable[int]) -> list[Link]:
        apart = set(others) - {node.node_id}
        pairs = [pair for other in apart for pair in ((node.node_id, other), (other, node.node_id))]
        return [self._links[pair] for pair in pairs if pair in self._links]


def _address(node: KafkaNode) -> str:
    return f"127.0.0.{node.node_id}"


class Link:
    """The way to a port of 127.0.0.1 for those who connect to the same port of another address."""

    def __init__(self, front: Endpoint) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self._port = front.port
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server((front.host, front.port), backlog=100)
        self._run(self._accept)

    def _run(self, work: object, *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._run(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        self._sockets.add(client)
        self.is_open.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:  # nobody is there
            self._end(client)
            return
        self._sockets.add(server)
        self._run(self._pump, client, server)
        self._pump(server, client)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self.is_open.wait()
                target.sendall(data)
        self.is_open.wait()
        self._end(source, target)

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._sockets.discard(one)

    def close(self) -> None:
        """End it, and its connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.is_open.set()
        self._end(*list(self._sockets))
