"""The replicated levels: the announced, wanted and raised ones. They follow from the records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kraftlib.machines.messages import LEVEL_MAX, MACHINES_MAX, REPLICAS_MAX, Announce, Header, Raise, Want
from kraftlib.types import Epoch, Offset, ReplicaId

Supported = Mapping[str, int]
"""The highest level that a release can apply, by machine."""


@attrs.define
class Levels:
    """The levels of the machines, and those that they may rise to. Its dicts are replaced and never changed in
    place."""

    levels: Mapping[str, int]
    """By machine; a machine that is not there is at level 0."""
    wanted: Mapping[str, int] = attrs.field(factory=dict)
    """Levels that the leader is to raise to once it can."""
    announced: Mapping[ReplicaId, Supported] = attrs.field(factory=dict)
    applied: Offset = -1
    """The offset of the last record that was applied."""
    time_ms: int = 0
    """Ms since 1970, of the leaders: the greatest timestamp of a record so far."""

    def of(self, machine: str) -> int:
        """Return the level of a machine."""
        return self.levels.get(machine, 0)

    def lacking(self, machine: str, level: int, replicas: Iterable[ReplicaId]) -> Sequence[ReplicaId]:
        """Return those of `replicas` that have not announced that they can apply this level."""
        return sorted(each for each in replicas if self.announced.get(each, {}).get(machine, 0) < level)

    # Each returns why it changes nothing, the same on every replica; "" if it does.

    def announce(self, record: Announce) -> str:
        """Remember what a replica can apply."""
        if len(self.announced) >= REPLICAS_MAX and record.replica_id not in self.announced:
            return f"{REPLICAS_MAX} replicas have announced themselves already"
        supports = {row.machine: row.level for row in record.supports}
        self.announced = {**self.announced, record.replica_id: supports}
        return ""

    def want(self, record: Want) -> str:
        """Remember a level that is wanted. The present one withdraws what was wanted before."""
        present = self.of(record.machine)
        if not present <= record.level <= LEVEL_MAX:
            return f"level {record.level} of machine {record.machine!r} is below {present}: a level only rises"
        if len(self.wanted) >= MACHINES_MAX and record.machine not in self.wanted:
            return f"levels of {MACHINES_MAX} machines are wanted already"
        others = {machine: level for machine, level in self.wanted.items() if machine != record.machine}
        self.wanted = others if record.level == present else {**others, record.machine: record.level}
        return ""

    def refusal(self, record: Raise, epoch: Epoch) -> str:
        """Return why a level is not raised by this record of `epoch`; "" if it is."""
        if record.epoch != epoch:
            return f"the leader of epoch {record.epoch} wanted to raise the level, and the epoch is {epoch}"
        if record.level <= self.of(record.machine) or record.level > LEVEL_MAX:
            return f"level {record.level} of machine {record.machine!r} is not above {self.of(record.machine)}"
        if not record.replicas:
            return "no replicas are named that support it"
        lacking = self.lacking(record.machine, record.level, record.replicas)
        return f"replicas {lacking} have not announced level {record.level} of {record.machine!r}" if lacking else ""

    def raise_to(self, record: Raise) -> None:
        """Raise a level. Announcements of other replicas are forgotten: if they are there, they announce it again."""
        self.levels = {**self.levels, record.machine: record.level}
        self.wanted = {name: level for name, level in self.wanted.items() if level > self.of(name)}
        self.announced = {known: supports for known, supports in self.announced.items() if known in record.replicas}

    def header(self) -> Header:
        """Return the levels as the first value of a snapshot, the same bytes on every replica."""
        replicas = tuple(
            Header.Replica(
                id=known,
                supports=tuple(Header.Support(machine=name, level=level) for name, level in sorted(supports.items())),
            )
            for known, supports in sorted(self.announced.items())
        )
        return Header(
            applied=self.applied,
            time_ms=self.time_ms,
            levels=_rows(self.levels),
            wanted=_rows(self.wanted),
            announced=replicas,
        )

    @classmethod
    def from_header(cls, header: Header) -> Levels:
        """Return the levels of a snapshot."""
        return cls(
            levels={row.machine: row.level for row in header.levels},
            wanted={row.machine: row.level for row in header.wanted},
            announced={known.id: {row.machine: row.level for row in known.supports} for known in header.announced},
            applied=header.applied,
            time_ms=header.time_ms,
        )


def _rows(levels: Mapping[str, int]) -> tuple[Header.Level, ...]:
    return tuple(Header.Level(machine=name, level=level) for name, level in sorted(levels.items()) if level)
