"""Which voters count at each offset, worked out from the log that a life began with and from what was done to it since.

A voter set is in force from the moment its record stands in the log, committed or not. A truncation brings the earlier
one back, and a snapshot says with which one the log behind it begins (KIP-853).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kraftlib.consensus import events as ev
from kraftlib.records.batch import Batch
from kraftlib.records.control import decode_control
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.types import ZERO_UUID, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey


@attrs.frozen
class Seat:
    """The entry of one voter in a voter set."""

    directory_id: uuid.UUID | None
    places: frozenset[tuple[str, str, int]]
    """Listener in upper case, host, port."""
    least: int
    most: int
    """Between these kraft.versions."""

    def admits(self, directory_id: uuid.UUID | None) -> bool:
        """Whether a replica of this id with that directory is the voter (KIP-853)."""
        return self.directory_id is None or self.directory_id == directory_id


Seats = Mapping[ReplicaId, Seat]


def seats_of_set(voters: Any) -> Seats:
    """Read a voter set of the core."""
    return {
        voter.key.id: Seat(
            voter.key.directory_id,
            frozenset((name.upper(), place.host, place.port) for name, place in voter.endpoints.items()),
            voter.min_kraft_version,
            voter.max_kraft_version,
        )
        for voter in voters
    }


def seats_of_record(record: VotersRecord) -> Seats:
    """Read a Voters record."""
    return {
        voter.voter_id: Seat(
            None if voter.voter_directory_id == ZERO_UUID else voter.voter_directory_id,
            frozenset((place.name.upper(), place.host, place.port) for place in voter.endpoints),
            voter.kraft_version_feature.min_supported_version,
            voter.kraft_version_feature.max_supported_version,
        )
        for voter in record.voters
    }


def shown(seats: Seats) -> str:
    """Return how a rule names a voter set."""
    return "{" + ", ".join(f"{voter_id}:{str(seats[voter_id].directory_id)[-6:]}" for voter_id in sorted(seats)) + "}"


def _entries_before(entries: list[tuple[Offset, Any]], end: Offset, known_from: Offset) -> list[tuple[Offset, Any]]:
    """Return what stands before `end`; if nothing does, what a header told that ends at `known_from`."""
    told = [(end - 1, value) for offset, value in entries[:1] if offset < known_from]
    return [entry for entry in entries if entry[0] < end] or told


def _entries_since(entries: list[tuple[Offset, Any]], start: Offset) -> list[tuple[Offset, Any]]:
    """Return what is in force before `start`, and all that comes later."""
    return [*[entry for entry in entries if entry[0] < start][-1:], *(entry for entry in entries if entry[0] >= start)]


class VotersByOffset:
    """Voter sets and kraft.versions by the offset of their record; -1 is the bootstrap checkpoint."""

    def __init__(self, log: Any) -> None:
        """Take over what a log said of them when it was opened."""
        voters, versions = log.voters, log.kraft_version
        self.configured = seats_of_set(voters.default)
        """Those of the configuration, which count while no record names any."""
        self.sets: list[tuple[Offset, Seats]] = [(at, seats_of_set(value)) for at, value in voters.entries]
        self.versions: list[tuple[Offset, int]] = list(versions.entries)
        self.known_from: Offset = log.header_offset
        """The end of the snapshot whose header was read, or the start of the log. Earlier values are not known."""

    @property
    def latest(self) -> Seats:
        """The voters in force."""
        return self.sets[-1][1] if self.sets else self.configured

    @property
    def latest_offset(self) -> Offset | None:
        """Where their record stands; None where the configuration names them."""
        return self.sets[-1][0] if self.sets else None

    @property
    def kraft_version(self) -> int:
        """The kraft.version in force."""
        return self.versions[-1][1] if self.versions else 0

    @property
    def kraft_version_offset(self) -> Offset | None:
        """Where its record stands."""
        return self.versions[-1][0] if self.versions else None

    def at(self, offset: Offset) -> Seats:
        """Return the voters in force at an offset."""
        return next((seats for place, seats in reversed(self.sets) if place <= offset), self.configured)

    def admits(self, key: ReplicaKey) -> bool:
        """Whether this very replica is a voter."""
        seat = self.latest.get(key.id)
        return seat is not None and seat.admits(key.directory_id)

    # --- what becomes of the log -------------------------------------------------------------------------------------

    def append(self, batches: Iterable[Batch], *, since: Offset = 0) -> None:
        """Read the control records of batches that stand behind all others, those before `since` left out."""
        for batch in batches:
            if batch.is_control and batch.base_offset >= since:
                for record in batch.records():
                    self._read(record.offset, decode_control(record))

    def truncate(self, end_offset: Offset) -> None:
        """Forget what stood at `end_offset` or behind it. A header still counts before the end of its snapshot."""
        self.sets = _entries_before(self.sets, end_offset, self.known_from)
        self.versions = _entries_before(self.versions, end_offset, self.known_from)

    def forget_before(self, start_offset: Offset) -> None:
        """Let the log begin at `start_offset`: of what stood before, only the last is known."""
        self.sets, self.versions = _entries_since(self.sets, start_offset), _entries_since(self.versions, start_offset)
        self.known_from = max(self.known_from, start_offset)

    def begin_at(self, snapshot_id: OffsetAndEpoch, controls: Iterable[Any]) -> None:
        """Begin with what the header of a snapshot says."""
        self.sets, self.versions, self.known_from = [], [], snapshot_id.offset
        for control in controls:
            self._read(snapshot_id.offset - 1, control)

    def hear(self, event: Any, start_offset: Offset, end_offset: Offset) -> bool:
        """Follow what the disk has done to a log with these ends; return whether that may have changed anything.

        A repair tells of all that stands in the log. The values of a header were known before.
        """
        match event:
            case ev.LogTruncated():
                self.truncate(event.end_offset)
            case ev.StorageFailed():
                if event.begins_at is None:
                    return False
                self.forget_before(event.begins_at.offset)
            case ev.SnapshotInstalled():
                self.begin_at(event.snapshot_id, event.controls)
            case ev.SnapshotAdopted():
                self.begin_at(event.snapshot_id, event.controls)
                self.append(event.control_batches, since=event.snapshot_id.offset)
            case ev.Repaired():
                first = max(start_offset, min(self.known_from, end_offset))
                self.truncate(first)
                self.append(event.control_batches, since=first)
            case _:
                return False
        return True

    def _read(self, offset: Offset, control: Any) -> None:
        if isinstance(control, VotersRecord):
            self.sets.append((offset, seats_of_record(control)))
        elif isinstance(control, KRaftVersionRecord):
            self.versions.append((offset, control.kraft_version))
