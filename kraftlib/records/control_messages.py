"""The control records: the five messages with which KRaft writes about itself into logs and snapshots.

They have no framing of their own: the key of a control record says which one its value is, and every value begins with
its version. All current versions are 0; Kafka reads them as version 0 whatever the field says, so 0 is what we write.
"""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, int16, int32, int64, message, string, struct, uint16, uuid


@message(kind="data", versions="0-1", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class LeaderChangeMessage(Message):
    """The first record of every epoch: its leader, and the voters whose votes made it so (KIP-595).

    Version 1 is in the schemas since 3.9, but no release up to 4.3 writes it.
    """

    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: tuple[Voter, ...] = array("Voter", "0+")
    granting_voters: tuple[Voter, ...] = array("Voter", "0+")
    """Those whose vote had arrived when the majority was reached, the leader included."""

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Voter(Struct):
        """A voter of the epoch."""

        voter_id: int = int32("0+")
        voter_directory_id: UUID = uuid("1+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SnapshotHeaderRecord(Message):
    """The first record of every snapshot (KIP-630)."""

    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")
    """Append timestamp of the last batch that the snapshot covers, ms since 1970."""


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SnapshotFooterRecord(Message):
    """The last record of every snapshot: without it, the snapshot is not whole (KIP-630)."""

    version: int = int16("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class KRaftVersionRecord(Message):
    """The kraft.version from here on (KIP-853): 0 has static voters, 1 has them in VotersRecord."""

    version: int = int16("0+")
    kraft_version: int = int16("0+", name="KRaftVersion")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class VotersRecord(Message):
    """The voters from here on, committed or not (KIP-853)."""

    version: int = int16("0+")
    voters: tuple[Voter, ...] = array("Voter", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Voter(Struct):
        """A voter: replica and directory id, how to reach it, which kraft.version it can do."""

        voter_id: int = int32("0+")
        voter_directory_id: UUID = uuid("0+")
        endpoints: tuple[VotersRecord.Endpoint, ...] = array("Endpoint", "0+")
        kraft_version_feature: VotersRecord.KRaftVersionFeature = struct(
            "KRaftVersionFeature", "0+", name="KRaftVersionFeature"
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Endpoint(Struct):
        """One listener of a voter."""

        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class KRaftVersionFeature(Struct):
        """The range of kraft.version that a voter supports."""

        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")
