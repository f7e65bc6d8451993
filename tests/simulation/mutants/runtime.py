"""Bugs of the executor and of what callers are told."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

HOLDS: Final = ("swarm", "membership")
"""Their runs have readers that hold the log."""

MUTANTS: Final = (
    Mutant(
        "acknowledged-when-flushed",
        "callers are told that their records are committed when the leader has flushed them (I10)",
        (
            Edit(
                "runtime.appends.Appends.flushed",
                "self._queues[FLUSHED]:\n        self.waiters.flushed(end_offset)",
                "True:\n        self.waiters.committed(end_offset)",
            ),
        ),
    ),
    Mutant(
        "written-is-refused",
        "when leadership is lost, callers hear that nothing was appended, though it was (I10)",
        (
            Edit(
                "runtime.waiters.Waiters.leadership_lost",
                "refusal() if waiter[1] >= written_end else unknown_outcome(waiter, reason)",
                "refusal()",
            ),
        ),
    ),
    Mutant(
        "nothing-waits-for-the-disk",
        "what follows the write of a vote does not wait for it",
        (Edit("runtime.executor.Executor.suspend_for", "self._suspended = True", "pass"),),
    ),
    Mutant(
        "flush-is-forgotten",
        "a flush that is asked for while one runs never comes",
        (
            Edit(
                "runtime.performer.Performer._flush_log",
                "self._next_flush_version = action.log_version",
                "pass",
            ),
        ),
    ),
    Mutant(
        "flush-vouches-for-what-came-later",
        "when a flush ends, everything appended meanwhile is taken for flushed",
        (
            Edit(
                "runtime.performer.Performer._flush_done",
                "ev.Flushed(end_offset, ",
                "ev.Flushed(self._log.end_offset, ",
            ),
        ),
    ),
    Mutant(
        "flush-has-the-wrong-version",
        "a flush comes back with the log version of its end",
        (
            Edit(
                "runtime.performer.Performer._flush_done",
                "ev.Flushed(end_offset, self._flush_version)",
                "ev.Flushed(end_offset, self._core._replica.state.log.log_version)",
            ),
        ),
        equivalent="the disk does one thing at a time, so a flush ends before the truncation that would void it begins",
    ),
    Mutant(
        "listener-misses-a-slice",
        "a listener is not given what was committed while it was behind",
        (
            Edit(
                "runtime.applier.Applier._give",
                "feed.next_offset = batches[-1].last_offset + 1",
                "feed.next_offset = high_watermark",
            ),
        ),
    ),
    Mutant(
        "callers-are-not-refused",
        "who ceases to lead leaves callers waiting, and commits in their name what others wrote (I10)",
        (Edit("consensus.transitions.close_leadership", "[act.RefuseAppends(epoch)]", "[]"),),
    ),
    Mutant(
        "expired-holds-are-given-out",
        "who asks for a hold of a name whose hold has expired gets that one, and nothing is held",
        (
            Edit(
                "runtime.snapshots.retention.Retention.hold",
                "found is not None and not found.is_over",
                "found is not None",
            ),
        ),
        profiles=HOLDS,
        slow=True,
    ),
    Mutant(
        "holds-end-with-the-process",
        "the holds of readers are not stored",
        (Edit("runtime.housekeeping.Housekeeping.__init__", "save=opened.holds.write,", ""),),
        profiles=HOLDS,
        slow=True,
    ),
    Mutant(
        "who-left-is-fed-on",
        "a listener that another one takes away is fed until the turn is over",
        (Edit("runtime.applier.Applier._feed", " or feed not in self._feeds", ""),),
        slow=True,
    ),
    Mutant(
        "named-epochs-are-refused",
        "an append that names its epoch is refused",
        (Edit("runtime.appends.Appends._leading", "not isinstance(epoch, int)", "isinstance(epoch, int)"),),
    ),
    Mutant(
        "refused-callers-hear-nothing",
        "callers whose records a leader gives up are forgotten, and wait for ever",
        (Edit("runtime.waiters.Waiters._settle_with", "self._post(settle, outcomes)", "return"),),
    ),
    Mutant(
        "leader-is-read-late",
        "the application reads the leader that was known when the replica last took another role",
        (Edit("runtime.executor.Executor.leader_announced", "self.leader = leader\n", "\n"),),
    ),
    Mutant(
        "end-of-a-leadership-is-not-told",
        "the application of a leader that resigned as it was elected appends there in vain",
        (Edit("runtime.executor.Executor.leadership_over", "self.leader = self.core.leader_and_epoch", "pass"),),
        profiles=("crashes", "disks"),
        slow=True,
    ),
    Mutant(
        "drained-with-the-next-event",
        "after a pause of the process records wait until something else happens",
        (Edit("runtime.executor.Executor._drain", "return True", "return False"),),
        profiles=("crashes", "clocks"),
        slow=True,
    ),
    Mutant(
        "turns-in-vain",
        "each reason for a turn of the listeners is a turn",
        (Edit("runtime.applier.Applier._schedule", "self._scheduled = True", "pass"),),
    ),
    Mutant(
        "asked-after-each-event",
        "a busy replica asks its core after each event when it is due",
        (Edit("runtime.alarm.Alarm.settle", "now_ms >= ask_ms", "True"),),
    ),
    Mutant(
        "one-snapshot-too-many",
        "retention waits for a third snapshot",
        (Edit("runtime.snapshots.retention.Retention.look", "len(ids) < 2", "len(ids) < 3"),),
        slow=True,
    ),
    Mutant(
        "one-hash-too-few",
        "one hash of a snapshot less than may wait is worked out",
        (Edit("runtime.snapshots.sending.SnapshotSender.__init__", "self._hashing = 0", "self._hashing = 1"),),
    ),
    Mutant(
        "skipped-callers-hear-nothing",
        "callers whose records a snapshot has replaced are forgotten, and wait for ever",
        (Edit("runtime.waiters.Waiters.skipped", "self._post(settle, outcomes)", "pass"),),
        profiles=("swarm", "membership", "network"),
        slow=True,
    ),
    Mutant(
        "alarm-after-its-deadline",
        "a replica that has done what was due asks its core only some ms later when it is due next",
        (Edit("runtime.alarm.Alarm.fired", "self._asked_ms = NEVER_MS", "self._asked_ms = now_ms"),),
    ),
    Mutant(
        "full-leader-stays",
        "a leader whose disk is full keeps its office, and writes more than its reserve has room for",
        (Edit("runtime.executor.Executor.look_at_space", "full and not self.appends.fit_reserve", "False"),),
        profiles=("disks", "swarm"),
        slow=True,
    ),
    Mutant(
        "full-leader-accepts",
        "a leader that knows of its full disk accepts appends",
        (Edit("runtime.appends.Appends.disk_full", "self._guarded = full or", "self._guarded ="),),
        profiles=("disks", "swarm"),
    ),
    Mutant(
        "claims-to-lead",
        "a leader hears of itself before a record of its epoch is committed",
        (Edit("runtime.applier.Applier._must_catch_up", "<= self._epoch_start", "< self._epoch_start"),),
    ),
)
