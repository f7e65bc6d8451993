"""Answers that say something else than their sender said.

The border is that of `forged_requests`. No replica could recognise these, so they are not forged: a vote that was
refused and is now granted, records that are others and fit, a high watermark or a read that is ahead, a divergence
above what is committed, a leader where none is known. Errors instead of success cost time, and nothing else.
"""

from __future__ import annotations

import random as chance
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Follower
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import CorruptBatchError
from kraftlib.records.batch import Batch, read_batches
from kraftlib.records.checksum import crc32c
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.types import ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftlib.wire.messages.describe_quorum import DescribeQuorumResponse
from kraftlib.wire.messages.election_priority import ElectionPriorityResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterResponse,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
)
from kraftlib.wire.messages.read_barrier import ReadBarrierResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashResponse
from kraftlib.wire.messages.state_digest import StateDigestResponse
from kraftlib.wire.messages.vote import VoteResponse
from tools.core_fuzz.forged_requests import STRANGE_DISK, STRANGER, knows_leader, misplaced, only, with_partition

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost

SPOILED: Final = b"#"
"""No snapshot has this byte: a file that has it does not verify."""

EPOCH_AT: Final = 12
"""Where the epoch stands in a batch; the base offset is at 0. Neither is under the checksum."""
CHECKED_FROM: Final = 21
"""From here on the checksum covers a batch. Its attributes stand here."""
COUNT_AT: Final = 57
"""Where the number of records stands in a batch."""

Bend = Callable[[chance.Random, "CoreHost", Any], Any]
"""Returns another answer for the one that asked; None where it would be beyond the border."""

ERRORS: Final = (
    ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.INVALID_VOTER_KEY, 999,
)  # fmt: skip
REFUSALS: Final = (
    ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INCONSISTENT_VOTER_SET, ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR, 999,
)  # fmt: skip


def _says_anything(message: Any) -> bool:
    topics = message.responses if hasattr(message, "responses") else message.topics
    return not message.error_code and len(topics) == 1 and len(topics[0].partitions) == 1


# --- what all of them have --------------------------------------------------------------------------------------------


def _fails(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """No answer at all, for one of the other reasons than a lost connection."""
    return random.choice((ev.Failure.UNSUPPORTED_VERSION, ev.Failure.AUTHENTICATION, ev.Failure.MALFORMED))


def _fails_but_is_known(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """The same of a question that every replica of ours knows."""
    return random.choice((ev.Failure.AUTHENTICATION, ev.Failure.MALFORMED))


def _refused(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    empty: dict[str, Any] = {"responses": ()} if hasattr(answer, "responses") else {"topics": ()}
    return attrs.evolve(answer, error_code=random.choice(REFUSALS), **(empty if random.random() < 0.7 else {}))


def _misplaced(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    return misplaced(random, answer) if _says_anything(answer) else None


def _with_an_error(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    return with_partition(answer, error_code=random.choice(ERRORS)) if _says_anything(answer) else None


def _leader_of(answer: Any) -> tuple[int, int]:
    partition = only(answer)
    leader = getattr(partition, "current_leader", partition)
    return leader.leader_id, leader.leader_epoch


def _with_leader(answer: Any, leader_id: int, epoch: int) -> Any:
    partition = only(answer)
    if not hasattr(partition, "current_leader"):
        return with_partition(answer, leader_id=leader_id, leader_epoch=epoch)
    leader = attrs.evolve(partition.current_leader, leader_id=leader_id, leader_epoch=epoch)
    return with_partition(answer, current_leader=leader)


def _of_an_older_epoch(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    if not _says_anything(answer):
        return None
    leader_id, _ = _leader_of(answer)
    return _with_leader(answer, leader_id, random.choice((-1, max(-1, host.running.epoch - 1))))


def _of_another_leader(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """Name another leader than the one that is known, or the one that asked, which would know."""
    if not _says_anything(answer):
        return None
    state = host.running.state
    if random.random() < 0.4:
        return _with_leader(answer, host.number, state.epoch + random.choice((0, 0, 1)))
    if not knows_leader(host, state.epoch):
        return None
    others = [number for number in (*host.world.hosts, STRANGER) if number != state.leader_id]
    return _with_leader(answer, random.choice(others), state.epoch)


def of_an_impossible_epoch(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    if not _says_anything(answer):
        return None
    most = host.running.state.config.epoch_jump_max
    return _with_leader(answer, random.choice((-1, STRANGER, host.number)), host.running.epoch + most + 1)


def _with_places_of_others(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """Say of other replicas, and of the leader with an impossible port, where they are."""
    if not _says_anything(answer):
        return None
    leader_id, _ = _leader_of(answer)
    kind = type(answer).NodeEndpoint
    nodes = (
        kind(node_id=STRANGER, host="nowhere", port=1),
        kind(node_id=leader_id, host="", port=1),
        kind(node_id=leader_id, host="nowhere", port=0),
    )
    return attrs.evolve(answer, node_endpoints=tuple(random.sample(nodes, 2)) + answer.node_endpoints)


# --- Vote -------------------------------------------------------------------------------------------------------------


def _not_granted(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    return with_partition(answer, vote_granted=False) if _says_anything(answer) else None


def _of_an_old_voter(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    return attrs.evolve(answer, error_code=ErrorCode.UNSUPPORTED_VERSION, topics=())


# --- Fetch ------------------------------------------------------------------------------------------------------------


def _batches(answer: Any) -> tuple[Batch, ...]:
    """Return the whole batches of an answer; none, if it is bent already."""
    if not _says_anything(answer):
        return ()
    try:
        return read_batches(bytes(only(answer).records or b""), drop_incomplete=True)
    except CorruptBatchError:
        return ()


def _joined(answer: Any, parts: list[bytes]) -> Any:
    return with_partition(answer, records=b"".join(parts))


def _with_records_bent(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """Leave a gap, go back, cut short, repeat, damage: the batches before that place may be taken, and no others."""
    batches = _batches(answer)
    if not batches:
        return None
    parts = [bytes(batch.data) for batch in batches]
    place = random.randrange(len(parts))
    part = parts[place]
    (base,) = struct.unpack_from(">q", part)
    match random.randrange(8):
        case 0:  # a gap
            parts[place] = struct.pack(">q", base + 1) + part[8:]
        case 1:
            parts[place] = struct.pack(">q", max(0, base - 1) if base else 1) + part[8:]
        case 2:  # an epoch that has not begun
            epoch = struct.pack(">i", host.running.epoch + random.choice((1, 2)))
            parts[place] = part[:EPOCH_AT] + epoch + part[EPOCH_AT + 4 :]
        case 3:
            at = random.randrange(CHECKED_FROM, len(part))
            parts[place] = part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]
        case 4:
            parts[-1] = parts[-1][: random.randrange(1, len(parts[-1]))]
        case 5:
            parts += parts
        case 6:
            parts.append(bytes(random.choice((5, 80))))
        case _ if len(parts) > 1:
            del parts[0]
        case _:
            return _begun_too_early(host, answer, parts, base)
    return _joined(answer, parts)


def _begun_too_early(host: CoreHost, answer: Any, parts: list[bytes], base: int) -> Any:
    """Records from below the end: the batch before comes once more."""
    own = [bytes(batch.data) for batch in host.store.batches if batch.end_offset == base]
    return _joined(answer, own + parts) if own else None


def _with_voters_that_do_not_meet(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A set of voters of whom two come or go at once: a majority of it need not meet one of the set in force."""
    core = host.running
    offset = core.state.log.voters.latest_offset
    is_followed = isinstance(core.state.role_state, Follower) and not host.store.is_damaged and not core.state.disk_full
    if not _says_anything(answer) or not is_followed or offset is None or offset < 0:
        return None
    voters = core.voters
    strangers = [Voter(key=ReplicaKey(STRANGER + n, STRANGE_DISK), endpoints={}, max_kraft_version=1) for n in (0, 1)]
    if len(voters) > 3 and random.random() < 0.5:
        changed = VoterSet.of(list(voters)[2:])
    else:
        changed = VoterSet.of(
            [*voters, *(attrs.evolve(one, endpoints=next(iter(voters)).endpoints) for one in strangers)]
        )
    base = core.state.log.end_offset
    batch = encode_control_batch([changed.to_record()], timestamp_ms=0, base_offset=base, epoch=core.epoch)
    host.world.count("voters that do not meet")
    return with_partition(answer, records=bytes(batch.data))


def _with_a_version_to_come(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A kraft.version that no release knows yet, or none ever will."""
    core = host.running
    is_followed = isinstance(core.state.role_state, Follower) and not host.store.is_damaged and not core.state.disk_full
    if not _says_anything(answer) or not is_followed:
        return None
    record = KRaftVersionRecord(kraft_version=random.choice((2, 2, -1)))
    base = core.state.log.end_offset
    batch = encode_control_batch([record], timestamp_ms=0, base_offset=base, epoch=core.epoch)
    host.world.count("kraft.version to come")
    return with_partition(answer, records=bytes(batch.data))


def from_a_leader_of_others(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """The first record of the epoch names other voters than the configured ones, whom the follower does not count."""
    core = host.running
    is_followed = isinstance(core.state.role_state, Follower) and not host.store.is_damaged and not core.state.disk_full
    ids = core.state.static_voters
    if not _says_anything(answer) or not is_followed or not ids:
        return None
    named = random.choice((ids[1:], (*ids, STRANGER), (*ids[1:], STRANGER)))
    voters = tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in named)
    record = LeaderChangeMessage(leader_id=core.state.leader_id or 0, voters=voters, granting_voters=())
    batch = encode_control_batch([record], timestamp_ms=0, base_offset=core.state.log.end_offset, epoch=core.epoch)
    host.world.count("leader of other voters")
    return with_partition(answer, records=bytes(batch.data))


def of_a_strange_header(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A sound batch that a log of Kafka's may hold, and that of a quorum may not.

    Its attributes say that it is transactional, that it has the time of its append, or that a control batch is
    compressed. Or its header counts fewer records than offsets.
    """
    batches = _batches(answer)
    if not batches:
        return None
    parts = [bytes(batch.data) for batch in batches]
    place = random.randrange(len(parts))
    covered = bytearray(parts[place][CHECKED_FROM:])
    if random.random() < 0.3:
        (count,) = struct.unpack_from(">i", covered, COUNT_AT - CHECKED_FROM)
        struct.pack_into(">i", covered, COUNT_AT - CHECKED_FROM, count - 1)
    else:
        bit = 0x01 if batches[place].is_control and random.random() < 0.5 else random.choice((0x08, 0x10, 0x40, 0x100))
        struct.pack_into(">h", covered, 0, struct.unpack_from(">h", covered)[0] | bit)
    checksum = struct.pack(">I", crc32c(bytes(covered)))
    parts[place] = parts[place][: CHECKED_FROM - len(checksum)] + checksum + bytes(covered)
    host.world.count("strange header")
    return _joined(answer, parts)


def of_no_use_to_a_repair(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """No batch that fills what is missing, or a part of one."""
    filling = host.running.state.filling
    if not _says_anything(answer) or not only(answer).records or filling is None or filling.is_writing:
        return None
    host.world.count("repair that gets nothing")
    records = bytes(only(answer).records)
    if random.random() < 0.6:
        return with_partition(answer, records=random.choice((b"", records[: random.randrange(1, 60)])))
    return _with_records_bent(random, host, answer)


def _of_an_epoch_that_falls(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    last = host.running.state.log.last_epoch
    if not _says_anything(answer) or not only(answer).records or last < 1 or host.store.is_damaged:
        return None
    records = bytes(only(answer).records)
    return with_partition(answer, records=records[:EPOCH_AT] + struct.pack(">i", last - 1) + records[EPOCH_AT + 4 :])


def of_an_epoch_that_falls_later(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """The last batch is of an older epoch than the one before it, and not than the log of the one that asks."""
    batches = _batches(answer)
    if host.store.is_damaged or len(batches) < 2 or batches[-2].epoch <= host.running.state.log.last_epoch:
        return None
    host.world.count("epoch that falls in an answer")
    *parts, last = [bytes(batch.data) for batch in batches]
    epoch = struct.pack(">i", batches[-2].epoch - 1)
    return _joined(answer, [*parts, last[:EPOCH_AT] + epoch + last[EPOCH_AT + 4 :]])


def _with_less_committed(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    if not _says_anything(answer):
        return None
    known = only(answer).high_watermark
    return with_partition(answer, high_watermark=random.choice((-1, min(0, known), random.randint(-1, max(-1, known)))))


def _diverging_where_it_cannot(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A divergence below what is committed, or one that is none."""
    if not _says_anything(answer) or not isinstance(host.running.state.role_state, Follower):
        return None
    state = host.running.state
    below = FetchResponse.EpochEndOffset(epoch=0, end_offset=random.randint(0, max(0, state.committed_offset - 1)))
    log = state.log
    beyond = FetchResponse.EpochEndOffset(epoch=log.last_epoch, end_offset=log.end_offset + random.choice((0, 1, 50)))
    is_below = state.committed_offset > 0 and not host.store.is_damaged and random.random() < 0.6
    return with_partition(answer, diverging_epoch=below if is_below else beyond, records=b"")


def _diverging_at_one_that_led(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A divergence below what it has committed as a leader, while it knows no other high watermark."""
    if host.running.state.high_watermark is not None or not host.running.state.committed_offset:
        return None
    return _diverging_where_it_cannot(random, host, answer)


def _of_an_impossible_snapshot(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A snapshot that ends nowhere, an old one, or one that no replica has."""
    if not _says_anything(answer) or host.store.is_damaged:
        return None
    state = host.running.state
    end = min(state.committed_offset, state.log.end_offset)
    named = [(0, 0), (-1, 3), (5, -1), (0, 1)]
    if end > 1:
        named += [(random.randrange(1, end), 1)] * 3
    named.append((state.log.end_offset + 1_000_000, state.epoch))
    offset, epoch = random.choice(named)
    return with_partition(answer, snapshot_id=FetchResponse.SnapshotId(end_offset=offset, epoch=epoch), records=b"")


# --- FetchSnapshot and SnapshotHash -----------------------------------------------------------------------------------


def of_another_place(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A piece that is not the next one: its number says so, and perhaps its bytes are those."""
    if not _says_anything(answer):
        return None
    return with_partition(answer, position=max(0, only(answer).position + random.choice((-10, -1, 1, 10))))


def of_another_size(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A piece of a file that is longer or shorter than was said, or will be: but never the last one of a shorter file,
    which does not verify."""
    if not _says_anything(answer):
        return None
    piece = only(answer)
    least = piece.position + len(bytes(piece.unaligned_records)) + 1
    return with_partition(answer, size=max(least, piece.size + random.choice((-1_000, -10, -1, 1, 10, 1_000))))


def of_another_piece(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """A piece of another snapshot, or one that is empty, too long or spoiled; or none."""
    if not _says_anything(answer):
        return None
    piece = only(answer)
    known, data = piece.snapshot_id, bytes(piece.unaligned_records)
    bent: list[dict[str, Any]] = [
        {"snapshot_id": attrs.evolve(known, end_offset=known.end_offset + random.choice((-1, 1)))},
        {"snapshot_id": attrs.evolve(known, epoch=known.epoch + 1)},
        {"size": random.choice((-1, 0, piece.position, piece.position + max(0, len(data) - 1)))},
        {"unaligned_records": b""},
        {"unaligned_records": data + b"0" * (piece.size + 1)},
        {"unaligned_records": data + b"0" * max(0, piece.size - piece.position - len(data) + 1)},
        {"unaligned_records": SPOILED * len(data)},
        {"error_code": random.choice((ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE))},
    ]
    return with_partition(answer, **random.choice(bent))


def _of_another_file(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    changes = random.choice(({"digest": b"x" * 32}, {"digest": b""}, {"size": answer.size + 1}, {"error_code": 98}))
    return attrs.evolve(answer, **changes)


# --- the others -------------------------------------------------------------------------------------------------------


def _error(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    codes = (*ERRORS, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return attrs.evolve(answer, error_code=random.choice(codes))


def _of_no_epoch(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """An Update that is answered for another leader or epoch."""
    epoch, known = host.running.epoch, host.running.state.leader_id
    if known is None:
        return None
    others = [number for number in (*host.world.hosts, STRANGER) if number != known]
    said = random.choice(((known, epoch - 1), (-1, -1), (random.choice(others), epoch)))
    leader = attrs.evolve(answer.current_leader, leader_id=said[0], leader_epoch=said[1])
    return attrs.evolve(answer, current_leader=leader)


def _read_from_nowhere(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    return attrs.evolve(answer, offset=-1)


def _of_other_features(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    feature = ApiVersionsResponse.SupportedFeatureKey
    low, high = random.choice(((0, 0), (2, 3), (2, 2), (1, 1)))
    row = feature(name="kraft.version", min_version=low, max_version=high)
    features = () if random.random() < 0.2 else (row,)
    return attrs.evolve(answer, supported_features=features)


def _described_by_another(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    if not _says_anything(answer):
        return None
    rows = only(answer).current_voters
    return with_partition(
        answer, **random.choice(({"leader_epoch": host.running.epoch - 1}, {"current_voters": rows[1:]}))
    )


def _of_other_states(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """Say nothing of the own state, or what no state can be."""
    row = StateDigestResponse.Digest(offset=random.choice((-1, 1)), snapshot_version=0, sha256=b"short")
    return attrs.evolve(answer, digests=random.choice(((), (row,), (*answer.digests, row))))


def _with_another_snapshot(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """Offer a snapshot that no replica has, or that is from before the state was found to be wrong."""
    log = host.running.state.log
    offset = random.choice((0, 1, log.start_offset, log.end_offset, log.end_offset + 1_000_000))
    named = StateDigestResponse.SnapshotId(end_offset=offset, epoch=random.choice((0, host.running.epoch)))
    return attrs.evolve(answer, snapshot_id=named)


COMMON: Final[tuple[Bend, ...]] = (
    _refused, _misplaced, _with_an_error, _of_an_older_epoch, _of_another_leader, of_an_impossible_epoch, _fails,
)  # fmt: skip


def _fetched_at_another_time(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """The voter of the id of the one that asks has fetched since, or says so less than before."""
    if not _says_anything(answer):
        return None
    later = random.choice((1, 1, 5, -1))
    rows = tuple(
        attrs.evolve(row, last_fetch_timestamp=row.last_fetch_timestamp + later)
        if row.replica_id == host.number
        else row
        for row in only(answer).current_voters
    )
    return with_partition(answer, current_voters=rows)


def _fetched_amid_silence(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """The voter of the id of the one that asks has fetched since, and was silent before: its silence begins anew."""
    role = host.running.state.role_state
    if not isinstance(role, Follower) or not role.predecessor_silence:
        return None
    host.world.count("silence that is broken")
    return _fetched_at_another_time(random, host, answer)


BENDS: Final[Mapping[type, tuple[Bend, ...]]] = {
    VoteResponse: (*COMMON, _with_places_of_others, _not_granted, _of_an_old_voter),
    BeginQuorumEpochResponse: (*COMMON, _with_places_of_others),
    EndQuorumEpochResponse: (*COMMON, _with_places_of_others),
    FetchResponse: (
        *COMMON, _with_places_of_others, _with_records_bent, _with_records_bent, _with_records_bent,
        _with_a_version_to_come, from_a_leader_of_others, _of_an_epoch_that_falls, _with_less_committed,
        _diverging_where_it_cannot, _of_an_impossible_snapshot,
    ),
    FetchSnapshotResponse: (
        *COMMON, _with_places_of_others, of_another_piece, of_another_piece, of_another_place, of_another_size,
    ),
    SnapshotHashResponse: (_fails, _of_another_file),
    AddRaftVoterResponse: (_error, _fails),
    RemoveRaftVoterResponse: (_error, _fails),
    UpdateRaftVoterResponse: (_error, _fails, _of_no_epoch),
    ReadBarrierResponse: (_error, _fails, _read_from_nowhere),
    ElectionPriorityResponse: (_error, _fails),
    StateDigestResponse: (_error, _fails, _of_other_states, _with_another_snapshot),
    DescribeQuorumResponse: (
        _misplaced, _described_by_another, _with_an_error, _fails, _fetched_at_another_time, _fetched_at_another_time,
    ),
    ApiVersionsResponse: (_error, _fails_but_is_known, _of_other_features),
}  # fmt: skip
"""The changes of each answer."""

AIMED: Final[Mapping[type, tuple[Bend, ...]]] = {
    FetchSnapshotResponse: (of_another_place, of_another_size, of_another_piece),
    SnapshotHashResponse: (_of_another_file, _fails),
    DescribeQuorumResponse: (_fetched_amid_silence,),
    FetchResponse: (
        _diverging_at_one_that_led,
        _with_voters_that_do_not_meet,
        _with_a_version_to_come,
        from_a_leader_of_others,
        of_an_epoch_that_falls_later,
        of_an_epoch_that_falls_later,
    ),
    ApiVersionsResponse: (_of_other_features,),
}
"""The changes of the answers to questions that few replicas ask."""
