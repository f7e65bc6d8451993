"""Requests that are like none that was sent before: the other half of `forged_requests`, with the same border."""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, Any, Final

from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Epoch, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.core_fuzz.forged_requests import (
    BENDS,
    STRANGE_DISK,
    STRANGER,
    misplaced,
    of_another_hash,
    of_another_snapshot,
    of_another_timeout,
    of_more_listeners,
    of_other_states,
    with_other_successors,
)

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost


def _end_of_the_known_leader(random: chance.Random, host: CoreHost) -> Any:
    state = host.running.state
    leader_id = state.leader_id if state.leader_id not in (None, host.number) else STRANGER
    partition = EndQuorumEpochRequest.PartitionData(leader_id=leader_id, leader_epoch=max(0, state.epoch))
    if leader_id == STRANGER and state.leader_id is None:
        return None
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return with_other_successors(random, host, EndQuorumEpochRequest(cluster_id="fuzz", topics=(topic,)))


def update_of(one: CoreHost, host: CoreHost) -> Any:
    """Return the UpdateRaftVoter by which a replica would say where it is reached."""
    place = host.world.place(one.number)
    listener = UpdateRaftVoterRequest.Listener(name=host.world.listener_name, host=place.host, port=place.port)
    return UpdateRaftVoterRequest(
        cluster_id="fuzz",
        current_leader_epoch=host.running.epoch,
        voter_id=one.number,
        voter_directory_id=one.key.directory_id or ZERO_UUID,
        listeners=(listener,),
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    )


def vote_for(asker: ReplicaKey, epoch: Epoch, end: OffsetAndEpoch) -> VoteRequest:
    """Return the Vote by which a candidate with this log end would ask for a vote that binds."""
    row = VoteRequest.PartitionData(
        replica_epoch=epoch,
        replica_id=asker.id,
        replica_directory_id=asker.directory_id or ZERO_UUID,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
    return VoteRequest(cluster_id="fuzz", topics=(topic,))


def update_of_a_voter(random: chance.Random, host: CoreHost) -> Any:
    """Return an UpdateRaftVoter of some replica: as it would send it, or bent."""
    request = update_of(random.choice([*host.world.hosts.values()]), host)
    bend = random.choice((*BENDS[UpdateRaftVoterRequest], None))
    return request if bend is None else bend(random, host, request)


def new_place_of_a_voter(random: chance.Random, host: CoreHost) -> Any:
    """Return an UpdateRaftVoter that changes the voters, if nothing is in its way."""
    voters = [one for one in host.world.hosts.values() if one.key in host.running.voters]
    return of_more_listeners(random, host, update_of(random.choice(voters or [host]), host))


def _priority_of_a_voter(random: chance.Random, host: CoreHost) -> Any:
    one = random.choice([*host.world.hosts.values()])
    return ElectionPriorityRequest(
        cluster_id="fuzz",
        leader_epoch=host.running.epoch,
        voter_id=one.number,
        voter_directory_id=random.choice((one.key.directory_id or ZERO_UUID, STRANGE_DISK, ZERO_UUID)),
        priority=random.choice((-1, 0, 1, 50, 100, 101)),
    )


def _features(random: chance.Random, host: CoreHost) -> Any:
    """A change of kraft.version that changes nothing."""
    update = UpdateFeaturesRequest.FeatureUpdateKey
    known = host.running.kraft_version
    updates = random.choice(
        (
            (),
            (update(feature="kraft.version", max_version_level=known),),
            (update(feature="kraft.version", max_version_level=-1),),
            (update(feature="kraft.version", max_version_level=2),),
            (update(feature="metadata.version", max_version_level=1),),
            (update(feature="kraft.version", max_version_level=known),) * 17,
        )
    )
    if known == 1 and random.random() < 0.3:
        updates = (update(feature="kraft.version", max_version_level=0),)
    return UpdateFeaturesRequest(feature_updates=updates, validate_only=random.random() < 0.3)


def upgrade(random: chance.Random) -> UpdateFeaturesRequest:
    """Return the request that makes a static quorum a dynamic one."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=(update,), validate_only=random.random() < 0.1)


def _features_to_look_at(random: chance.Random, host: CoreHost) -> Any:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=(update,), validate_only=True)


def question_about_the_quorum() -> DescribeQuorumRequest:
    """Return the question of a tool for who has what."""
    topic = DescribeQuorumRequest.TopicData(
        topic_name=METADATA_TOPIC, partitions=(DescribeQuorumRequest.PartitionData(partition_index=0),)
    )
    return DescribeQuorumRequest(topics=(topic,))


def _question_about_the_quorum(random: chance.Random, host: CoreHost) -> Any:
    request = question_about_the_quorum()
    return misplaced(random, request) if random.random() < 0.3 else request


def _question_about_the_cluster(random: chance.Random, host: CoreHost) -> Any:
    return DescribeClusterRequest(endpoint_type=random.choice((0, 1, 2, 2, 2, 3)))


def _question_of_a_snapshot(random: chance.Random, host: CoreHost) -> Any:
    return of_another_hash(random, host, SnapshotHashRequest(cluster_id="fuzz", replica_id=STRANGER))


def _piece_of_a_snapshot(random: chance.Random, host: CoreHost) -> Any:
    snapshot_id = FetchSnapshotRequest.SnapshotId(end_offset=1, epoch=1)
    partition = FetchSnapshotRequest.PartitionSnapshot(snapshot_id=snapshot_id)
    topic = FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    return of_another_snapshot(random, host, FetchSnapshotRequest(cluster_id="fuzz", topics=(topic,)))


def _read_of_a_stranger(random: chance.Random, host: CoreHost) -> Any:
    return of_another_timeout(random, host, ReadBarrierRequest(cluster_id="fuzz", replica_id=STRANGER))


def state_of_a_replica(random: chance.Random, host: CoreHost) -> Any:
    """Return a StateDigest that names a wrong state of a replica."""
    return of_other_states(random, host, StateDigestRequest(cluster_id="fuzz"))


MADE_UP: Final = (
    _end_of_the_known_leader, _end_of_the_known_leader, update_of_a_voter, update_of_a_voter, _priority_of_a_voter,
    _features, _features_to_look_at, _question_about_the_quorum, _question_about_the_cluster, _question_of_a_snapshot,
    _piece_of_a_snapshot, _read_of_a_stranger,
)  # fmt: skip
"""The requests that are made up, and are like none before."""
