"""Voter sets: their ids and endpoints, from which offset on they vote (KIP-853), and the arithmetic of majorities.

A voter set takes effect as soon as it stands in the log, committed or not, on the leader when it is appended and on a
follower when the Fetch response is. Truncating the log must bring the earlier one back, so sets are kept by offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import attrs

from kraftlib.config import StaticVoter
from kraftlib.errors import InvariantError, ensure
from kraftlib.frozen import define, immutable
from kraftlib.records.control import check_voters
from kraftlib.records.control_messages import VotersRecord
from kraftlib.types import ZERO_UUID, Endpoint, Offset, ReplicaId, ReplicaKey

T = TypeVar("T")


@immutable(kw_only=True)
class Voter:
    """One voter: its key, its endpoints by upper-case listener name, and the kraft.versions that it supports."""

    key: ReplicaKey
    endpoints: Mapping[str, Endpoint]
    min_kraft_version: int = 0
    max_kraft_version: int = 0


def listeners_of(endpoints: Mapping[str, Endpoint], kind: Callable[..., T]) -> tuple[T, ...]:
    """Return endpoints by listener name as rows of a message or record, which are of this kind."""
    return tuple(kind(name=name, host=place.host, port=place.port) for name, place in endpoints.items())


@immutable
class VoterSet:
    """The voters of a quorum, ascending by id; an id stands there once at most.

    Majorities are counted over these voters alone.
    """

    voters: tuple[Voter, ...] = ()
    majority: int = attrs.field(init=False, repr=False, eq=False)
    """The number of voters that is more than half of them."""
    _by_id: Mapping[ReplicaId, Voter] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        by_id = {voter.key.id: voter for voter in self.voters}
        ensure(len(by_id) == len(self.voters), f"an id stands twice in the voter set {self}")
        object.__setattr__(self, "_by_id", by_id)
        object.__setattr__(self, "majority", len(by_id) // 2 + 1)

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """Build from voters in any order."""
        return cls(tuple(sorted(voters, key=lambda voter: voter.key.id)))

    @classmethod
    def static(cls, voters: Iterable[StaticVoter], *, listener_name: str) -> VoterSet:
        """Build the set of a static quorum: directory ids are not known there (kraft.version 0)."""
        return cls.of(
            Voter(key=ReplicaKey(voter.id), endpoints={listener_name.upper(): voter.endpoint}) for voter in voters
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        """Read a Voters control record. Raises: RemoteProtocolError, if an id stands there twice, or none."""
        check_voters(record)
        return cls.of(
            Voter(
                key=ReplicaKey.of(voter.voter_id, voter.voter_directory_id),
                endpoints={place.name.upper(): Endpoint(place.host, place.port) for place in voter.endpoints},
                min_kraft_version=voter.kraft_version_feature.min_supported_version,
                max_kraft_version=voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )

    def to_record(self) -> VotersRecord:
        """Return the Voters control record of this set."""
        return VotersRecord(
            voters=tuple(
                VotersRecord.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id or ZERO_UUID,
                    endpoints=listeners_of(voter.endpoints, VotersRecord.Endpoint),
                    kraft_version_feature=VotersRecord.KRaftVersionFeature(
                        min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                    ),
                )
                for voter in self.voters
            )
        )

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __contains__(self, key: ReplicaKey) -> bool:
        """Whether this very replica votes; an unknown directory id of the *voter* matches any, one of `key` none."""
        voter = self._by_id.get(key.id)
        if voter is None:
            return False
        directory_id = voter.key.directory_id
        return directory_id is None or directory_id == key.directory_id

    @property
    def ids(self) -> tuple[ReplicaId, ...]:
        """Ids of the voters, ascending."""
        return tuple(self._by_id)

    def get(self, replica_id: ReplicaId) -> Voter | None:
        """Return the voter of this id, with any directory id."""
        return self._by_id.get(replica_id)

    def is_neighbour_of(self, other: VoterSet) -> bool:
        """Whether one voter at most was added and one at most removed, which is what Kafka asks of a new set.

        With one of each, a majority of either set may share no voter with one of the other: a leader only adds or only
        removes. (A voter with a new disk counts as both.)
        """
        ours, theirs = {voter.key for voter in self.voters}, {voter.key for voter in other.voters}
        return len(ours - theirs) <= 1 and len(theirs - ours) <= 1

    def others(self, own: ReplicaKey) -> list[Voter]:
        """Return the remote voters, as `own` sees it."""
        return [voter for voter in self.voters if voter.key.id != own.id]

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return the set with `voter` added, or put in the place of the one with its id."""
        return VoterSet.of([*(other for other in self.voters if other.key.id != voter.key.id), voter])

    def without(self, key: ReplicaKey) -> VoterSet:
        """Return the set without this very voter."""
        return VoterSet.of(voter for voter in self.voters if voter.key != key)

    def __str__(self) -> str:
        return "{" + ", ".join(str(voter.key) for voter in self.voters) + "}"


class History(Generic[T]):
    """Values by the offset of the record that brought them; a snapshot's stand at its end offset - 1.

    * offsets ascend strictly, from -1 (the bootstrap checkpoint) on;
    * `latest` is what counts for every majority.
    """

    def __init__(self, default: T) -> None:
        self.default = default
        """The value in force while no record brings one."""
        self._entries: list[tuple[Offset, T]] = []
        self.latest: T = default
        """The value of the greatest offset; the default while there is none. Kept, since everything asks for it."""
        self.latest_offset: Offset | None = None
        """Offset of the latest value; None while the default is in force."""

    @property
    def entries(self) -> tuple[tuple[Offset, T], ...]:
        """The known values and their offsets, ascending."""
        return tuple(self._entries)

    def at(self, offset: Offset) -> T:
        """Return the value in force at `offset`, as a snapshot that ends there must record it."""
        return next((value for place, value in reversed(self._entries) if place <= offset), self.default)

    def since(self, offset: Offset) -> list[T]:
        """Return the value in force at `offset`, and all that came after it."""
        return [self.at(offset), *(value for place, value in self._entries if place > offset)]

    def add(self, offset: Offset, value: T) -> None:
        """Record `value` at `offset`, which must be beyond all others."""
        ensure(offset >= -1, f"offset {offset} of a control record is below -1")
        last = self.latest_offset
        ensure(last is None or offset > last, f"offset {offset} of a control record is not beyond {last}")
        self._entries.append((offset, value))
        self.latest_offset, self.latest = offset, value

    def truncate(self, end_offset: Offset, *, known_from: Offset = 0) -> None:
        """Forget what was recorded at or beyond `end_offset`.

        A first value that was in force before `known_from` stays: no earlier one was read.
        """
        first = self._entries[:1]
        while self._entries and self._entries[-1][0] >= end_offset:
            self._entries.pop()
        if first and not self._entries and first[0][0] < known_from:
            self._entries.append((end_offset - 1, first[0][1]))
        self.latest_offset, self.latest = self._entries[-1] if self._entries else (None, self.default)

    def forget_before(self, start_offset: Offset) -> None:
        """Forget all that is older than the value in force at `start_offset` - 1, where the log begins.

        A truncation of the record at `start_offset` brings it back, and the snapshot that ends there records it.
        """
        while len(self._entries) > 1 and self._entries[1][0] < start_offset:
            self._entries.pop(0)

    def clear(self) -> None:
        """Forget everything: a snapshot replaces the log."""
        self._entries.clear()
        self.latest_offset, self.latest = None, self.default


# --- majorities -------------------------------------------------------------------------------------------------------


def majority_offset(end_offsets: Iterable[Offset]) -> Offset:
    """Return the highest offset that a majority of voters has reached.

    `end_offsets` holds each voter's flushed log end offset, the leader's own included; -1 where it is not known.

    Source: KIP-595, "Fetch": fetch offsets advance the leader's high watermark.
    Raises: InvariantError, if there are no voters and hence no majority.
    """
    ordered = sorted(end_offsets, reverse=True)
    if not ordered:
        raise InvariantError("a quorum has at least one voter")
    # In descending order, n // 2 + 1 voters are at or above the element at n // 2: a majority, be n odd or even.
    return ordered[len(ordered) // 2]


@define
class Tally:
    """Votes of one election, by the voters at its start; each voter counts once, even if its vote is sent twice."""

    voters: VoterSet
    granted: set[ReplicaId] = attrs.field(factory=set)
    rejected: set[ReplicaId] = attrs.field(factory=set)

    def record(self, voter_id: ReplicaId, granted: bool) -> None:
        """Count the answer of a voter; its last one counts, and an answer of another replica does not."""
        if self.voters.get(voter_id) is None:
            return
        (self.granted if granted else self.rejected).add(voter_id)
        (self.rejected if granted else self.granted).discard(voter_id)

    @property
    def won(self) -> bool:
        """Whether a majority has granted."""
        return len(self.granted) >= self.voters.majority

    @property
    def lost(self) -> bool:
        """Whether a majority can no longer be reached."""
        return len(self.voters) - len(self.rejected) < self.voters.majority

    def unanswered(self) -> list[ReplicaId]:
        """Ids of the voters whose answer is still missing."""
        return [voter_id for voter_id in self.voters.ids if voter_id not in self.granted | self.rejected]
