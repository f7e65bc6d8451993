"""Bugs in snapshots, and in what lies before the beginning of a log (KIP-630)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "snapshot-names-the-wrong-epoch",
        "a snapshot bears the epoch of its leader, not of its last record",
        (Edit("runtime.snapshots.writing.plan_snapshot", "epoch=last.epoch", "epoch=view.last_epoch"),),
        profiles=("membership", "crashes"),
    ),
    Mutant(
        "snapshot-forgets-the-voters",
        "a snapshot of a dynamic quorum names the first voters for ever (N12)",
        (
            Edit(
                "runtime.snapshots.writing.plan_snapshot",
                "view.voters.at(offset - 1).to_record()",
                "view.voters.at(-1).to_record()",
            ),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "snapshot-lacks-the-records",
        "a snapshot holds the state of the beginning, whatever it says that it covers (I14)",
        (
            Edit(
                "runtime.snapshots.snapshotter.Snapshotter.create",
                "self._machine.freeze()",
                "self._machine._world.subject.machine().freeze()",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "download-is-not-verified",
        "a downloaded snapshot is believed, whatever is in it, as soon as some of it is there",
        (
            Edit("consensus.fetch_snapshot.handle_chunk_written", "if event.size == role.download.size", "if True"),
            Edit(
                "runtime.snapshots.transfer.LogSnapshots.write",
                "self.drop()\n        return ev.SnapshotRefused(action.snapshot_id, str(error))",
                "pass",
            ),
            Edit(
                "runtime.snapshots.transfer.LogSnapshots._freeze",
                "self.drop()\n        return ev.SnapshotRefused(snapshot_id, str(error))",
                "pass",
            ),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "increments-forget-what-is-gone",
        "an increment names what was put, and not what was removed",
        (Edit("runtime.snapshots.increments.Increments.write", "keep_tombstones=True", "keep_tombstones=False"),),
        profiles=("crashes", "membership"),
    ),
    Mutant(
        "merged-without-the-first",
        "the first increment of a chain does not come into the checkpoint of its end",
        (
            Edit(
                "runtime.snapshots.increments.Increments._merge",
                "for increment in increments)",
                "for increment in increments[1:])",
            ),
        ),
        profiles=("crashes", "membership"),
    ),
    Mutant(
        "installed-snapshot-keeps-the-log",
        "the core goes on with the old end of its log after a snapshot was installed",
        (
            Edit(
                "consensus.log_view.LogView.install",
                "self.start_offset = self.end_offset = self.flushed_offset = snapshot_id.offset",
                "self.start_offset = snapshot_id.offset",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "log-start-stays",
        "the core goes on with the old beginning of its log after retention",
        (
            Edit(
                "consensus.log_view.LogView.delete_before",
                "self.start_offset = max(self.start_offset, snapshot_id.offset)",
                "pass",
            ),
        ),
        profiles=("membership", "swarm"),
    ),
    Mutant(
        "what-lies-before-the-log-is-valid",
        "a follower whose log ends before the leader's begins is told that all is well (L15)",
        (
            Edit("consensus.log_view.LogView.validate", "offset < self.start_offset", "False"),
            Edit("consensus.log_view.LogView.validate", "epoch < earliest.epoch", "False"),
            Edit(
                "consensus.log_view.LogView.validate",
                "return Diverging(end) if end.epoch != epoch or end.offset < offset else VALID",
                "return Diverging(end) if end.offset < offset else VALID",
            ),
        ),
        profiles=("membership", "swarm"),
    ),
)
