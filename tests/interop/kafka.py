"""A release of Apache Kafka: its servers, brokers and tools, as these tests start them.

Everything is what `bin/*.sh` of the distribution would start, with less memory and on loopback only.
"""

from __future__ import annotations

import functools
import re
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.storage.bootstrap import DEFAULT_RELEASE
from kraftlib.types import Endpoint
from tests.interop.jars import TOOLS_OF, libraries
from tests.interop.processes import PATIENCE_S, Process, wait_for

NEWEST: Final = tuple(map(int, DEFAULT_RELEASE.split(".")))

LOG4J2: Final = """\
status=error
appender.console.type=Console
appender.console.name=STDERR
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRef.stdout.ref=STDERR
"""
LOG4J1: Final = """\
log4j.rootLogger={level}, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
STARTED: Final = "Kafka Server started"

SERVER: Final = "kafka.Kafka"
FORMAT: Final = "kafka.tools.StorageTool"
QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
SHELL: Final = "org.apache.kafka.shell.MetadataShell"
CLUSTER: Final = "org.apache.kafka.tools.ClusterTool"
FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ACLS: Final = "org.apache.kafka.tools.AclCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
ELECTION: Final = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
VERSIONS: Final = "org.apache.kafka.tools.BrokerApiVersionsCommand"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SHARE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
VERIFIABLE_PRODUCER: Final = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER: Final = "org.apache.kafka.tools.VerifiableConsumer"
COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
OF_SERVERS: Final = frozenset({SERVER, FORMAT})
ROOT: Final = "/image"
"""Where all that the shell shows begins."""
SHELL_PATIENCE_S: Final = 30.0
OLD_NAMES: Final[Mapping[str, str]] = {
    ACLS: "kafka.admin.AclCommand",
    VERSIONS: "kafka.admin.BrokerApiVersionsCommand",
    DUMP: "kafka.tools.DumpLogSegments",
    PRODUCER: "kafka.tools.ConsoleProducer",
}
"""Classes that have moved, one release or another before 4.3."""


@functools.cache
def has_tool(version: str, main: str) -> bool:
    """Whether the tools of a release have a class of this name."""
    jar = libraries(version) / f"kafka-tools-{version}.jar"
    with zipfile.ZipFile(jar) as file:
        return f"{main.replace('.', '/')}.class" in file.namelist()


@attrs.frozen
class Output:
    """What a tool left behind."""

    status: int
    out: str
    err: str

    def ok(self) -> Output:
        """Return this, if the tool says that it succeeded."""
        assert self.status == 0, f"exit status {self.status}:\n{self.out}\n{self.err}"
        return self


@attrs.frozen
class Release:
    """One release, fetched."""

    version: str
    scratch: Path
    """A directory for files that no test looks at."""

    @property
    def of_tools(self) -> Release:
        """The release whose tools are run: this one, if they were published."""
        return attrs.evolve(self, version=TOOLS_OF.get(self.version, self.version))

    @property
    def minor(self) -> str:
        """As `4.3`."""
        return ".".join(self.version.split(".")[:2])

    @property
    def of_levels(self) -> str:
        """As `minor`, the release whose feature levels a cluster has: this one, or the newest that kraftlib knows."""
        return self.minor if not self.at_least(*NEWEST) else DEFAULT_RELEASE

    @property
    def is_modern(self) -> bool:
        """Whether it is 4.x."""
        return self.at_least(4, 0)

    def at_least(self, major: int, minor: int) -> bool:
        """Whether it is this release or a later one."""
        return tuple(map(int, self.version.split(".")[:2])) >= (major, minor)

    def java(
        self, main: str, *arguments: object, heap_mb: int = 64, level: str = "ERROR", classes: Path | None = None
    ) -> list[str]:
        """Return the command line of a class of this release, or of `classes` on top of it."""
        if classes is None and main not in OF_SERVERS and self.version in TOOLS_OF:
            return self.of_tools.java(main, *arguments, heap_mb=heap_mb, level=level)
        settings = self.scratch / f"log4j-{level}.properties"
        if not settings.exists():
            settings.write_text((LOG4J2 if self.is_modern else LOG4J1).format(level=level))
        logging = "-Dlog4j2.configurationFile=" if self.is_modern else "-Dlog4j.configuration=file:"
        path = f"{libraries(self.version)}/*"
        return [
            "java",
            f"-Xmx{heap_mb}m",
            # They live for seconds: the machine is better spent on starting than on optimizing.
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            f"{logging}{settings}",
            "-cp",
            path if classes is None else f"{classes}:{path}",
            self.class_of(main),
            *map(str, arguments),
        ]

    def class_of(self, main: str) -> str:
        """Return the name that a class of 4.3 has in this release."""
        return OLD_NAMES[main] if main in OLD_NAMES and not has_tool(self.version, main) else main

    def tool(self, main: str, *arguments: object, timeout_s: float = PATIENCE_S, text: str = "") -> Output:
        """Run a tool on `text` to its end. Raises: subprocess.TimeoutExpired."""
        done = subprocess.run(
            self.java(main, *arguments),
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Output(done.returncode, done.stdout, done.stderr)

    def quorum(self, bootstrap: Sequence[Endpoint], *arguments: object, config: Path | None = None) -> Output:
        """Run `kafka-metadata-quorum --bootstrap-controller`."""
        command_config = [] if config is None else ["--command-config", config]
        return self.tool(QUORUM, *command_config, "--bootstrap-controller", ",".join(map(str, bootstrap)), *arguments)

    def dump(self, path: Path, *, opaque: bool = False) -> Output:
        """Run `kafka-dump-log` on one file: metadata records, or opaque ones."""
        how = "--print-data-log" if opaque else "--cluster-metadata-decoder"
        return self.tool(DUMP, how, "--files", path)

    def shell(self, path: Path, *words: object, having: Sequence[str] = ()) -> str:
        """Run a command of `kafka-metadata-shell` on a log or checkpoint, until all these are in its answer.

        It sometimes looks before it has read anything, or all: it shows nothing, the bare root, or a part. It hangs
        where a checkpoint is cut, or no metadata.version comes first, and in 3.9 also for no reason that can be seen.
        """

        def shown() -> str:
            try:
                found = self.tool(SHELL, "--snapshot", path, *words, timeout_s=SHELL_PATIENCE_S).ok().out
            except subprocess.TimeoutExpired:
                return ""
            return "" if found.split() in ([], [ROOT]) or any(text not in found for text in having) else found

        return wait_for(f"an answer of the shell to {words}", shown, timeout_s=2 * PATIENCE_S)


class KafkaNode(Process):
    """A controller, a broker, or both in one: a directory, a properties file, and the process on them."""

    def __init__(
        self, release: Release, node_id: int, *, home: Path, endpoint: Endpoint, properties: Mapping[str, object]
    ) -> None:
        self.release = release
        self.node_id = node_id
        self.endpoint = endpoint
        self.directory = home / f"kafka-{node_id}"
        self.properties_file = home / f"kafka-{node_id}.properties"
        self.properties = {"node.id": node_id, "log.dirs": self.directory, **properties}
        self.write_properties()
        super().__init__([], log=home / f"kafka-{node_id}.server.log")
        self.use(release)

    def use(self, release: Release) -> None:
        """Have its next life be one of another release, on the same directory."""
        self.release = release
        self.command = release.java(SERVER, self.properties_file, heap_mb=256, level="INFO")

    def write_properties(self) -> None:
        """Write `properties` where the server and the tools read them."""
        lines = [f"{name}={value}\n" for name, value in self.properties.items()]
        self.properties_file.write_text("".join(lines))

    @property
    def partition(self) -> Path:
        """Where the metadata log is."""
        return self.directory / "__cluster_metadata-0"

    def format(self, cluster_id: str, *arguments: object) -> None:
        """Run `kafka-storage format`."""
        self.release.tool(FORMAT, "format", "-t", cluster_id, "-c", self.properties_file, *arguments).ok()

    def wait_started(self) -> None:
        """Wait until the server says that it has started."""
        self.wait_for_line(STARTED)

    def warnings(self) -> list[str]:
        """Return the lines of WARN and above."""
        return [line for line in self.log_text().splitlines() if re.search(r"\] (WARN|ERROR|FATAL) ", line)]

    def complaints(self) -> list[str]:
        """Return the lines in which the server says that something is fatal."""
        return [line for line in self.log_text().splitlines() if "fatal" in line.lower() or "] FATAL" in line]


def controller(
    release: Release,
    node_id: int,
    *,
    home: Path,
    endpoint: Endpoint,
    quorum: Mapping[str, object],
    properties: Mapping[str, object] | None = None,
    listen: Endpoint | None = None,
) -> KafkaNode:
    """Return a controller; `quorum` are the properties that say where the others are."""
    own = {
        "process.roles": "controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{listen or endpoint}",
        "advertised.listeners": f"CONTROLLER://{endpoint}",
        **quorum,
        **(properties or {}),
    }
    return KafkaNode(release, node_id, home=home, endpoint=endpoint, properties=own)


def broker(
    release: Release,
    node_id: int,
    *,
    home: Path,
    endpoint: Endpoint,
    quorum: Mapping[str, object],
    properties: Mapping[str, object] | None = None,
) -> KafkaNode:
    """Return a broker of one's own."""
    own = {
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{endpoint}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "offsets.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        **quorum,
        **(properties or {}),
    }
    return KafkaNode(release, node_id, home=home, endpoint=endpoint, properties=own)
