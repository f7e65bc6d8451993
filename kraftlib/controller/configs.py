"""Configurations of topics, brokers and the rest: the fold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.config_values import Source
from kraftlib.controller.journal import Journal, Table
from kraftlib.metadata.config_records import ConfigRecord

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
KNOWN_TYPES: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})

Resource = tuple[int, str]
"""Type and name; a broker without a name stands for all of them."""

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Configs:
    """The values that are set, by resource."""

    def __init__(self, journal: Journal) -> None:
        self.resources: Final[Table[Resource, Mapping[str, str]]] = Table(journal, watch=self._changed)
        self.in_general: Final[dict[tuple[str, int], tuple[str, Source]]] = {}
        """The values for topics that do not set a key, by key and node, as far as they were asked for."""

    def _changed(self, resource: Resource, old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> None:
        if resource[0] == BROKER:
            self.in_general.clear()

    def replay(self, record: ConfigRecord) -> None:
        """A value is set, or removed."""
        resource = (record.resource_type, record.resource_name)
        values = dict(self.resources.get(resource) or NOTHING)
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.resources.put(resource, values)
        else:
            self.resources.discard(resource)

    def forget(self, resource: Resource) -> None:
        """The resource is gone, and its values with it."""
        self.resources.discard(resource)

    def snapshot(self, resources: Mapping[Resource, Mapping[str, str]]) -> Iterator[Message]:
        """Yield the records of all values."""
        for kind, name in sorted(resources):
            for key, value in sorted(resources[kind, name].items()):
                yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

    def of(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the values that are set for a resource."""
        return self.resources.get((kind, name)) or NOTHING
