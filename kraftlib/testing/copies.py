"""Older copies of a replica's own directory: the image of a machine that is restored, a backup, a copy of a live one.

Raft cannot survive every one of them: a voter that forgets its acknowledgements or its votes may help to elect a leader
that lacks a committed record, or a second leader of one epoch. kraftlib promises that the leader says so as soon as it
can tell (`a voter went back`, scenario S14). A whole copy shows no damage, so a start cannot tell. Only safe copies are
drawn here (`may_go_back`): nothing that only the directory of now knows is needed any more.

A copy that was made while the replica ran is another matter: the log in it is older than the note of its durable end.
That is found at the start, and nothing is forgotten (scenario S1).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from kraftlib.consensus.fetch_leader import WENT_BACK
from kraftlib.consensus.roles import Leader
from kraftlib.errors import CorruptBatchError
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files, names
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.log import FileReplicatedLog
from kraftlib.storage.log.holds_file import StoredHold
from kraftlib.storage.log.sync_point import NOTHING, Mark, SyncPointFile
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.testing.damage import DamagedLog
from kraftlib.testing.facts import LogEntry
from kraftlib.testing.fault_parts import anybody_impaired
from kraftlib.testing.images import durable_at, is_majority
from kraftlib.types import ElectionState, Offset, ReplicaKey

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World


@attrs.frozen(kw_only=True)
class Copy:
    """The durable part of the directory of a replica at the time of the copy."""

    key: ReplicaKey
    log: MemoryReplicatedLog
    election: ElectionState | None
    entries: Sequence[LogEntry]
    """The entries of the log, as `Chain.entries`."""
    holds: Sequence[StoredHold]

    @property
    def end_offset(self) -> Offset:
        """One past the last record."""
        return self.log.end_offset


@attrs.frozen(kw_only=True)
class Witness:
    """A leader that counts a voter for more than an older copy of its disk has."""

    process: Process
    key: ReplicaKey
    counted: Offset
    said: int
    """The number of times that it had said so of any voter."""


def copy_of(node: SimulatedNode) -> Copy | None:
    """Return a copy of the durable content of a node's directory, running or not; None if something is missing."""
    if node.is_impaired or isinstance(node.log, DamagedLog):
        return None
    log, flushed = node.log, node.log.flushed_offset
    batches = [batch for batch in log.batches() if batch.last_offset < flushed]
    copied = MemoryReplicatedLog(start_offset=batches[0].base_offset if batches else log.start_offset)
    for snapshot_id in log.snapshots():
        if snapshot_id.offset <= max(flushed, log.start_offset):
            source = log.open_snapshot(snapshot_id)
            copied.store_snapshot(snapshot_id, source.read_at(0, source.size))
    copied.append(batches)
    copied.flush()
    entries = [entry for entry in node.chain.entries if entry.end_offset <= max(flushed, log.start_offset)]
    return Copy(
        key=node.key, log=copied, election=node.elections.read(), entries=entries, holds=tuple(node.holds)
    )  # fmt: skip


def lost_with(node: SimulatedNode, copy: Copy) -> list[LogEntry]:
    """Return the entries in the log of a node that a copy of it lacks."""
    kept = set(map(id, copy.entries))
    return [entry for entry in node.chain.entries if id(entry) not in kept and entry.end_offset > copy.log.start_offset]


def may_go_back(world: World, node: SimulatedNode, copy: Copy) -> bool:
    """Whether a node that is down may go on with an older copy of its directory: nothing else of it is needed any more.

    No other replica lacks anything, and the voters are not being changed. Records that the copy lacks are committed and
    durable at a majority of the voters without this one, or in no other log. The epochs in which it may have voted are
    over: all others are in a newer one, or know who leads the last of them, and it led none of them itself.
    """
    count = len(world.current_voters())
    if copy.key != node.key or anybody_impaired(world) or world.admin.is_changing:
        return False
    if isinstance(node.log, DamagedLog) or not 3 <= count == len(world.kept_voters()):
        return False
    return _lacks_nothing_that_counts(world, node, copy) and _forgets_no_vote_that_counts(world, node, copy)


def _lacks_nothing_that_counts(world: World, node: SimulatedNode, copy: Copy) -> bool:
    others = {number: other for number, other in world.nodes.items() if other is not node}
    committed, voters = world.checker.facts.committed, world.current_voters()
    for entry in lost_with(node, copy):
        if committed.covering(entry.base_offset) is entry:
            if not is_majority(durable_at(entry, voters, others), voters):
                return False
        elif any(other.has(entry) for other in others.values()):
            return False
    return True


def _forgets_no_vote_that_counts(world: World, node: SimulatedNode, copy: Copy) -> bool:
    now, then = node.elections.read() or ElectionState(), copy.election or ElectionState()
    if now == then:
        return True
    leaders = world.checker.facts.leaders
    if any(leaders.get(epoch) == node.key for epoch in range(then.epoch, now.epoch + 1)):
        return False
    known = [other.elections.read() or ElectionState() for other in world.nodes.values() if other is not node]
    return all(other.epoch > now.epoch or (other.epoch == now.epoch and other.leader_id is not None) for other in known)


def put_back(world: World, node: SimulatedNode, copy: Copy) -> None:
    """Put a copy in the place of the directory of a node that is down; watch what leaders say of it (S14)."""
    lost = [
        entry for entry in lost_with(node, copy) if world.checker.facts.committed.covering(entry.base_offset) is entry
    ]
    now, then = node.elections.read() or ElectionState(), copy.election or ElectionState()
    if (now.epoch, now.voted_key) != (then.epoch, then.voted_key):
        world.checker.facts.forget_votes(node.key, then)
        node.votes_lost += 1
    node.go_back(copy.log, copy.election, copy.entries, copy.holds, goal=lost[-1].end_offset if lost else 0)
    world.deeds["older copy put back"] += 1
    for other in world.nodes.values():
        role = None if other.process is None else other.process.replica.state.role_state
        progress = role.progress.get(node.key.id) if isinstance(role, Leader) else None
        if other.process is not None and progress is not None and progress.end_offset > copy.end_offset:
            said = other.process.replica.state.refused.get(WENT_BACK, 0)
            world.checker.witnesses.append(
                Witness(process=other.process, key=node.key, counted=progress.end_offset, said=said)
            )
    world.checker.crashed(node)


def is_older_part(node: SimulatedNode, copy: Copy) -> bool:
    """Whether the log of a node goes on where that of the copy ends, by committed records only."""
    lost, log = lost_with(node, copy), node.log
    return (
        copy.key == node.key
        and bool(lost)
        and log.flushed_offset == log.end_offset == lost[-1].end_offset
        and log.start_offset == copy.log.start_offset
        and lost[0].base_offset == copy.end_offset
        and bool(copy.entries)
        and lost[0].parent is copy.entries[-1]
    )


def end_of_mixed(log: MemoryReplicatedLog, size: int) -> Offset | None:
    """Return where a log ends that the real storage opens: of `log` only `size` bytes, with the note of all of it.

    The files are copies. None if opening finds that something is missing, as it must.
    """
    with tempfile.TemporaryDirectory(prefix="kraftlib-mixed-") as name:
        original, copied = Path(name, "original"), Path(name, "copied")
        original.mkdir()
        batches = log.batches()
        data = b"".join(batch.data for batch in batches)
        path = original / names.segment_name(log.start_offset)
        path.write_bytes(data[:size])
        last, file = batches[-1], SyncPointFile(original, file_mode=files.FILE_MODE)
        file.replace(NOTHING)
        end = last.end_offset
        file.write(Mark(log.start_offset, path.stat().st_ino, len(data), end, last.epoch, crc32c(data)))
        file.close()
        line = encode_line(ElectionState(epoch=last.epoch), kraft_version=1, voters=(), generation=1)
        (original / names.QUORUM_STATE).write_bytes(line)
        for snapshot_id in log.snapshots():
            source = log.open_snapshot(snapshot_id)
            (original / names.checkpoint_name(snapshot_id)).write_bytes(source.read_at(0, source.size))
        shutil.copytree(original, copied)
        try:
            opened = FileReplicatedLog.open(copied)
        except CorruptBatchError:
            return None
        try:
            return None if opened.holes() else opened.end_offset
        finally:
            opened.close()
