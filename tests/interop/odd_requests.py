"""Requests at the edges of each field, by kind: values, codes, names and lists that hardly anybody sends.

They are the same each time; `admin_requests` draws what happens to a cluster. Brokers 1 to 5 are there. What Kafka's
controller does not survive, or hangs up at, is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kraftlib.controller.broker_configs import NAMES
from kraftlib.controller.config_values import ConfigType
from kraftlib.controller.topic_configs import SETTINGS
from kraftlib.types import ZERO_UUID
from kraftlib.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.alter_configs import AlterConfigsRequest
from kraftlib.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.interop.admin_requests import RANGES

Odd = tuple[Any, int | None]
"""A request and its version; None: the newest one."""

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
LONG_NAME: Final = "x" * 300
PATIENCE_MS: Final = 60_000
REAL: Final = "real"
"""A topic that is there: two partitions on brokers 1, 2 and 3."""

VALUES: Final = (
    "0", "1", "-1", "-2", "2", "3", "9", "10", "13", "14", "17", "18", "22", "23", "-131072", "-131073", "1048575",
    "1048576", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "", " ", " 5 ", "+5", "+ 5", "5 5", "1_0", "0x10", "1e1", "5.0", "5L", "05", "\u0663", "\uff15", "\u00a05",
    "\u20035", "\t5\n", "\x015", "5\x00", "true", "TRUE", "yes", " false ", "tr\u00fce", "0.5", "0.5f", "0.5D", ".5",
    "5.", ".", "1.0", "1.0000001", "-0.0", "-0.1", "NaN", "nan", "Infinity", "inf", "1e-1", "1E-400", "0x1p-1", "1e-7",
    "0.0001", "1_0.5", "1d", "1l", "compact", "delete,compact", "compact,compact", "compact,,delete", ",",
    ",compact", "compact,",
    "compact, delete", "Compact", "none", "zstd", "ZSTD", "gzip", "lz4 ", "CreateTime", "createtime", "*", "*,", "0:1",
    "0:1,0:2", "0:1,", "0:1 , 1:2", "1:2:3", ":", "0:x", "-1:1", "*,0:1", "0:1,0:1", LONG_NAME,
)  # fmt: skip


def _topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    *,
    placed: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreateTopicsRequest.CreatableTopic:
    row = CreateTopicsRequest
    return row.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=tuple(
            row.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
            for number, brokers in placed
        ),
        configs=tuple(row.CreatableTopicConfig(name=key, value=value) for key, value in configs),
    )


def _creation(*topics: CreateTopicsRequest.CreatableTopic, validate_only: bool = True) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, timeout_ms=PATIENCE_MS, validate_only=validate_only)


def of_topic_values() -> Iterator[Odd]:
    """Each key of a topic with each value: one request a key, each topic of which has one value."""
    for key in SETTINGS:
        yield _creation(*(_topic(f"t{n}", configs=[(key, value)]) for n, value in enumerate(VALUES))), None


def of_topics() -> Iterator[Odd]:
    """Names, numbers, placements and settings of topics that are to be created."""
    for version in range(2, 8):
        yield _creation(), version
        yield _creation(_topic("ok", -1, -1)), version
    for name in ("__cluster_metadata", "__consumer_offsets", "_", "-", "a" * 249, "a" * 250, "...", "a.b_c"):
        yield _creation(_topic(name)), None
    for counts in (
        (0, 1), (-2, 1), (-(1 << 15), 1), (1, 0), (1, -2), (1, 6), (1, 32_767), (9_999, 1), (10_000, 1), (10_001, 1),
        ((1 << 31) - 1, 1), (-(1 << 31), -5), (0, 0), (5_000, 2),
    ):  # fmt: skip
        yield _creation(_topic("ok", *counts)), None
    for topics in (
        (("a b", 9_999), ("k", 5)), (("z", 9_999), ("z", 5), ("k", 1)), (("__cluster_metadata", 10_000), ("k", 1)),
        (("k", 9_999), ("k2", -5)), (("k", 10_000), ("k2", -5), ("a b", 1)), (("k", 9_998), ("k2", 1)),
        (("k", 9_999), ("k2", -1)), (("k", 6_000), ("k2", 6_000)),
    ):  # fmt: skip
        yield _creation(*(_topic(name, count) for name, count in topics)), None
        yield _creation(*(_topic(name, count) for name, count in topics)), 2
    for placed in (
        [(0, (1,)), (0, (2,))], [(1, (1,))], [(0, ())], [(0, (1, 2)), (1, (3,))], [(0, (1, 1))], [(0, (77,))],
        [(-1, (1,))], [(0, (1,)), (2, (1,))], [(0, (-1,))], [(0, (1,)), (1, ())],
    ):  # fmt: skip
        for counts in ((-1, -1), (1, -1), (-1, 1)):
            yield _creation(_topic("ok", *counts, placed=placed)), None
    for configs in (
        [("retention.ms", None)], [("", "1")], [("retention.ms", "1"), ("retention.ms", "2")],
        [("retention.ms", None), ("retention.ms", "2")], [("retention.ms", "2"), ("retention.ms", None)],
        [("retention.ms", "x"), ("retention.ms", "2")], [("retention.ms", "2"), ("retention.ms", "x")],
        [("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4")],
        [("max.compaction.lag.ms", "4"), ("min.compaction.lag.ms", "4")],
        [("local.retention.ms", "5"), ("retention.ms", "4")],
        [("local.retention.bytes", "5"), ("retention.bytes", "4")],
        [("remote.log.delete.on.disable", "true")], [("RETENTION.MS", "1")], [("retention.ms ", "1")],
        [("message.format.version", "3.0")], [("message.downconversion.enable", "true")], [("k" * 300, "1")],
        [("cleanup.policy", "compact"), ("remote.storage.enable", "true")],
    ):  # fmt: skip
        yield _creation(_topic("ok", configs=configs)), None
        yield _creation(_topic("ok", 0, configs=configs)), None
        yield _creation(_topic("a b", configs=configs)), None
    for names in (("d", "d", "e"), ("d", "d", "d"), ("a b", "a b"), ("__cluster_metadata",) * 2, ("x.y", "x_y")):
        yield _creation(*map(_topic, names)), None
    for name in (REAL, f"{REAL}.x", f"{REAL}_x"):
        placed = [(0, (1, 2, 3)), (1, (2, 3, 1))]
        yield _creation(_topic(name, -1, -1, placed=placed), validate_only=False), None


def of_partitions() -> Iterator[Odd]:
    """New partitions, deletions, elections, reassignments, brokers that are not there."""
    wanted = CreatePartitionsRequest.CreatePartitionsTopic
    row = CreatePartitionsRequest.CreatePartitionsAssignment

    def more(*topics: Any) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(topics=topics, timeout_ms=PATIENCE_MS, validate_only=True)

    for version in range(4):
        yield more(), version
        yield more(wanted(name=REAL, count=3, assignments=None)), version
    for count in (-1, 0, 1, 2, 3, 10_002, -(1 << 31)):  # beyond that Kafka's controller says -1, or has no memory left
        yield more(wanted(name=REAL, count=count, assignments=None)), None
    for placed in ([], [()], [(1,)], [(1, 2, 3)], [(1, 2, 3)] * 2, [(1, 1, 2)], [(1, 2, 77)], [(1, 2)], [(1, 2, 3, 4)]):
        rows = tuple(row(broker_ids=brokers) for brokers in placed)
        yield more(wanted(name=REAL, count=3, assignments=rows)), None
    for name in ("", "nope", "__cluster_metadata", "a b"):
        yield more(wanted(name=name, count=3, assignments=None)), None
    twins = (wanted(name=name, count=count, assignments=None) for name, count in ((REAL, 3), (REAL, 4), ("nope", 2)))
    yield more(*twins), None
    for version in range(1, 6):
        for names in (("nope", "", "a b", "__cluster_metadata"), (), ("nope", "nope")):
            yield DeleteTopicsRequest(topic_names=names, timeout_ms=PATIENCE_MS), version
    state = DeleteTopicsRequest.DeleteTopicState
    for states in (
        (), (state(),), (state(), state()), (state(name=""),), (state(name="q", topic_id=UUID(int=9)),) * 2,
        (state(topic_id=UUID(int=1)),), (state(topic_id=UUID(int=9)),) * 2, (state(name="__cluster_metadata"),),
        (state(topic_id=ZERO_UUID), state(name="nope")),
    ):  # fmt: skip
        yield DeleteTopicsRequest(topics=states, timeout_ms=PATIENCE_MS), 6
    yield from _elections()
    yield from _moves()
    for broker_id in (-1, 0, 77, (1 << 31) - 1, -(1 << 31)):
        yield UnregisterBrokerRequest(broker_id=broker_id), None


def _elections() -> Iterator[Odd]:
    row = ElectLeadersRequest.TopicPartitions
    for version in range(3):
        for kind in (-1, 0, 1, 2, 127) if version else (0,):
            for rows in (
                None, (), (row(topic=REAL, partitions=()),), (row(topic=REAL, partitions=(0, 0)),),
                (row(topic=REAL, partitions=(0, 1, 2, -1)), row(topic="nope", partitions=(0,))),
                (row(topic="", partitions=(0,)),),
            ):  # fmt: skip
                yield ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=PATIENCE_MS), version


def _moves() -> Iterator[Odd]:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    row = AlterPartitionReassignmentsRequest.ReassignablePartition

    def of(name: str, *moves: tuple[int, tuple[int, ...] | None]) -> Any:
        return topic(name=name, partitions=tuple(row(partition_index=n, replicas=brokers) for n, brokers in moves))

    for version, may_resize in ((0, True), (1, True), (1, False)):
        for topics in (
            (), (of(REAL),), (of(REAL, (0, None)),), (of(REAL, (9, None)),), (of("nope", (0, None)),),
            (of("nope", (0, (1,))),), (of(REAL, (0, ())),), (of(REAL, (0, (1, 1))),), (of(REAL, (0, (77,))),),
            (of(REAL, (0, (-1,))),), (of("", (0, (1,))),), (of("nope"),),
            (of(REAL, (0, (1, 2, 3)), (0, (3, 2, 1))), of(REAL, (1, (2, 3, 1)))), (of(REAL, (0, (1, 2, 3))),),
            (of(REAL, (0, (4, 5))),), (of(REAL, (0, None), (0, None)),), (of(REAL, (0, None)),),
        ):  # fmt: skip
            request = AlterPartitionReassignmentsRequest(topics=topics, allow_replication_factor_change=may_resize)
            yield request, version
            yield ListPartitionReassignmentsRequest(topics=None), None
    named = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for rows in (
        (), (named(name=REAL, partition_indexes=()),), (named(name="nope", partition_indexes=(0,)),),
        (named(name=REAL, partition_indexes=(0, 0, 99)), named(name=REAL, partition_indexes=(1,))),
    ):  # fmt: skip
        yield ListPartitionReassignmentsRequest(topics=rows), None


def of_resources() -> Iterator[Odd]:
    """Types and names of what has a configuration. Loggers are those of a JVM."""
    names = (
        "",
        REAL,
        "nope",
        "1",
        "77",
        "-1",
        "01",
        "+1",
        "x",
        " 1",
        "2147483648",
        "1" * 30,
        "a b",
        "kafka.controller",
    )
    for kind in (-128, -1, 0, 1, 2, 3, 4, 5, 16, 32, 33, 64, 127):
        for name in names:
            yield _changes(kind, name), None
            yield _values(kind, name), None
            if kind in (TOPIC, BROKER):
                key = "retention.ms" if kind == TOPIC else "log.retention.ms"
                yield _changes(kind, name, (key, SET, "1000"), validate_only=True), None
            if kind != BROKER or name not in ("1", "01", "+1"):  # of itself Kafka also names what stands in its files
                resource = DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                yield DescribeConfigsRequest(resources=(resource,), include_synonyms=True), None


def of_all_brokers() -> Iterator[Odd]:
    """Each setting that all brokers together may have, or may not have, also with the prefix of a listener."""
    values = {
        ConfigType.BOOLEAN: "true", ConfigType.DOUBLE: "0.5", ConfigType.LIST: "a, b,a", ConfigType.CLASS: "a.B",
        ConfigType.STRING: "x", ConfigType.PASSWORD: "x",
    }  # fmt: skip
    valid = {
        "compression.type": "zstd", "log.cleanup.policy": "delete, compact,delete", "log.segment.bytes": "2000000",
        "log.message.timestamp.type": "CreateTime", "group.coordinator.cached.buffer.max.bytes": "2000000",
        "share.coordinator.cached.buffer.max.bytes": "2000000",
    }  # fmt: skip
    known = [(name, valid.get(name, values.get(kind, "5"))) for kind, text in NAMES.items() for name in text.split()]
    others = [("ssl.nobody", "x"), ("sasl.nobody", "x"), ("listener.name.a.", "x"), ("listener.name.a", "x")]
    of_listeners = [(f"listener.name.{place}.{name}", value) for place in ("a", "a.b") for name, value in known]
    for name, value in [*known, *others, *of_listeners]:
        yield _changes(BROKER, "", (name, SET, value)), None
    for keys in (None, ("listeners", "max.connections"), ("log.cleanup.policy",)):
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name="", configuration_keys=keys
        )
        for with_synonyms in (False, True):
            yield DescribeConfigsRequest(resources=(resource,), include_synonyms=with_synonyms), None


def of_lists() -> Iterator[Odd]:
    """APPEND and SUBTRACT of topics and brokers, changes of one key that meet, and replaced values."""
    throttled = "leader.replication.throttled.replicas"
    for key, old in (
        ("cleanup.policy", None), ("cleanup.policy", "compact"), ("cleanup.policy", " compact , delete "),
        (throttled, None), (throttled, "0:1,0:2"), (throttled, " 0:1 , 0:2 "), (throttled, "*"), ("retention.ms", "1"),
        ("nonsense", None),
    ):  # fmt: skip
        for operation in (APPEND, SUBTRACT):
            for value in ("compact", " compact", "compact, delete", "", ",", "delete,delete", "0:1", "0:2 ,0:3", "*"):
                if old is not None:
                    yield _changes(TOPIC, REAL, (key, SET, old)), None
                yield _changes(TOPIC, REAL, (key, operation, value)), None
        yield _changes(TOPIC, REAL, (key, DELETE, None)), None
        yield _changes(TOPIC, REAL, (key, DELETE, "x")), None
    for value in ("delete,delete", " delete , compact,delete", "compact,compact ,delete,", "0:1,0:1", "0:1 , 0:2,0:1"):
        key = throttled if ":" in value else "cleanup.policy"
        yield _changes(TOPIC, REAL, (key, SET, value)), None
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=REAL, configuration_keys=(key,)
        )
        yield DescribeConfigsRequest(resources=(resource,), include_synonyms=True), None
    for key in (
        "advertised.listeners", "config.providers", "controller.quorum.voters", "cordoned.log.dirs",
        "group.consumer.assignors", "group.coordinator.rebalance.protocols", "kafka.metrics.reporters", "listeners",
        "log.cleanup.policy", "log.dir", "log.dirs", "log.retention.ms", "metric.reporters", "process.roles",
        "sasl.enabled.mechanisms", "sasl.kerberos.principal.to.local.rules", "ssl.cipher.suites",
        "ssl.enabled.protocols", "super.users", throttled,
    ):  # fmt: skip
        for operation in (APPEND, SUBTRACT):
            for value in ("a", "a,b", " c ", "", ","):
                yield _changes(BROKER, "", (key, operation, value)), None
        yield _changes(BROKER, "", (key, DELETE, None)), None
    for changes in (
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
        [("retention.ms", DELETE, None), ("retention.ms", SET, "2")], [("", SET, "1")],
        [("min.compaction.lag.ms", SET, "9")], [("max.compaction.lag.ms", SET, "8")],
        [("max.compaction.lag.ms", SET, "8"), ("min.compaction.lag.ms", DELETE, None)],
    ):  # fmt: skip
        yield _changes(TOPIC, REAL, *changes), None
    for values in ([("retention.ms", None)], [("retention.ms", "1"), ("retention.ms", "2")], []):
        yield _values(TOPIC, REAL, *values), None


def _changes(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    row = IncrementalAlterConfigsRequest
    configs = tuple(row.AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes)
    resource = row.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return row(resources=(resource,), validate_only=validate_only)


def _values(kind: int, name: str, *values: tuple[str, str | None]) -> AlterConfigsRequest:
    row = AlterConfigsRequest
    configs = tuple(row.AlterableConfig(name=key, value=value) for key, value in values)
    resource = row.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return row(resources=(resource,), validate_only=not values)


def of_access() -> Iterator[Odd]:
    """Rules of access: every type, pattern, operation and permission, odd principals and hosts, and filters."""

    def rule(**changes: Any) -> CreateAclsRequest.AclCreation:
        values = {
            "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:ann", "host": "*",
            "operation": 3, "permission_type": 3,
        }  # fmt: skip
        return CreateAclsRequest.AclCreation(**{**values, **changes})

    for changes in (
        *({"resource_type": code} for code in (1, 8, 127, -1)),
        *({"resource_pattern_type": code} for code in (1, 2, 5)),
        *({"operation": code} for code in range(1, 18)),
        *({"permission_type": code} for code in (1, 2, 3, 4)),
        *(
            {"resource_type": kind, "operation": operation, "resource_name": "kafka-cluster"}
            for kind in range(2, 8)
            for operation in range(2, 16)
        ),
        *({"principal": text} for text in ("", "User", ":", "User:", "Group:x", ":x", "User:a:b", " User:ann", "*")),
        *({"host": text} for text in ("", " ", "1.2.3.4", "not a host", "::1", LONG_NAME)),
        *({"resource_name": text} for text in ("", " ", "*", "a b", LONG_NAME, "\u00e9")),
        {"resource_type": 4, "resource_name": "x"},
        {"resource_type": 4, "resource_name": "kafka-cluster", "resource_pattern_type": 4},
        {"resource_type": 4, "resource_name": "x", "operation": 1},
        {"resource_name": "", "operation": 1},
        {"resource_pattern_type": 5, "operation": 1},
        {"resource_type": 8, "resource_name": ""},
    ):
        yield CreateAclsRequest(creations=(rule(**changes),)), None
    yield CreateAclsRequest(creations=()), None
    for rules in (
        (rule(resource_name="m1"),) * 2, (rule(resource_name="m1"), rule(resource_type=1)),
        (rule(resource_name="m3"), rule(resource_type=8), rule(resource_name="m4")),
        (rule(resource_type=1), rule(resource_type=4, resource_name="x")),
    ):  # fmt: skip
        yield CreateAclsRequest(creations=rules), None
    everything = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    for version in (1, 2, 3):
        for one in (
            *({"resource_type_filter": code} for code in (9, -1)), {"operation": 99}, {"permission_type": 9},
            {"pattern_type_filter": 9}, {"resource_name_filter": ""}, {"principal_filter": ""},
            {"principal_filter": "nocolon"}, {"host_filter": ""}, {"resource_name_filter": "*"},
            {"resource_name_filter": "t", "pattern_type_filter": 2}, {"resource_name_filter": "m4"}, {},
        ):  # fmt: skip
            yield DescribeAclsRequest(**{**everything, **one}), version
            row = DeleteAclsRequest.DeleteAclsFilter
            filters = (row(**{**everything, "host_filter": "nowhere", **one}), row(**{**everything, **M3}))
            yield DeleteAclsRequest(filters=filters), version
            yield CreateAclsRequest(creations=(rule(resource_name="m3"),)), version
    yield DeleteAclsRequest(filters=()), None


M3: Final = {"resource_name_filter": "m3"}


def of_quotas() -> Iterator[Odd]:
    """Rates and entities; names of hosts are looked up by Kafka, and not here."""

    def quota(entity: Sequence[tuple[str, str | None]], *ops: tuple[str, float, bool], **how: Any) -> Any:
        row = AlterClientQuotasRequest
        parts = tuple(row.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        changes = tuple(row.OpData(key=key, value=value, remove=is_gone) for key, value, is_gone in ops)
        return row(entries=(row.EntryData(entity=parts, ops=changes),), **how)

    for value in (
        0.0, -0.0, 1e-9, 0.1, 1.0, 1.5, 1.0000001, 1.000001, 1.00001, 2.0**63, 2.0**31 - 1, 2.0**31, float("nan"),
        float("inf"), float("-inf"), 1e300,
    ):  # fmt: skip
        for key, entity in (
            ("producer_byte_rate", [("user", "u")]), ("request_percentage", [("user", "u")]),
            ("consumer_byte_rate", [("client-id", None)]), ("connection_creation_rate", [("ip", "1.2.3.4")]),
            ("controller_mutation_rate", [("user", "zz")]),
        ):  # fmt: skip
            yield quota(entity, (key, value, False)), None
    entities: tuple[Sequence[tuple[str, str | None]], ...] = (
        [], [("user", "u"), ("user", "v")], [("user", "u")] * 2, [("User", "u")], [("user", LONG_NAME)], [("user", "")],
        [("user", "a b%*")], [("user", "<default>")], [("user", "u"), ("client-id", "c"), ("ip", "1.2.3.4")],
        [("user", None), ("client-id", None)], [("ip", "1.2.3.4"), ("ip", "1.2.3.5")], [("ip", None)],
        *(
            [("ip", text)]
            for text in (
                "1.2.3", "1", "4294967295", "4294967296", "::1", "0:0:0:0:0:0:0:1", "[::1]", "[1.2.3.4]", "1.2.3.4 ",
                "01.2.3.4", "1.2.3.256", "1.2.65536", "::ffff:1.2.3.4", "1.2.3.",
            )
        ),
    )  # fmt: skip
    for entity in entities:
        key = "connection_creation_rate" if entity and entity[0][0] == "ip" else "producer_byte_rate"
        yield quota(entity, (key, 5.0, False)), None
        yield quota(entity, (key, 5.0, False), validate_only=True), None
        yield quota(entity, (key, 0.0, True)), None
        yield quota(entity), None
    for ops in (
        [("nonsense", 1.0, True)], [("connection_creation_rate", 1.0, False)],
        [("producer_byte_rate", 1.0, False), ("producer_byte_rate", 2.0, False)],
        [("producer_byte_rate", 1.0, False), ("nonsense", 2.0, False)],
    ):  # fmt: skip
        yield quota([("user", "u")], *ops), None
    yield quota([("ip", "1.2.3.4")], ("producer_byte_rate", 1.0, False)), None
    yield AlterClientQuotasRequest(entries=()), None


def of_credentials() -> Iterator[Odd]:
    """SCRAM users."""
    row = AlterUserScramCredentialsRequest

    def new(**changes: Any) -> Any:
        values = {"name": "s", "mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": b"p" * 32}
        return row.ScramCredentialUpsertion(**{**values, **changes})

    def gone(name: str, mechanism: int = 1) -> Any:
        return row.ScramCredentialDeletion(name=name, mechanism=mechanism)

    for changes in (
        *({"mechanism": code} for code in (-1, 0, 1, 2, 3, 127)),
        *({"name": text} for text in ("", " ", "a b", LONG_NAME, "\u00e9", "User:ann", "a,b=c")),
        *({"iterations": count, "mechanism": 1 + count % 2} for count in (-1, 0, 4_095, 16_384, 16_385, (1 << 31) - 1)),
        *({"salt": data} for data in (b"", b"x" * 1_000)),
        *({"salted_password": data} for data in (b"", b"x", b"x" * 1_000)),
    ):
        yield row(deletions=(), upsertions=(new(**changes),)), None
        named = {"name": "s", "mechanism": 1, **changes}
        yield row(deletions=(gone(named["name"], named["mechanism"]),), upsertions=()), None
    for deletions, upsertions in (
        ((), ()), ((gone("s"),), (new(),)), ((gone("s"),), (new(mechanism=2),)), ((gone("nobody"),) * 2, ()),
        ((), (new(), new(iterations=1))), ((), (new(iterations=1), new())), ((gone("i", 0),), (new(name="i"),)),
        ((), (new(name="q", salted_password=b""), new(name="r"))),
        ((), (new(name="q", salted_password=b"", iterations=1),)),
    ):  # fmt: skip
        yield row(deletions=deletions, upsertions=upsertions), None


def of_features() -> Iterator[Odd]:
    """Levels of features, each way to change them, tried only."""
    row = UpdateFeaturesRequest.FeatureUpdateKey
    for name in (*RANGES, "no.such", ""):
        for level in (-1, 0, 1, 2, 7, 25, 29, 30, 31, 32_767):
            for kind in (1, 2, 3) if name == "kraft.version" else (0, 1, 2, 3, 4, -1):
                update = row(feature=name, max_version_level=level, upgrade_type=kind)
                yield UpdateFeaturesRequest(feature_updates=(update,), validate_only=True), None
    for level in (0, 1):
        for may_lower in (True, False):
            update = row(feature="group.version", max_version_level=level, allow_downgrade=may_lower)
            yield UpdateFeaturesRequest(feature_updates=(update,)), 0
    yield UpdateFeaturesRequest(feature_updates=()), None


KINDS: Final[Mapping[str, Callable[[], Iterator[Odd]]]] = {
    "values of topics": of_topic_values,
    "topics": of_topics,
    "partitions": of_partitions,
    "resources": of_resources,
    "lists": of_lists,
    "all brokers": of_all_brokers,
    "access": of_access,
    "quotas": of_quotas,
    "credentials": of_credentials,
    "features": of_features,
}
