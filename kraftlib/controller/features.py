"""Features: the finalized levels, metadata.version among them (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.controller.journal import Journal, Table
from kraftlib.controller.versions import METADATA_VERSION, SUPPORTED_METADATA_VERSIONS
from kraftlib.metadata.config_records import FeatureLevelRecord

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
SUPPORTED: Final[Mapping[str, Versions]] = MappingProxyType(
    {
        METADATA_VERSION: SUPPORTED_METADATA_VERSIONS,
        ELIGIBLE_LEADER_REPLICAS: Versions(0, 1),
        "group.version": Versions(0, 1),
        "share.version": Versions(0, 1),
        "streams.version": Versions(0, 1),
        "transaction.version": Versions(0, 2),
    }
)
"""The levels that this controller can work with."""


class SupportedRange(Protocol):
    """A feature in a registration."""

    @property
    def name(self) -> str:
        """The feature."""
        ...

    @property
    def min_supported_version(self) -> int:
        """The lowest level."""
        ...

    @property
    def max_supported_version(self) -> int:
        """The highest level."""
        ...


class Features:
    """The levels in force."""

    def __init__(self, journal: Journal) -> None:
        self.levels: Final[Table[str, int]] = Table(journal)

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version; 0, before there is one."""
        return self.levels.get(METADATA_VERSION) or 0

    @property
    def has_eligible_leader_replicas(self) -> bool:
        """Whether replicas beside the ISR may lead (KIP-966)."""
        return bool(self.levels.get(ELIGIBLE_LEADER_REPLICAS))

    def replay(self, record: FeatureLevelRecord) -> None:
        """A feature has another level; 0 removes it."""
        if record.feature_level:
            self.levels.put(record.name, record.feature_level)
        else:
            self.levels.discard(record.name)

    def snapshot(self, levels: Mapping[str, int]) -> Iterator[Message]:
        """Yield the records of `levels`, metadata.version first: it says how to read the others."""
        for name in sorted(levels, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=levels[name])

    def unsupported(self) -> str | None:
        """Return what is in force and is not supported here, or None."""
        return next((f"{name} {level}" for name, level in self.levels.items() if not _is_within(name, level)), None)

    def why_not(self, supported: Iterable[SupportedRange]) -> str | None:
        """Return the feature whose level a broker does not support, or None. One that is not in force is at level 0."""
        ranges = {row.name: Versions(row.min_supported_version, row.max_supported_version) for row in supported}
        for name in {**dict(self.levels.items()), **ranges}:
            level, within = self.levels.get(name) or 0, ranges.get(name, Versions(0, 0))
            if level not in within:
                return f"{name} is at level {level}, which is outside {within}"
        return None


def _is_within(name: str, level: int) -> bool:
    return level in SUPPORTED.get(name, Versions(0, 0))
