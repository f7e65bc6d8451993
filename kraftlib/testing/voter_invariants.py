"""The invariants of voter sets and of their changes (KIP-853): see `invariants`."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlib.testing.facts import Facts, LogEntry
from kraftlib.testing.images import DiskImage, ids
from kraftlib.testing.violation import Complaint
from kraftlib.types import Offset, ReplicaKey


def i16_core_knows_its_voters(
    node: DiskImage, believed: Sequence[ReplicaKey], voters: Sequence[ReplicaKey]
) -> Complaint:
    """I16: the voters that the core goes by are the latest that its log names."""
    if sorted(believed, key=str) == sorted(voters, key=str):
        return None
    return f"{node.key} goes by voters {ids(believed)}, its log names {ids(voters)}"


def i16_first_set_names_the_voters(entry: LogEntry, first_voters: Sequence[ReplicaKey]) -> Complaint:
    """I16: the first voter set in a log names those who voted before it, be they of the configuration (KIP-853)."""
    before = entry.parent.voters if entry.parent is not None else None
    if entry.voters is None or before is not None or sorted(ids(entry.voters)) == sorted(ids(first_voters)):
        return None
    return f"{entry} is the first to name voters, {ids(entry.voters)}, and before it {ids(first_voters)} voted"


def i16_voter_sets_differ_by_one(entry: LogEntry) -> Complaint:
    """I16: neighbouring voter sets differ by one voter, so that their majorities meet."""
    before = entry.parent.voters if entry.parent is not None else None
    if entry.voters is None or before is None or len(set(entry.voters) ^ set(before)) <= 1:
        return None
    return f"{entry} names voters {ids(entry.voters)}, before were {ids(before)}"


def i16_change_only_in_a_committed_epoch(facts: Facts, entry: LogEntry, epoch_start: Offset) -> Complaint:
    """I16: voters change after the leader's own epoch and the last change are committed (Ongaro, 2015)."""
    parent = entry.parent
    if entry.base_offset == epoch_start or parent is None or entry.voters == parent.voters:
        return None
    if facts.committed_end <= epoch_start:
        return f"{entry} changes the voters before its epoch, from {epoch_start} on, has committed anything"
    named = parent
    while named.parent is not None and named.parent.voters == named.voters:
        named = named.parent
    if named.end_offset > facts.committed_end:
        return f"{entry} changes the voters while {named}, the last change, is not committed"
    return None


def v6_a_change_that_is_done_is_committed(facts: Facts, what: str, key: ReplicaKey) -> Complaint:
    """V6: a voter that was reported as added or removed is so in the committed log, at some place."""
    entry = facts.committed.tail
    while entry is not None:
        if entry.voters is not None and (key in entry.voters) == (what == "add"):
            return None
        entry = entry.parent
    return f"the operator was told that {key} was changed ({what}), and no committed voter set says so"


def v6_an_upgrade_that_is_done_is_committed(facts: Facts) -> Complaint:
    """V6: a quorum that was reported as dynamic has its voters, with directory ids, in the committed log."""
    entry = facts.committed.tail
    while entry is not None:
        if entry.voters and all(voter.directory_id is not None for voter in entry.voters):
            return None
        entry = entry.parent
    return "the operator was told that kraft.version is 1, and no committed voter set has directory ids"


def m5_removed_leader_resigns(node: DiskImage, since_ms: int, limit_ms: int) -> Complaint:
    """M5: a leader whose removal is committed gives up soon."""
    if since_ms <= limit_ms:
        return None
    return f"{node.key} still leads, {since_ms} ms after its own removal was committed"
