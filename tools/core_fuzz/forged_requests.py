"""Requests that were never sent, as a liar or a misconfigured replica would send them.

Most are requests that were sent once, with something in them changed; a few are made up. Their answers are dropped.
Raft does not survive a peer that lies about what only it can know, so there is a border. Not forged is:

* a vote that binds, with a log end that its asker does not have, or of an epoch in which it never was, where the
  receiver has that vote to give;
* a pre-vote of an epoch that has not begun. Its receiver would adopt that, and an observer that is ahead of all voters
  is served by no leader before the next election (KIP-595, Fetch: UNKNOWN_LEADER_EPOCH);
* a Fetch in the name of a voter from another place than the end of its log. A stranger may ask from anywhere;
* a leader of an epoch in which the receiver knows of none yet, or of a newer epoch;
* a change of a voter's address, and the addition of a disk that is no more;
* another state of more voters than one: a majority is believed of what it says of itself.

A receiver could recognise none of these. All others it refuses, or it may do as it is told: no promise hangs on it.
The full simulator asks another question with fewer requests, of which each has one right answer: `testing.impossible`.
"""

from __future__ import annotations

import random as chance
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.types import ZERO_UUID, ReplicaId
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from kraftlib.wire.messages.vote import VoteRequest

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost

STRANGER: Final[ReplicaId] = 77
"""An id that no replica has."""

STRANGE_DISK: Final = uuid.UUID(int=8_000_001)
STRANGE_NEW_DISK: Final = uuid.UUID(int=7_000_001)
"""The disk of a voter that is to be added; no Fetch ever bears its name."""

VOTERS_TAG: Final = 10_000

Bend = Callable[[chance.Random, "CoreHost", Any], Any]
"""Returns another message for this receiver; None where it would be beyond the border."""


def only(message: Any) -> Any:
    """Return the one partition of a message."""
    return topics_of(message)[0].partitions[0]


def topics_of(message: Any) -> Any:
    """Return the topics of a request or answer."""
    return message.responses if hasattr(message, "responses") else message.topics


def with_topics(message: Any, topics: tuple[Any, ...]) -> Any:
    """Return the message with other topics."""
    return attrs.evolve(message, **{"responses" if hasattr(message, "responses") else "topics": topics})


def with_partition(message: Any, **changes: Any) -> Any:
    """Return the message with something else in its one partition."""
    topic = topics_of(message)[0]
    partition = attrs.evolve(topic.partitions[0], **changes)
    return with_topics(message, (attrs.evolve(topic, partitions=(partition,)),))


def misplaced(random: chance.Random, message: Any) -> Any:
    """Return the message for another partition, for two of them, or for none."""
    topic = topics_of(message)[0]
    partition = topic.partitions[0]
    index = next(name for name in ("partition_index", "partition", "index") if hasattr(partition, name))
    name = next(name for name in ("topic_id", "topic_name", "name") if getattr(topic, name, None))
    other: Any = uuid.UUID(int=2) if name == "topic_id" else "another"
    topics = random.choice(
        (
            (),
            (topic, topic),
            (attrs.evolve(topic, partitions=()),),
            (attrs.evolve(topic, partitions=(partition, partition)),),
            (attrs.evolve(topic, partitions=(attrs.evolve(partition, **{index: 1}),)),),
            (attrs.evolve(topic, **{name: other}),),
        )
    )
    return with_topics(message, topics)


def knows_leader(host: CoreHost, epoch: int) -> bool:
    """Whether a replica knows the leader of this epoch, so that it can recognise another one."""
    state = host.running.state
    return state.epoch == epoch and state.leader_id is not None


# --- what all of them have --------------------------------------------------------------------------------------------


def _of_another_cluster(random: chance.Random, host: CoreHost, request: Any) -> Any:
    return attrs.evolve(request, cluster_id=random.choice(("another", "", None)))


def _misplaced(random: chance.Random, host: CoreHost, request: Any) -> Any:
    return misplaced(random, request)


def _of_other_voters(random: chance.Random, host: CoreHost, request: Any) -> Any:
    said = random.choice((b"", b"\0\0\0\x09", b"\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x4d"))
    return attrs.evolve(request, unknown_tagged_fields=((VOTERS_TAG, said),))


# --- elections --------------------------------------------------------------------------------------------------------


def _meant_for_another(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Name the receiver with another disk or none, another replica, or none."""
    own = host.key
    voter_id, disk = random.choice(
        (
            (own.id, STRANGE_DISK),
            (own.id, ZERO_UUID),
            (own.id + 1, own.directory_id or ZERO_UUID),
            (0, ZERO_UUID),
            (-1, STRANGE_DISK),
        )
    )
    return with_partition(attrs.evolve(request, voter_id=voter_id), voter_directory_id=disk)


def _under_our_own_id(random: chance.Random, host: CoreHost, request: Any) -> Any:
    disk = random.choice((host.key.directory_id or ZERO_UUID, STRANGE_DISK, ZERO_UUID))
    pre_vote = only(request).pre_vote or random.random() < 0.5
    return with_partition(request, replica_id=host.number, replica_directory_id=disk, pre_vote=pre_vote)


def _of_an_impossible_log(random: chance.Random, host: CoreHost, request: Any) -> Any:
    asked = only(request)
    newest = asked.replica_epoch - (0 if asked.pre_vote else 1)
    changes = random.choice(({"last_offset": -1}, {"last_offset_epoch": -1}, {"last_offset_epoch": newest + 1}))
    return with_partition(request, **changes)


def _of_a_shorter_log(random: chance.Random, host: CoreHost, request: Any) -> Any:
    asked = only(request)
    epoch = random.choice((asked.last_offset_epoch, max(0, asked.last_offset_epoch - 1)))
    return with_partition(request, last_offset_epoch=epoch, last_offset=random.randint(0, asked.last_offset))


def _pre_vote_of_any_log(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """A pre-vote binds nothing, in any name and with any log."""
    own, asked = host.running.state.log.end, only(request)
    replica_epoch = max(host.running.epoch, asked.replica_epoch)
    return with_partition(
        request,
        pre_vote=True,
        replica_epoch=replica_epoch,
        last_offset_epoch=min(max(0, own.epoch + random.choice((-1, 0, 0, 1))), replica_epoch),
        last_offset=max(0, own.offset + random.choice((-1, 0, 1))),
    )


def binding_or_not(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Ask for the other kind of vote, with the same log in the same epoch: its answer is not counted."""
    asked = only(request)
    return with_partition(request, pre_vote=not asked.pre_vote)


def pre_vote_of_now(host: CoreHost, request: Any) -> Any:
    """Ask for a pre-vote in the epoch that the receiver is in, or a newer one: it binds nothing."""
    return with_partition(request, pre_vote=True, replica_epoch=max(host.running.epoch, only(request).replica_epoch))


def _of_another_epoch(name: str) -> Bend:
    def bend(random: chance.Random, host: CoreHost, request: Any) -> Any:
        """An epoch that is over, or one so far ahead that no replica believes it."""
        epoch, most = host.running.epoch, host.running.state.config.epoch_jump_max
        return with_partition(request, **{name: random.choice((0, max(0, epoch - 1), -1, epoch + most + 1))})

    return bend


def _of_nobody(name: str) -> Bend:
    def bend(random: chance.Random, host: CoreHost, request: Any) -> Any:
        return with_partition(request, **{name: -1})

    return bend


def _of_another_leader(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Another leader of an epoch whose leader is known; or the receiver itself, which knows best."""
    state = host.running.state
    if random.random() < 0.4:
        epoch = state.epoch + random.choice((0, 0, 1))
        return with_partition(request, leader_id=host.number, leader_epoch=epoch)
    if state.leader_id is None:
        return None
    others = [number for number in (*host.world.hosts, STRANGER) if number != state.leader_id]
    return with_partition(request, leader_id=random.choice(others), leader_epoch=state.epoch)


def _with_listeners_named_otherwise(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Say the same places in another way: names of listeners are written in either case, and there may be more."""
    known, kind = request.leader_endpoints, type(request).LeaderEndpoint
    if not known:
        return None
    lower = tuple(attrs.evolve(place, name=place.name.lower()) for place in known)
    more = (
        kind(name="OTHER", host="elsewhere", port=1),
        kind(name="NONE", host="", port=1),
        kind(name="NIL", host="h"),
    )
    return attrs.evolve(request, leader_endpoints=random.choice((lower, (*known, *more), (*more[1:], *lower))))


def with_other_successors(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Name other successors."""
    asked = only(request)
    known = asked.preferred_candidates
    own = EndQuorumEpochRequest.ReplicaInfo(
        candidate_id=host.number,
        candidate_directory_id=random.choice((host.key.directory_id or ZERO_UUID, STRANGE_DISK, ZERO_UUID)),
    )
    if random.random() < 0.3:
        ids = random.sample(sorted(host.world.hosts), random.randint(0, len(host.world.hosts)))
        return with_partition(request, preferred_candidates=(), preferred_successors=tuple(ids))
    strangers = tuple(
        EndQuorumEpochRequest.ReplicaInfo(candidate_id=STRANGER + number, candidate_directory_id=STRANGE_DISK)
        for number in range(random.randint(1, 3))
    )
    lists = ((), known[::-1], (*known, own), (own, *known), strangers, (*strangers, own))
    return with_partition(request, preferred_candidates=random.choice(lists))


# --- replication ------------------------------------------------------------------------------------------------------


def _fetch_of_a_stranger(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """A position at which no replica is, in the name of none, of a stranger or of the receiver."""
    log, asked = host.running.state.log, only(request)
    replica_id = random.choice((-1, STRANGER, host.number))
    starts = [start.start_offset for start in log.epoch_starts] or [0]
    offset = random.choice(
        (0, asked.fetch_offset, random.randint(0, log.end_offset), random.choice(starts), log.end_offset + 5)
    )
    offset = max(0, offset + random.choice((-1, 0, 0, 1)))
    epoch = min(
        host.running.epoch,
        max(0, random.choice((log.epoch_before(min(offset, log.end_offset)), asked.last_fetched_epoch, 0))),
    )
    old, new = random.choice(((-1, replica_id), (replica_id, -1), (replica_id, replica_id)))  # versions before 15: old
    request = attrs.evolve(request, replica_id=old, replica_state=FetchRequest.ReplicaState(replica_id=new))
    return with_partition(
        request,
        current_leader_epoch=host.running.epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        replica_directory_id=random.choice((ZERO_UUID, STRANGE_DISK)),
    )


def _fetch_at_the_start_of_the_log(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """A log that ends where the receiver's begins, with a record of another epoch."""
    log = host.running.state.log
    if not log.start_offset:
        return None
    epoch = random.randint(max(0, log.epoch_before(log.start_offset) - 1), max(0, host.running.epoch))
    request = attrs.evolve(request, replica_id=-1, replica_state=FetchRequest.ReplicaState(replica_id=STRANGER))
    return with_partition(
        request,
        current_leader_epoch=host.running.epoch,
        fetch_offset=log.start_offset,
        last_fetched_epoch=epoch,
        replica_directory_id=STRANGE_DISK,
    )


def fetch_without_a_disk(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """A Fetch at the end of the log of a voter whose disk is known, which does not say it: it counts for no voter."""
    core = host.running
    voters = [voter.key.id for voter in core.voters.others(core.key) if voter.key.directory_id is not None]
    if not voters:
        return None
    state = FetchRequest.ReplicaState(replica_id=random.choice(voters))
    return with_partition(
        attrs.evolve(request, replica_id=-1, replica_state=state),
        current_leader_epoch=core.epoch,
        fetch_offset=core.state.log.end_offset,
        last_fetched_epoch=core.state.log.last_epoch,
        replica_directory_id=ZERO_UUID,
    )


def _impossible_fetch(random: chance.Random, host: CoreHost, request: Any) -> Any:
    if random.random() < 0.25:
        return attrs.evolve(request, max_wait_ms=-1)
    asked = only(request)
    epoch = asked.current_leader_epoch + 1
    changes = random.choice(({"fetch_offset": -1}, {"last_fetched_epoch": -1}, {"last_fetched_epoch": epoch}))
    return with_partition(request, **changes)


def _fetch_of_another_size(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """The limit that a full disk names, or none, or far too much; and some high watermark."""
    request = attrs.evolve(request, max_bytes=random.choice((-1, 0, 1, 2, 2**31 - 1)))
    request = attrs.evolve(request, max_wait_ms=random.choice((0, 1, request.max_wait_ms, 5_000, 2**31 - 1)))
    return with_partition(request, high_watermark=random.choice((-1, 0, only(request).high_watermark, 2**60)))


def _of_a_near_epoch(random: chance.Random, host: CoreHost, request: Any) -> Any:
    epoch = host.running.epoch + random.choice((-1, 1, 2, 1_000_000))
    return with_partition(request, current_leader_epoch=epoch)


def of_another_snapshot(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Ask for a piece of a snapshot that is here, or is not, from any place."""
    known = only(request).snapshot_id
    kept = [(snapshot.offset, snapshot.epoch) for snapshot in host.running.state.log.snapshots]
    here = random.choice([*kept, (known.end_offset, known.epoch)])
    named = random.choice(((known.end_offset, known.epoch + 1), (here[0] + 1, here[1]), (0, 0), here, here, here))
    snapshot_id = attrs.evolve(known, end_offset=named[0], epoch=named[1])
    request = with_partition(request, snapshot_id=snapshot_id, position=random.choice((-1, 0, 5, 10, 1_000_000)))
    if random.random() < 0.7:
        request = with_partition(request, current_leader_epoch=host.running.epoch)
    replica_id = random.choice((-1, STRANGER, request.replica_id))
    return attrs.evolve(request, replica_id=replica_id, max_bytes=random.choice((-1, 0, 1, 2**31 - 1)))


def of_another_hash(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Ask for the bytes of a snapshot that is here, or is not, up to any place."""
    kept = random.choice([*host.running.state.log.snapshots] or [None])
    offset, epoch = (request.end_offset, request.epoch) if kept is None else (kept.offset, kept.epoch)
    epoch = random.choice((epoch, epoch, epoch + 1))
    return attrs.evolve(request, end_offset=offset, epoch=epoch, position=random.choice((-1, 0, 1, 10, 10_000)))


# --- membership -------------------------------------------------------------------------------------------------------


def _of_an_impossible_voter(random: chance.Random, host: CoreHost, request: Any) -> Any:
    return attrs.evolve(request, **random.choice(({"voter_id": -1}, {"voter_directory_id": ZERO_UUID})))


def _of_another_voter(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """A voter with a disk that it does not have, or one that does not exist."""
    voter_id = random.choice((request.voter_id, host.number, STRANGER, *host.running.voters.ids))
    return attrs.evolve(request, voter_id=voter_id, voter_directory_id=STRANGE_NEW_DISK)


def _of_impossible_listeners(random: chance.Random, host: CoreHost, request: Any) -> Any:
    listeners = request.listeners
    one = listeners[0]
    many = tuple(attrs.evolve(one, name=f"L{number}") for number in range(16))
    bent = random.choice(
        (
            (),
            (attrs.evolve(one, name="OTHER"),),
            (attrs.evolve(one, port=0),),
            (attrs.evolve(one, host=""),),
            (attrs.evolve(one, host="h" * 256),),
            (*listeners, *many),
        )
    )
    return attrs.evolve(request, listeners=bent)


def of_more_listeners(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Say one more place where a voter is reached."""
    other = attrs.evolve(request.listeners[0], name="OTHER", host="h" * random.choice((1, 255)), port=65_535)
    return attrs.evolve(request, listeners=(*request.listeners, other))


def _of_other_versions(random: chance.Random, host: CoreHost, request: Any) -> Any:
    low, high = random.choice(((1, 0), (-1, 1), (-1, -1), (2, 3), (0, 0), (1, 1), (0, 2)))
    feature = UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=low, max_supported_version=high)
    return attrs.evolve(request, kraft_version_feature=feature)


def _of_an_epoch_nearby(name: str) -> Bend:
    def bend(random: chance.Random, host: CoreHost, request: Any) -> Any:
        return attrs.evolve(request, **{name: host.running.epoch + random.choice((-1, 1))})

    return bend


def _of_another_priority(random: chance.Random, host: CoreHost, request: Any) -> Any:
    return attrs.evolve(request, priority=random.choice((-1, 0, 1, 50, 100, 101, 127)))


def of_another_timeout(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Wait for another time, or none."""
    return attrs.evolve(request, timeout_ms=random.choice((-5, 0, 1, 2**31 - 1)))


def of_other_states(random: chance.Random, host: CoreHost, request: Any) -> Any:
    """Say of a stranger, of no replica, or of the one replica that is lied about, that its state is another one."""
    states, log = host.world.states, host.running.state.log
    known = [*host.running.state.digests.own, log.end_offset, random.randint(0, log.end_offset)]
    offsets = random.sample(known, random.randint(0, min(3, len(known))))
    rows = [StateDigestRequest.Digest(offset=one, snapshot_version=0, sha256=states.lie_at(one)) for one in offsets]
    impossible = (
        StateDigestRequest.Digest(offset=-1, snapshot_version=0, sha256=states.lie_at(0)),
        StateDigestRequest.Digest(offset=log.end_offset + 1, snapshot_version=0, sha256=b"short"),
    )
    snapshot_from = random.choice((-1, 0, 1, *known, log.end_offset + 1))
    return attrs.evolve(
        request,
        replica_id=random.choice((-1, STRANGER, host.number, states.liar, states.liar)),
        snapshot_from=snapshot_from,
        digests=(*rows, *random.sample(impossible, random.randint(0, 2))),
    )


COMMON: Final = (_of_another_cluster, _misplaced)
BENDS: Final[Mapping[type, tuple[Bend, ...]]] = {
    VoteRequest: (
        *COMMON, _of_other_voters, _meant_for_another, _under_our_own_id, _of_an_impossible_log, _of_a_shorter_log,
        _pre_vote_of_any_log, _pre_vote_of_any_log, binding_or_not, _of_another_epoch("replica_epoch"),
        _of_nobody("replica_id"),
    ),
    BeginQuorumEpochRequest: (
        *COMMON, _of_other_voters, _with_listeners_named_otherwise, _meant_for_another, _of_another_leader,
        _of_another_leader, _of_another_epoch("leader_epoch"), _of_nobody("leader_id"),
    ),
    EndQuorumEpochRequest: (
        *COMMON, _of_another_leader, with_other_successors, _of_another_epoch("leader_epoch"),
        _of_nobody("leader_id"),
    ),
    FetchRequest: (
        *COMMON, _of_other_voters, _fetch_of_a_stranger, _fetch_of_a_stranger, _fetch_of_a_stranger,
        _fetch_at_the_start_of_the_log, fetch_without_a_disk, fetch_without_a_disk, _impossible_fetch,
        _fetch_of_another_size, _of_a_near_epoch,
    ),
    FetchSnapshotRequest: (
        *COMMON, _of_a_near_epoch, of_another_snapshot, of_another_snapshot,
    ),
    SnapshotHashRequest: (_of_another_cluster, of_another_hash, of_another_hash),
    AddRaftVoterRequest: (
        _of_another_cluster, _of_an_impossible_voter, _of_another_voter, _of_impossible_listeners,
    ),
    RemoveRaftVoterRequest: (_of_another_cluster, _of_an_impossible_voter, _of_another_voter),
    UpdateRaftVoterRequest: (
        _of_another_cluster, _of_an_impossible_voter, _of_another_voter, _of_impossible_listeners, of_more_listeners,
        _of_other_versions, _of_other_versions, _of_an_epoch_nearby("current_leader_epoch"),
    ),
    ElectionPriorityRequest: (
        _of_another_cluster, _of_an_impossible_voter, _of_another_voter, _of_another_priority,
        _of_an_epoch_nearby("leader_epoch"),
    ),
    ReadBarrierRequest: (_of_another_cluster, of_another_timeout),
    StateDigestRequest: (_of_another_cluster, of_other_states, of_other_states),
    DescribeQuorumRequest: (_misplaced,),
}  # fmt: skip
"""The changes of each request."""
