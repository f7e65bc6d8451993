"""Nodes of Kafka in ZooKeeper as an import reads them, made by hand."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlib.compat.kazoo.source import Source, SourceNode

ORDERS: Final = "HHSBNKfeTvuBkZm5TWHXlQ"
CLICKS: Final = "wA5fUH-SRPiNnLO5-BdZ4g"
SCRAM: Final = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
CLUSTER: Final[Mapping[str, Any]] = {
    "/cluster/id": {"version": "1", "id": "dAeUCHuXTu2U-Y8PVOAJ2g"},
    "/brokers/ids": None,
    "/brokers/topics/clicks.x": {"partitions": {"0": [1]}, "topic_id": CLICKS, "version": 3},
    "/brokers/topics/orders": {
        "partitions": {"1": [2, 1, 3], "0": [1, 2]},
        "topic_id": ORDERS,
        "adding_replicas": {"1": [3]},
        "removing_replicas": {"1": [2]},
        "version": 3,
    },
    "/brokers/topics/orders/partitions": None,
    "/brokers/topics/orders/partitions/0/state": {
        "controller_epoch": 2, "leader": 1, "version": 1, "leader_epoch": 5, "isr": [2, 1], "leader_recovery_state": 1,
    },
    "/config/topics/clicks.x": {"version": 1, "config": {}},
    "/config/topics/orders": {"version": 1, "config": {"retention.ms": "9", "cleanup.policy": "compact"}},
    "/config/topics/gone": {"version": 1, "config": {"retention.ms": "9"}},
    "/config/brokers/<default>": {"version": 1, "config": {"log.cleaner.threads": "2"}},
    "/config/brokers/2": {"version": 1, "config": {"ssl.key.password": "keyLength:128,encryptedPassword:x"}},
    "/config/users/ann%20b": {"version": 1, "config": {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "7.5"}},
    "/config/users/bob": None,
    "/config/users/bob/clients/c%2F1": {"version": 1, "config": {"consumer_byte_rate": "5"}},
    "/config/users/<default>/clients/<default>": {"version": 1, "config": {"consumer_byte_rate": "6"}},
    "/config/clients/c2": {"version": 1, "config": {"controller_mutation_rate": "8"}},
    "/config/ips/10.0.0.1": {"version": 1, "config": {"connection_creation_rate": "9"}},
    "/feature": {"features": {}, "version": 2, "status": 1},
    "/kafka-acl/Topic/orders": {
        "acls": [{"principal": "User:ann", "permissionType": "Allow", "host": "*", "operation": "DescribeConfigs"}],
        "version": 1,
    },
    "/kafka-acl/User": None,
    "/kafka-acl-extended/prefixed/TransactionalId/g-": {
        "acls": [{"principal": "User:bob", "permissionType": "Deny", "host": "10.0.0.9", "operation": "All"}],
        "version": 1,
    },
    "/latest_producer_id_block": {"version": 1, "broker": 1, "block_start": "1000", "block_end": "1999"},
    "/delegation_token/tokens/abc": {
        "version": 3, "owner": "User%3Aann", "tokenRequester": "User%3Abob", "renewers": ["User%3Acarl"],
        "issueTimestamp": 1, "maxTimestamp": 3, "expiryTimestamp": 2, "tokenId": "abc",
    },
}  # fmt: skip


def source(changes: Mapping[str, Any] | None = None, *, top: str = "", versions: int = 4) -> Source:
    """Return the nodes of a cluster, some of them changed, with those above them; bytes stay as they are."""
    found = Source()
    for path, value in {**CLUSTER, **(changes or {})}.items():
        names = f"{top}{path}"[1:].split("/")
        for end in range(1, len(names)):
            found.nodes.setdefault(f"/{'/'.join(names[:end])}", SourceNode())
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        found.nodes[top + path] = SourceNode(data=data, version=versions)
    return found


def write_files(source: Source, directory: Path) -> None:
    """Write the nodes as a snapshot file of ZooKeeper."""

    def sized(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    owners = dict.fromkeys(source.nodes, 0) | dict.fromkeys(source.ephemeral_paths, 77)
    parts = [b"ZKSN", struct.pack(">iqii", 2, -1, 0, 0), sized(b""), sized(b""), bytes(24 + 16 + 12 + 16)]
    for path, owner in owners.items():
        node = source.nodes.get(path, SourceNode())
        numbers = struct.pack(">qqqqqiiiqq", 0, 0, 0, 0, 0, node.version, 0, 0, owner, 0)
        parts += [sized(path.encode()), sized(node.data), numbers]
    data = b"".join([*parts, sized(b"/")])
    directory.mkdir()
    (directory / "snapshot.0").write_bytes(data + struct.pack(">q", zlib.adler32(data)) + sized(b"/"))
