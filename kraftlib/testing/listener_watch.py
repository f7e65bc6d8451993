"""A listener on every simulated replica, which holds KRaft to its promises to listeners (I15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlib.consensus.roles import Leader
from kraftlib.runtime.committed import BatchReader, LoadedSnapshot
from kraftlib.runtime.listener import Listener
from kraftlib.testing import application_invariants as app_inv
from kraftlib.testing import invariants as inv
from kraftlib.types import LeaderAndEpoch, Offset

if TYPE_CHECKING:
    from kraftlib.testing.checker import Checker
    from kraftlib.testing.process import Process


class ListenerWatch(Listener):
    """Every committed record once, in order; no news of a leader twice, and a leader's own when it has caught up."""

    def __init__(self, checker: Checker, process: Process) -> None:
        self.next_offset: Offset = 0
        self.told: LeaderAndEpoch | None = None
        self._checker = checker
        self._process = process

    def handle_commit(self, reader: BatchReader) -> None:
        """Take committed batches."""
        checker, node = self._checker, self._process.node
        for batch in reader:
            checker.check(app_inv.i15_listener_in_order, node, self.next_offset, batch.base_offset)
            checker.check(
                app_inv.i15_listener_hears_committed_only, checker.facts, node, batch.last_offset, batch.epoch
            )
            self.next_offset = batch.last_offset + 1

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Begin at the end of a snapshot."""
        checker, node = self._checker, self._process.node
        snapshot_id = reader.snapshot_id
        checker.check(inv.i14_snapshot_covers_committed_records_only, checker.facts, node, snapshot_id)
        checker.check(app_inv.i15_listener_never_goes_back, node, self.next_offset, snapshot_id.offset)
        self.next_offset = snapshot_id.offset

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Hear who leads."""
        self._checker.check(app_inv.i15_leader_is_news, self._process.node, self.told, leader)
        self.told = leader
        role = self._process.replica.state.role_state
        start = (
            role.epoch_start_offset
            if isinstance(role, Leader) and leader.epoch == self._process.replica.epoch
            else None
        )
        self._checker.check(
            app_inv.i15_leader_has_caught_up, self._process.node, leader.leader_id, self.next_offset, start
        )
