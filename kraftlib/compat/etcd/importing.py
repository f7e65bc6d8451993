"""Copies the keys of an etcd into a map, and compares the two key by key.

`Importer.step` reads what the map has, writes what differs, and returns that. A step that returns no difference has
found both equal. Keys and values are those of the source; revisions are offsets of our own log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from kraftlib.compat.etcd.snapshot import Source
from kraftlib.coordination.commands import COMMAND_BYTES_MAX, NAME_BYTES_MAX
from kraftlib.coordination.messages import OPERATIONS_MAX
from kraftlib.errors import ConfigError
from kraftlib.recipes.map import Delete, Entry, Put, ReplicatedMap
from kraftlib.recipes.sessions import scope

ENVELOPE_BYTES = 64 * 1024
"""Bytes of a command beside keys and values, at most."""

OPERATION_BYTES = 32
"""Bytes of an operation beside key and value, at most."""


@attrs.frozen(kw_only=True)
class Differences:
    """Keys, in order. An ephemeral key of the map, or one with a time to live, is changed, or surplus."""

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.changed or self.surplus)


class Importer:
    """The import of the keys below a prefix. Others must not write there meanwhile.

    `replace`: also where the map has other keys there before the first step, which are changed and deleted then.
    """

    def __init__(self, target: ReplicatedMap, prefix: str = "", *, replace: bool = False) -> None:
        self._map = target
        self._prefix = prefix
        self._replace = replace

    async def step(self, source: Source) -> Differences:
        """Make the map equal to the source, and return what had to be written.

        Raises: ConfigError, before anything is written, if a key does not fit, or if there are others already.
        """
        self._check(source)
        present = (await self._map.state(self._prefix)).entries
        found = Differences(
            missing=tuple(sorted(source.entries.keys() - present.keys())),
            changed=tuple(sorted(key for key, entry in present.items() if _is_changed(source, key, entry))),
            surplus=tuple(sorted(present.keys() - source.entries.keys())),
        )
        if (found.changed or found.surplus) and not self._replace:
            raise ConfigError(
                f"the map {self._map.name!r} has {len(found.changed) + len(found.surplus)} keys already that the "
                f"source lacks or has otherwise, such as {[*found.changed, *found.surplus][0]!r}: delete them, import "
                "into another --map, or give --replace"
            )
        self._replace = True  # from now on they are ours
        writes = [Put(key, source.entries[key]) for key in (*found.missing, *found.changed)]
        for batch in _batches([*map(Delete, found.surplus), *writes]):
            await self._map.transaction(batch)
        return found

    def _check(self, source: Source) -> None:
        before = len(scope("map", self._map.name).encode())
        for key, value in source.entries.items():
            size = before + len(key.encode())
            if size > NAME_BYTES_MAX:
                raise ConfigError(
                    f"the key {key[:40]!r}… of {size - before} bytes: {NAME_BYTES_MAX - before} are the most"
                )
            if len(value) > COMMAND_BYTES_MAX - ENVELOPE_BYTES:
                most = COMMAND_BYTES_MAX - ENVELOPE_BYTES
                raise ConfigError(
                    f"the key {key!r} has a value of {len(value)} bytes, and {most} are the most: divide it"
                )


def _is_changed(source: Source, key: str, entry: Entry) -> bool:
    return key in source.entries and (source.entries[key] != entry.value or entry.ephemeral or entry.ttl_ms > 0)


def _batches(operations: Iterable[Put | Delete]) -> Iterator[list[Put | Delete]]:
    """Yield as many operations as one transaction takes."""
    batch: list[Put | Delete] = []
    size = 0
    for operation in operations:
        more = OPERATION_BYTES + NAME_BYTES_MAX + (len(operation.value) if isinstance(operation, Put) else 0)
        if batch and (len(batch) == OPERATIONS_MAX or size + more > COMMAND_BYTES_MAX - ENVELOPE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += more
    if batch:
        yield batch
