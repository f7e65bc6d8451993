"""The key-value store inside `kraftlib run`: a state machine of a few lines, and its answers to clients.

Clients speak JSON lines over TCP, one request and one answer a line. Requests of one connection overlap; a client with
more than one under way gives each an `id`, which comes back with the answer.

    {"put": {"key": "a", "value": "1"}}   -> {"put": {"offset": 7, "previous": null}}  committed, and applied here
    {"put": {"key": "a", "value": null}}  -> forgets the key
    {"get": "a"}                          -> {"get": {"value": "1", "offset": 8}}      with all below that offset
    {"read": "a"}                         -> {"read": {"value": "1", "offset": 8}}     no older than any answer so far
    {"all": true}                         -> {"all": {"items": {"a": "1"}, "offset": 8}}
    {"snapshot": true}                    -> {"snapshot": {"end_offset": 8, "epoch": 3}} once it is durable
    {"status": true}                      -> {"status": {...}}                         of this replica
    what fails                            -> {"error": "NotLeaderError", "message": "...", "leader": 2}

A put goes to the leader only; others name it. A get is answered by any replica from its own memory, so it may lag; a
read, too, but only once the replica has applied the records that were committed when it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kraftlib.cli.service import Service
from kraftlib.errors import ConfigError
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.types import LeaderAndEpoch


class KeyValueStore(StateMachine):
    """Keys and values, all text, in a dict."""

    def __init__(self, *, leader_changed: Callable[[LeaderAndEpoch], None] = lambda leader: None) -> None:
        self.items: dict[str, str] = {}
        self.end_offset = 0
        """One past the last record that is in `items`."""
        self._leader_changed = leader_changed

    def apply(self, record: CommittedRecord) -> Any:
        """Set or forget a key; the result holds the offset of the record and the value before it."""
        key, value = record.value["key"], record.value["value"]
        previous = self.items.pop(key, None)
        if value is not None:
            self.items[key] = value
        self.end_offset = record.offset + 1
        return {"offset": record.offset, "previous": previous}

    def snapshot(self) -> Iterable[Any]:
        """Return the offset, then every item."""
        return [self.end_offset, *({"key": key, "value": value} for key, value in self.items.items())]

    def restore(self, values: Iterable[Any]) -> None:
        """Replace everything."""
        first, *items = values
        self.end_offset = first
        self.items = {item["key"]: item["value"] for item in items}

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Pass it on."""
        self._leader_changed(leader)


def offer_store(service: Service, store: KeyValueStore) -> None:
    """Let `service` answer put, get and all."""

    async def put(item: Any) -> Any:
        match item:
            case {"key": str(key), "value": str() | None as value}:
                return await service.client.propose({"key": key, "value": value})
        raise ConfigError(f'{item!r} is no item: expected {{"key": text, "value": text or null}}')

    async def get(key: Any) -> Any:
        if not isinstance(key, str):
            raise ConfigError(f"{key!r} is no key: expected text")
        return {"value": store.items.get(key), "offset": store.end_offset}

    async def read(key: Any) -> Any:
        await service.client.read_barrier()
        return await get(key)

    async def get_all(_: Any) -> Any:
        return {"items": store.items, "offset": store.end_offset}

    async def snapshot(_: Any) -> Any:
        snapshot_id = await service.client.create_snapshot()
        return {"end_offset": snapshot_id.offset, "epoch": snapshot_id.epoch}

    service.offer("put", put)
    service.offer("snapshot", snapshot)
    service.offer("get", get)
    service.offer("read", read)
    service.offer("all", get_all)
