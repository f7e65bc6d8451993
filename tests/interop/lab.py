"""What one test runs: a quorum of Kafka's and our replicas, perhaps a broker, all of it ended with the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kraftlib.types import Endpoint, new_uuid, uuid_text
from tests.interop.kafka import KafkaNode, Release, broker, controller
from tests.interop.ours import OurReplica
from tests.interop.peer import JavaPeer
from tests.interop.processes import Process, free_ports, wait_for
from tests.interop.toolbox import Toolbox
from tests.interop.wire import Wire

Node = KafkaNode | OurReplica | JavaPeer
Replica = OurReplica | JavaPeer
"""Whoever takes orders."""

BUSY: Final[Mapping[str, object]] = {"metadata.max.idle.interval.ms": 100}
"""An active controller that writes a NoOpRecord so often: a log that grows without anybody's help."""


def alone(peers: Sequence[int]) -> dict[str, object]:
    """Return our settings beside raft clients of Kafka: they say that they are controllers, and are none."""
    return {"yield_to": []} if peers else {}


class Lab:
    """Starts processes and ends them. One quorum at a time: the machine has two cores."""

    def __init__(self, release: Release, home: Path) -> None:
        self.release = release
        self.home = home
        self.cluster_id = uuid_text(new_uuid())
        self.wire: Wire | None = None
        self.tools = Toolbox(release.of_tools)
        self._processes: list[Process] = []

    def keep(self, *processes: Process) -> None:
        """End these with the test, too."""
        self._processes += processes

    def close(self, *, tell: bool = True) -> None:
        """Kill what still runs, and print the ends of the logs: pytest shows them where a test failed."""
        self.tools.close()
        for process in self._processes:
            process.kill()
        if self.wire is not None:
            self.wire.close()
        for process in self._processes:
            if tell and process.log.exists():
                print(f"--- {process.log.name}, exit status {process.status}\n{process.tail(1_500)}")

    def through_a_wire(self) -> Wire:
        """From now on have all that quorums say to each other go through proxies of ours."""
        self.wire = Wire()
        return self.wire

    def behind(self, node_id: int, front: Endpoint) -> Endpoint:
        """Return where a replica that others find at `front` is to listen."""
        if self.wire is None:
            return front
        place = self.endpoint()
        self.wire.place(node_id, front=front, behind=place)
        return place

    def endpoint(self) -> Endpoint:
        """Return a place of loopback that is free."""
        return Endpoint("127.0.0.1", free_ports(1)[0])

    def static(
        self,
        *,
        kafka: Sequence[int] = (),
        peers: Sequence[int] = (),
        ours: Sequence[int] = (),
        properties: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        as_of: str | None = None,
    ) -> Quorum:
        """Return a formatted static quorum (kraft.version 0), with the feature levels of `as_of`: another release."""
        places = self._places([*kafka, *peers, *ours])
        voters = ",".join(f"{node_id}@{place}" for node_id, place in places.items())
        quorum = Quorum(
            self, {"controller.quorum.voters": voters}, {"voters": voters}, places, dict(properties or {}),
            {**alone(peers), **(settings or {})},
        )  # fmt: skip
        for node_id in kafka:
            quorum.kafka(node_id).format(self.cluster_id, *(["--release-version", as_of] if as_of else []))
        for node_id in peers:
            quorum.peer(node_id).format(self.cluster_id)
        for node_id in ours:
            quorum.ours(node_id).format(self.cluster_id, release=as_of or self.release.version)
        return quorum

    def dynamic(
        self,
        *,
        kafka: Sequence[int] = (),
        peers: Sequence[int] = (),
        ours: Sequence[int] = (),
        properties: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Quorum:
        """Return a formatted dynamic quorum (kraft.version 1) of which all of these are the first voters."""
        from kraftlib.storage.bootstrap import parse_initial_controllers

        places = self._places([*kafka, *peers, *ours])
        servers = ",".join(map(str, places.values()))
        quorum = Quorum(
            self, {"controller.quorum.bootstrap.servers": servers}, {"bootstrap_servers": servers}, places,
            dict(properties or {}), {**alone(peers), **(settings or {})},
        )  # fmt: skip
        first = ",".join(f"{node_id}@{place}:{uuid_text(new_uuid())}" for node_id, place in places.items())
        for node_id in kafka:
            quorum.kafka(node_id).format(self.cluster_id, "--initial-controllers", first)
        for node_id in peers:
            quorum.peer(node_id).format(self.cluster_id, "--initial-controllers", first)
        for node_id in ours:
            quorum.ours(node_id).format(
                self.cluster_id, initial_controllers=parse_initial_controllers(first), release=self.release.version
            )
        return quorum

    def _places(self, node_ids: Iterable[int]) -> dict[int, Endpoint]:
        node_ids = list(node_ids)
        return {
            node_id: Endpoint("127.0.0.1", port)
            for node_id, port in zip(node_ids, free_ports(len(node_ids)), strict=True)
        }


class Quorum:
    """Some voters, by id; Kafka's and ours look alike from here."""

    def __init__(
        self,
        lab: Lab,
        kafka_words: Mapping[str, object],
        our_words: Mapping[str, str],
        places: dict[int, Endpoint],
        properties: dict[str, object],
        settings: dict[str, Any],
    ) -> None:
        self.lab = lab
        self.kafka_words = kafka_words
        self.our_words = our_words
        self.places = places
        self.properties = properties
        self.settings = settings
        self.nodes: dict[int, Node] = {}

    def kafka(self, node_id: int, **properties: object) -> KafkaNode:
        """Make a controller of Kafka; it is neither formatted nor started."""
        place = self.places.setdefault(node_id, self.lab.endpoint())
        node = controller(
            self.lab.release, node_id, home=self.lab.home, endpoint=place, quorum=self.kafka_words,
            properties={**self.properties, **properties}, listen=self.lab.behind(node_id, place),
        )  # fmt: skip
        return self._keep(node)

    def ours(self, node_id: int, *, kind: type[OurReplica] = OurReplica, **settings: object) -> OurReplica:
        """Make a replica of ours; it is neither formatted nor started."""
        place = self.places.setdefault(node_id, self.lab.endpoint())
        node = kind(
            node_id, home=self.lab.home, endpoint=place, quorum=self.our_words, listen=self.lab.behind(node_id, place),
            **{**self.settings, **settings},
        )  # fmt: skip
        return self._keep(node)

    def peer(self, node_id: int, **properties: object) -> JavaPeer:
        """Make a raft client of Kafka; it is neither formatted nor started."""
        place = self.places.setdefault(node_id, self.lab.endpoint())
        node = JavaPeer(
            self.lab.release, node_id, home=self.lab.home, endpoint=place, quorum=self.kafka_words,
            properties={**self.properties, **properties}, listen=self.lab.behind(node_id, place),
        )  # fmt: skip
        self._keep(node)
        return node

    def broker(self, node_id: int, **properties: object) -> KafkaNode:
        """Make and format a broker of this cluster."""
        node = broker(
            self.lab.release, node_id, home=self.lab.home, endpoint=self.lab.endpoint(), quorum=self.kafka_words,
            properties=properties,
        )  # fmt: skip
        node.format(self.lab.cluster_id)
        self.lab.keep(node)
        return node

    def _keep(self, node: Any) -> Any:
        self.nodes[node.node_id] = node
        self.lab.keep(node)
        return node

    # --- all of them -------------------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Start these, or all, and wait until they say that they have started."""
        nodes = [self.nodes[node_id] for node_id in node_ids or self.nodes]
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_started()

    @property
    def replicas(self) -> list[Replica]:
        """The running replicas that take orders."""
        return [node for node in self.nodes.values() if not isinstance(node, KafkaNode) and node.running]

    @property
    def controllers(self) -> list[KafkaNode]:
        """The running controllers of Kafka."""
        return [node for node in self.nodes.values() if isinstance(node, KafkaNode) and node.running]

    def leader(self, *, not_id: int | None = None, min_epoch: int = 0) -> dict[str, Any]:
        """Wait for a leader that has committed in its epoch; return what one of our replicas says of it."""

        def known() -> dict[str, Any] | None:
            for replica in self.replicas:
                status = replica.replica_status()
                leader_id = status["leader_id"]
                if leader_id is None or leader_id == not_id or status["epoch"] < min_epoch:
                    continue
                if (status["high_watermark"] or 0) > 0 and self.nodes[leader_id].running:
                    return status
            return None

        found = wait_for("a leader", known)
        assert found is not None
        return found

    def leading_controller(self, *, not_id: int | None = None, min_epoch: int = 0) -> dict[str, Any]:
        """Wait until a controller of Kafka leads: one of ours may do so for a moment, and hands over."""

        def known() -> dict[str, Any] | None:
            found = self.leader(not_id=not_id, min_epoch=min_epoch)
            return found if isinstance(self.nodes[found["leader_id"]], KafkaNode) else None

        found = wait_for("a controller to lead", known)
        assert found is not None
        return found

    def wait_for_growth(self, count: int = 5) -> None:
        """Wait until each of our replicas knows of so many more committed records."""
        wanted = {replica: (replica.replica_status()["high_watermark"] or 0) + count for replica in self.replicas}
        for replica, offset in wanted.items():
            wait_for(
                f"offset {offset} at replica {replica.node_id}",
                lambda replica=replica, offset=offset: (replica.replica_status()["high_watermark"] or 0) >= offset,
            )
