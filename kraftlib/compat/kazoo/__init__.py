"""kazoo's client on a quorum of kraftlib: a program that uses ZooKeeper through kazoo changes one import.

    from kraftlib.compat.kazoo import KazooClient    # was: from kazoo.client import KazooClient

    client = KazooClient(hosts="10.0.0.1:9191,10.0.0.2:9191/my-service")

The client, its recipes and its errors are kazoo's own, unchanged; only the connection below them is another one. The
hosts are replicas that were opened with `kraftlib.open`. Other names that programs import from `kazoo.client` are here,
too. Needs `pip install 'kraftlib[kazoo]'`.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("kazoo") is None:
    raise ModuleNotFoundError("kraftlib.compat.kazoo needs kazoo: pip install 'kraftlib[kazoo]'", name="kazoo")

from kazoo.client import TransactionRequest
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry

from kraftlib.compat.kazoo.client import KazooClient

__all__ = [
    "EventType",
    "KazooClient",
    "KazooRetry",
    "KazooState",
    "KeeperState",
    "TransactionRequest",
    "WatchedEvent",
]
