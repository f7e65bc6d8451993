"""Sends a sample of the simulated messages through the real wire codec, so that the two can never part.

Most messages travel as objects, which is many times faster. One in so many is written in a version that both sides
speak, read back, and delivered as it came out.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlib.codec import declared
from kraftlib.codec.declarations import Struct, declared_fields
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest

Message = Any

OLDEST: Final[Mapping[type, int]] = {
    FetchRequest: 17,  # the first with directory ids
    FetchSnapshotRequest: 1,
    VoteRequest: 2,  # the first with the pre-vote
    BeginQuorumEpochRequest: 1,
    EndQuorumEpochRequest: 1,
    ApiVersionsRequest: 3,
    AddRaftVoterRequest: 1,
    RemoveRaftVoterRequest: 0,
    UpdateRaftVoterRequest: 0,
}
"""The versions from which on a message says everything that a quorum of today says to itself."""


OLD: Final[Mapping[type, int]] = {
    FetchRequest: 17,
    FetchSnapshotRequest: 1,
    VoteRequest: 1,
    BeginQuorumEpochRequest: 1,
    EndQuorumEpochRequest: 1,
    AddRaftVoterRequest: 0,
}
"""The newest versions that a replica of Kafka 3.9 knows, where there are newer ones."""

FIRST_PRIVATE: Final = 30_000


def speaks_old(message: Message) -> bool:
    """Whether a replica of Kafka 3.9 could be asked this.

    It knows no pre-vote, adds a voter only with an answer when that is committed, and nothing that is ours alone.
    """
    if isinstance(message, VoteRequest):
        return not message.topics[0].partitions[0].pre_vote
    if isinstance(message, AddRaftVoterRequest):
        return message.ack_when_committed
    return bool(message.api_key < FIRST_PRIVATE)


class Recoder:
    """Picks one message in `one_in` (0: none) and a version for it."""

    def __init__(self, random: chance.Random, *, one_in: int, complain: Callable[[str], None]) -> None:
        self.one_in = one_in
        self.recoded = 0
        self._random = random
        self._complain = complain

    def request(self, message: Message, *, old: bool = False) -> tuple[Message, int]:
        """Return a request as it arrives, and the version in which it was sent; `old`: to or from an older release."""
        kind = type(message)
        newest: int = kind.valid_versions.last
        if old and OLD.get(kind, newest) < newest:
            return self._through_bytes(message, OLD[kind]), OLD[kind]
        if not self.one_in or self._random.random() * self.one_in >= 1.0:
            return message, newest
        version = self._random.randint(min(OLDEST.get(kind, newest), newest), newest)
        return self._through_bytes(message, version), version

    def response(self, message: Message, version: int) -> Message:
        """Return the response to a request of `version` as it arrives."""
        if version == type(message).valid_versions.last and (
            not self.one_in or self._random.random() * self.one_in >= 1.0
        ):
            return message
        return self._through_bytes(message, version)

    def _through_bytes(self, message: Message, version: int) -> Message:
        self.recoded += 1
        data = declared.write(message, version)
        copy = declared.read(type(message), data, version, expect_end=True)
        if declared.write(copy, version) != data:
            self._complain(f"{message!r} in version {version} came back as {copy!r}")
        if version == type(message).valid_versions.last and not same(message, copy, version):
            self._complain(f"{message!r} came back as {copy!r}")
        return copy


def same(a: object, b: object, version: int) -> bool:
    """Whether two values say the same in this version, which may lack some of their fields."""
    if isinstance(a, Struct) and isinstance(b, Struct):
        return type(a) is type(b) and all(
            same(getattr(a, name), getattr(b, name), version)
            for name, declaration, _ in declared_fields(type(a))
            if version in declaration.versions
        )
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(left, right, version) for left, right in zip(a, b, strict=True))
    return a == b
