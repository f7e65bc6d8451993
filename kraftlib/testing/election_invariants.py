"""The invariants of elections: epochs, votes, and the winner. See `invariants`."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlib.testing.facts import Facts
from kraftlib.testing.images import DiskImage, ids, is_same
from kraftlib.testing.violation import Complaint
from kraftlib.types import ElectionState, Epoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey


def i1_one_leader_per_epoch(facts: Facts, epoch: Epoch, leader: ReplicaKey) -> Complaint:
    """I1, election safety: an epoch has one leader, ever."""
    known = facts.leaders.setdefault(epoch, leader)
    return None if known == leader else f"epoch {epoch} is led by {leader}, and was by {known}"


def i1_known_leader(facts: Facts, epoch: Epoch, leader_id: ReplicaId, node: DiskImage) -> Complaint:
    """I1, seen from a follower: it follows no replica that was not elected in the epoch."""
    known = facts.leaders.get(epoch)
    if known is None:
        return f"{node.key} takes {leader_id} for the leader of epoch {epoch}, which no voter has won"
    return (
        None if known.id == leader_id else f"{node.key} takes {leader_id} for leader of epoch {epoch}, it was {known}"
    )


def i2_epoch_never_falls(node: DiskImage, before: Epoch, after: Epoch) -> Complaint:
    """I2: the epoch of a node never decreases, in memory or on disk."""
    return None if after >= before else f"{node.key} goes from epoch {before} back to {after}"


def i2_epoch_is_durable_before_it_is_spoken(
    facts: Facts, node: DiskImage, durable: ElectionState | None, epoch: Epoch
) -> Complaint:
    """I2: every epoch that a node names stands on its disk, so that no restart takes it back."""
    facts.spoken_epochs[node.key] = max(epoch, facts.spoken_epochs.get(node.key, 0))
    kept = 0 if durable is None else durable.epoch
    return None if epoch <= kept else f"{node.key} speaks of epoch {epoch}, on its disk is {kept}"


def i3_one_vote_per_epoch(facts: Facts, voter: ReplicaKey, epoch: Epoch, candidate: ReplicaKey) -> Complaint:
    """I3: a voter votes for one candidate in an epoch, in its whole history."""
    known = facts.votes.setdefault((voter, epoch), candidate)
    return None if known == candidate else f"{voter} votes for {candidate} in epoch {epoch}, and did for {known}"


def i3_vote_is_not_forgotten(node: DiskImage, before: ElectionState | None, after: ElectionState) -> Complaint:
    """I3, on disk: within an epoch a recorded vote stays, unless it was the winner's own."""
    if before is None or before.epoch != after.epoch or before.voted_key is None:
        return None
    if after.voted_key == before.voted_key or (before.voted_key.id == node.key.id == after.leader_id):
        return None
    return f"{node.key} replaces the vote of {before} by {after}"


def i3_amnesia_gives_no_vote(node: DiskImage, durable: ElectionState | None, candidate: ReplicaKey) -> Complaint:
    """I3: a voter that has forgotten its votes gives none, nor a pre-vote, until that is safe again (scenario E3)."""
    if durable is None or not durable.amnesiac:
        return None
    return f"{node.key} gives {candidate} its vote, and has forgotten its earlier votes"


def i5_leader_has_everything_committed(facts: Facts, epoch: Epoch, node: DiskImage) -> Complaint:
    """I5, leader completeness: an elected leader has every record that was committed in an earlier epoch.

    Not in a later one: the votes of a candidate that stood still may win it an epoch that is over, and do no harm.
    """
    tail = facts.committed_before(epoch)
    if tail is None or node.chain.covering(tail.base_offset) is tail:
        return None
    return f"{node.key} is elected with a log up to {node.chain.tail}, committed is {tail}"


def i5_candidate_is_honest(node: DiskImage, end: Offset, epoch: Epoch | None, claimed: OffsetAndEpoch) -> Complaint:
    """I5: a candidate names the end of its own log, since votes are given for it. `epoch` is None if not known."""
    if claimed.offset == end and epoch in (None, claimed.epoch):
        return None
    return f"{node.key} asks for votes with a log up to {claimed}, its log ends at {end} of epoch {epoch}"


def i5_no_vote_for_a_shorter_log(
    node: DiskImage, candidate: ReplicaKey, claimed: OffsetAndEpoch, own: OffsetAndEpoch
) -> Complaint:
    """I5: a vote, or a pre-vote, is given to a log that is no shorter than the own one: by epoch, then by length."""
    if (claimed.epoch, claimed.offset) >= (own.epoch, own.offset):
        return None
    return f"{node.key} votes for {candidate} with a log up to {claimed}, its own ends at {own}"


def i12_vote_is_durable_before_it_is_spoken(
    node: DiskImage, durable: ElectionState | None, epoch: Epoch, candidate: ReplicaKey
) -> Complaint:
    """I12: a vote, for another or for oneself, is on disk before any message tells it."""
    voted = durable.voted_key if durable is not None and durable.epoch == epoch else None
    if voted is not None and is_same(voted, candidate):
        return None
    return f"{node.key} gives {candidate} its vote in epoch {epoch}, on its disk is {durable}"


def i12_candidate_names_what_is_durable(node: DiskImage, claimed: OffsetAndEpoch) -> Complaint:
    """I12: votes are given for the log that a candidate names, and are given again after a crash of it."""
    if claimed.offset <= node.flushed_offset:
        return None
    return f"{node.key} asks for votes with a log up to {claimed}, durable is {node.flushed_offset}"


def i12_amnesia_vouches_for_nothing(node: DiskImage, durable: ElectionState | None, replica_id: int) -> Complaint:
    """I12: a replica that has forgotten its votes fetches with id -1: it may have voted in a newer epoch."""
    if durable is None or not durable.amnesiac or replica_id < 0:
        return None
    return f"{node.key} fetches under its own name, and has forgotten its votes"


def i16_only_voters_stand(node: DiskImage, voters: Sequence[ReplicaKey], doing: str) -> Complaint:
    """I16: only a voter of its own latest voter set becomes prospective, candidate or leader."""
    if any(is_same(voter, node.key) for voter in voters):
        return None
    return f"{node.key} is {doing}, and not one of the voters {ids(voters)}"
