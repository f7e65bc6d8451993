"""AddRaftVoter (80), RemoveRaftVoter (81), UpdateRaftVoter (82): the quorum changes while it runs (KIP-853).

Add version 1 (KIP-1186) may be answered before the change is committed.
"""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int16, int32, message, string, struct, uint16, uuid
from kraftlib.wire.bounds import LISTENERS


@message(kind="request", api_key=80, versions="0-1", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AddRaftVoterRequest(Message):
    """Makes an observer a voter."""

    cluster_id: str | None = string("0+", nullable="0+")
    timeout_ms: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    listeners: tuple[Listener, ...] = array("Listener", "0+", most=LISTENERS)
    ack_when_committed: bool = boolean("1+", default=True)
    """Whether to answer only once the change is committed."""

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Listener(Struct):
        """One listener of the new voter."""

        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")


@message(kind="response", api_key=80, versions="0-1", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AddRaftVoterResponse(Message):
    """Done, or why not."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)


@message(kind="request", api_key=81, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RemoveRaftVoterRequest(Message):
    """Makes a voter an observer."""

    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")


@message(kind="response", api_key=81, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RemoveRaftVoterResponse(Message):
    """Done, or why not."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)


@message(kind="request", api_key=82, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UpdateRaftVoterRequest(Message):
    """A voter says where it is reached and which kraft.version it supports."""

    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    listeners: tuple[Listener, ...] = array("Listener", "0+", most=LISTENERS)
    kraft_version_feature: KRaftVersionFeature = struct("KRaftVersionFeature", "0+", name="KRaftVersionFeature")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Listener(Struct):
        """One listener of the voter."""

        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class KRaftVersionFeature(Struct):
        """The range of kraft.version that the voter supports."""

        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")


@message(kind="response", api_key=82, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UpdateRaftVoterResponse(Message):
    """Done, or who the leader is. It has one error code, at the top."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    current_leader: CurrentLeader = struct("CurrentLeader", "0+", tag=0)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CurrentLeader(Struct):
        """The leader and where it is reached. Here the port has 32 bits."""

        leader_id: int = int32("0+", default=-1)
        leader_epoch: int = int32("0+", default=-1)
        host: str = string("0+")
        port: int = int32("0+")
