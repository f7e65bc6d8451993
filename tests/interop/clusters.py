"""Clusters of Kafka's brokers on metadata controllers of ours, of Kafka's, or on a quorum of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.quorum import Row, describe
from kraftlib.controller import format_controller
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.meta_properties import read_meta_properties
from kraftlib.types import Endpoint, new_uuid, uuid_text
from kraftlib.wire_client import UnreachableError
from tests.interop.kafka import (
    CONFIGS,
    CONSUMER,
    DUMP,
    PRODUCER,
    QUORUM,
    TOPICS,
    KafkaNode,
    Output,
    Release,
    broker,
    controller,
)
from tests.interop.lab import Lab
from tests.interop.ours import ROOT
from tests.interop.processes import Process, free_ports, wait_for

FIRST_BROKER: Final = 10
OF_THREE: Final[Mapping[str, object]] = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.num.partitions": 2,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.cleaner.backoff.ms": 100,
}
"""Properties of three brokers that keep everything three times, and clean at once."""

KINDS: Final = {"ours": (), "Kafka's": (1, 2, 3)}
"""The controllers of a cluster that are Kafka's, where the two kinds are measured beside each other."""


def on_each_kind(
    lab: Lab, measured: Callable[[Lab, tuple[int, ...]], Mapping[str, object]], note: Callable[[str, object], None]
) -> None:
    """Measure on controllers of each kind, one kind after the other, in a room of its own; `note` what it says."""
    for whose, kafka in KINDS.items():
        room = Lab(lab.release, lab.home / whose.removesuffix("'s"))
        room.home.mkdir()
        try:
            for name, value in measured(room, kafka).items():
                note(f"{whose}: {name}", value)
        finally:
            room.close(tell=False)


class Controller(Process):
    """One controller of ours in a process of its own: `kraftlib controller run`, as an operator starts it."""

    def __init__(self, lab: Lab, node_id: int, endpoint: Endpoint, servers: list[str], **settings: object) -> None:
        self.node_id = node_id
        self.endpoint = endpoint
        self.directory = lab.home / f"controller-{node_id}"
        config = lab.home / f"controller-{node_id}.toml"
        values = {
            "node_id": node_id,
            "directory": str(self.directory),
            "listen": f"127.0.0.1:{endpoint.port}",
            "advertised": str(endpoint),
            "bootstrap_servers": servers,
            **settings,
        }
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
        command = [sys.executable, "-m", "kraftlib.cli", "controller", "run", "-c", str(config), "--verbose"]
        super().__init__(command, log=lab.home / f"{config.stem}.log", environment={"PYTHONPATH": str(ROOT)})

    @property
    def partition(self) -> Path:
        """Where the metadata log is."""
        return self.directory / "__cluster_metadata-0"


class Cluster:
    """Controllers, running, and brokers of Kafka, formatted: `kafka` of the controllers are Kafka's, the others ours.

    `properties` are those of the brokers, `settings` those of our controllers, `of_kafka` those of Kafka's. The cluster
    begins with the feature levels of `release`; `of_brokers` is another release for the brokers. So many controllers
    as there are `spares` may join later. Controllers are known by the name `host`.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        controllers: int,
        kafka: Sequence[int] = (),
        brokers: int = 1,
        release: str | None = None,
        of_brokers: Release | None = None,
        properties: Mapping[str, object] | None = None,
        of_kafka: Mapping[str, object] | None = None,
        words: Sequence[str] = (),
        spares: int = 0,
        host: str = "127.0.0.1",
        **settings: object,
    ) -> None:
        self.lab = lab
        ids = range(1, controllers + spares + 1)
        self._places = dict(zip(ids, (Endpoint(host, port) for port in free_ports(len(ids))), strict=True))
        self.servers = list(self._places.values())
        self._quorum = {"controller.quorum.bootstrap.servers": ",".join(map(str, self.servers))}
        self._of_kafka, self._words, self._settings = of_kafka, words, settings
        release = release or lab.release.of_levels
        first = [InitialController(number, self._places[number], new_uuid()) for number in ids[:controllers]]
        self.controllers: dict[int, Controller | KafkaNode] = {}
        for one in first:
            if one.id in kafka:
                self._of_kafkas(one.id).format(
                    lab.cluster_id, "--initial-controllers", ",".join(map(str, first)), "--release-version", release
                )
            else:
                format_controller(
                    self._of_ours(one.id).directory,
                    node_id=one.id,
                    cluster_id=lab.cluster_id,
                    initial_controllers=first,
                    release=release,
                )
        self.brokers: list[KafkaNode] = [
            broker(
                of_brokers or lab.release, number, home=lab.home, endpoint=lab.endpoint(), quorum=self._quorum,
                properties={**(OF_THREE if brokers > 2 else {}), **(properties or {})},
            )
            for number in range(FIRST_BROKER, FIRST_BROKER + brokers)
        ]  # fmt: skip
        self.broker = self.brokers[0]
        lab.keep(*self.brokers)
        for node in self.controllers.values():
            node.start()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda node: node.format(lab.cluster_id), self.brokers))

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return ",".join(str(node.endpoint) for node in self.brokers)

    def start_brokers(self) -> None:
        """Start the brokers, and wait until they serve."""
        for node in self.brokers:
            node.start()
        for node in self.brokers:
            node.wait_started()

    def active(self, *, but: int | None = None) -> int:
        """Wait for an active controller; return its number."""

        def known() -> int | None:
            try:
                leader_id = describe(self.servers, timeout_s=5).leader_id
            except UnreachableError:
                return None
            return leader_id if leader_id != but else None

        found = wait_for("an active controller", known)
        assert found is not None
        return found

    def caught_up(self) -> int:
        """Wait until each controller has what is committed now; return where that ends."""
        end = describe(self.servers, timeout_s=5).high_watermark

        def reached() -> bool:
            try:
                return min(row.log_end_offset for row in describe(self.servers, timeout_s=5).voters) >= end
            except UnreachableError:
                return False

        wait_for(f"offset {end} at each controller", reached)
        return end

    # --- controllers that come and go ---------------------------------------------------------------------------------

    def _of_kafkas(self, number: int) -> KafkaNode:
        node = controller(
            self.lab.release, number, home=self.lab.home, endpoint=self._places[number], quorum=self._quorum,
            properties=self._of_kafka,
        )  # fmt: skip
        self.controllers[number] = node
        self.lab.keep(node)
        return node

    def _of_ours(self, number: int) -> Controller:
        node = Controller(self.lab, number, self._places[number], list(map(str, self.servers)), **self._settings)
        node.command += self._words
        self.controllers[number] = node
        self.lab.keep(node)
        return node

    def join(self, number: int, *, kafka: bool) -> None:
        """Start a new controller, Kafka's or ours, and make it a voter with Kafka's tool once it follows."""
        if kafka:
            node = self._of_kafkas(number)
            node.format(self.lab.cluster_id, "--no-initial-controllers")
            properties = node.properties_file
        else:
            ours = self._of_ours(number)
            format_controller(
                ours.directory, node_id=number, cluster_id=self.lab.cluster_id, no_initial_controllers=True
            )
            # What the tool reads: the properties that a controller of Kafka would have in its place.
            properties = controller(
                self.lab.release, number, home=self.lab.home, endpoint=ours.endpoint, quorum=self._quorum,
                properties={"log.dirs": ours.directory},
            ).properties_file  # fmt: skip
        self.controllers[number].start()
        wait_for(
            f"controller {number} to follow",  # a leader adds no voter that was never caught up
            lambda: (row := self._replicas("observers").get(number)) and row.last_caught_up_timestamp > 0,
        )
        self._change(set(self.controllers), "--command-config", properties, "add-controller")

    def leave(self, number: int) -> None:
        """Remove a voter with Kafka's tool, and stop it."""
        node = self.controllers.pop(number)
        meta = read_meta_properties(node.directory)
        assert meta is not None
        assert meta.directory_id is not None
        words = ("--controller-id", number, "--controller-directory-id", uuid_text(meta.directory_id))
        self._change(set(self.controllers), "remove-controller", *words)
        node.stop()

    def _replicas(self, kind: str) -> Mapping[int, Row]:
        """Return the `voters` or `observers` by id; none while nobody leads."""
        try:
            return {row.replica_id: row for row in getattr(describe(self.servers, timeout_s=5), kind)}
        except UnreachableError:
            return {}

    def _change(self, wanted: set[int], *words: object) -> None:
        """Run `kafka-metadata-quorum` until these are the voters: on a busy machine a controller may be too late."""
        places = ",".join(str(node.endpoint) for node in self.controllers.values())

        def changed() -> bool:
            done = self.lab.tools.run(QUORUM, "--bootstrap-controller", places, *words)
            return done.status == 0 or self._replicas("voters").keys() == wanted

        wait_for(f"the voters {wanted}", changed, every_s=0.5)
        wait_for(f"the voters {wanted}", lambda: self._replicas("voters").keys() == wanted)

    # --- tools -------------------------------------------------------------------------------------------------------

    def tool(self, main: str, *words: object, text: str = "") -> Output:
        """Run a tool that asks the brokers; it succeeds."""
        return self.lab.tools.run(main, "--bootstrap-server", self.bootstrap, *words, text=text).ok()

    def wait_shown(self, parts: set[str], main: str, *words: object) -> None:
        """Wait until a tool prints all `parts`: a broker may not have applied yet what its controller has answered."""

        def are_shown() -> bool:
            shown = self.tool(main, *words).out
            return all(part in shown for part in parts)

        wait_for(f"{parts} from {main}", are_shown)

    def topics(self, *words: object) -> Output:
        """Run `kafka-topics`; a topic that it creates is known to every broker when this returns."""
        done = self.tool(TOPICS, *words)
        if "--create" in words:
            wanted = ("--describe", "--topic", words[words.index("--topic") + 1])
            for node in self.brokers:
                place = ("--bootstrap-server", node.endpoint)
                wait_for(
                    f"{wanted[-1]} at broker {node.node_id}",
                    lambda node=node, place=place: (
                        not node.running or not self.lab.tools.run(TOPICS, *place, *wanted).status
                    ),
                )
        return done

    def configure(self, kind: str, name: object, setting: str) -> None:
        """Run `kafka-configs --alter`."""
        self.tool(CONFIGS, "--entity-type", kind, "--entity-name", name, "--alter", "--add-config", setting)

    def produce(self, topic: str, lines: list[str], *words: object) -> None:
        """Run `kafka-console-producer`, which is idempotent and so asks for producer ids."""
        self.tool(PRODUCER, "--topic", topic, *words, text="".join(f"{line}\n" for line in lines))

    def consume(self, topic: str, count: int) -> list[str]:
        """Run `kafka-console-consumer` in a group of its own; return what it printed."""
        bounds = ("--max-messages", count, "--timeout-ms", 60_000)
        return self.tool(CONSUMER, "--topic", topic, "--from-beginning", *bounds).out.split()

    def wait_in_sync(self) -> None:
        """Wait until no partition lacks a replica."""
        wait_for(
            "all replicas in sync",
            lambda: not self.topics("--describe", "--under-replicated-partitions").out.strip(),
            every_s=0.2,
        )

    # --- afterwards --------------------------------------------------------------------------------------------------

    def dumped(self, number: int) -> list[Mapping[str, Any]]:
        """Return the records in the log of a controller, as Kafka's dump tool reads them."""
        (segment,) = self.controllers[number].partition.glob("*.log")
        return self.dumped_file(segment)

    def dumped_file(self, path: Path) -> list[Mapping[str, Any]]:
        """Return the records of a segment or checkpoint, as Kafka's dump tool reads them."""
        text = self.lab.tools.run(DUMP, "--cluster-metadata-decoder", "--files", path).ok()
        assert "isvalid: false" not in text.out
        assert "invalid bytes" not in text.out
        assert text.err.strip() == ""
        payloads = [line.partition("payload: ")[2] for line in text.out.splitlines() if "payload: " in line]
        return [json.loads(payload) for payload in payloads]
