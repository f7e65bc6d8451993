"""The kinds of trouble that the simulator makes: each is begun with one call, and says how to end it.

Every kind of trouble here must be survived: no kind may destroy what was flushed, and none lets a replica lie.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kraftlib.testing import copy_faults as copies
from kraftlib.testing import disk_faults as disks
from kraftlib.testing import list_faults as lists
from kraftlib.testing import log_faults as logs
from kraftlib.testing import network_faults as net
from kraftlib.testing import process_faults as processes
from kraftlib.testing import voter_faults as voters
from kraftlib.testing.network_faults import Undo

if TYPE_CHECKING:
    from kraftlib.testing.world import World

Begin = Callable[["World", chance.Random], Undo | None]


@attrs.frozen
class Fault:
    """One kind. `begin` makes the trouble and returns how to end it; None if there was nothing to do, or no end."""

    name: str
    begin: Begin
    longest_ms: int
    """Longest duration, with the election timeouts of the default configuration."""

    shortest_ms: int = 20
    """Shortest duration, likewise."""


FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault("kill", processes.kill, 3_000),
        Fault("power-loss", processes.power_loss, 5_000),
        Fault("power-loss-everywhere", processes.power_loss_everywhere, 2_000),
        Fault("kill-between-actions", processes.kill_between_actions, 2_000),
        Fault("pause", processes.pause, 6_000),
        Fault("resign", processes.resign, 0),
        Fault("restart-gracefully", processes.restart_gracefully, 4_000),
        Fault("strangers-message", processes.strangers_message, 0),
        Fault("impossible-message", processes.impossible_message, 0),
        Fault("take-snapshot", logs.take_snapshot, 0),
        Fault("snapshot-between-epochs", logs.snapshot_between_epochs, 0),
        Fault("forget-log", logs.forget_log, 0),
        Fault("hold-log", logs.hold_log, 8_000),
        Fault("restart-all-in-turn", processes.restart_all_in_turn, 20_000),
        Fault("upgrade-kraft-version", voters.upgrade_kraft_version, 0),
        Fault("wipe-observer", voters.wipe_observer, 2_000),
        Fault("add-voter", voters.add_voter, 0),
        Fault("remove-voter", voters.remove_voter, 0),
        Fault("replace-disk", voters.replace_disk, 2_000),
        Fault("transfer-leadership", processes.transfer_leadership, 0),
        Fault("clock-drift", processes.clock_drift, 10_000),
        Fault("wall-clock-jump", processes.wall_clock_jump, 0),
        Fault("cut-pair", net.cut_pair, 8_000),
        Fault("cut-one-way", net.cut_one_way, 8_000),
        Fault("isolate", net.isolate, 8_000),
        Fault("lonely-leader", net.lonely_leader, 8_000, shortest_ms=1_000),
        Fault("unheard-leaders", net.unheard_leaders, 20_000, shortest_ms=5_000),
        Fault("split", net.split, 8_000),
        Fault("random-cuts", net.random_cuts, 8_000),
        Fault("loss", net.loss, 6_000),
        Fault("packet-loss", net.packet_loss, 6_000),
        Fault("duplication", net.duplication, 8_000),
        Fault("reordering", net.reordering, 8_000),
        Fault("delay", net.delay, 5_000),
        Fault("reset-connections", net.reset_connections, 0),
        Fault("corruption", net.corruption, 4_000),
        Fault("withhold-records", net.withhold_records, 16_000, shortest_ms=2_000),
        Fault("slow-disk", disks.slow_disk, 6_000),
        Fault("hung-disk", disks.hung_disk, 6_000),
        Fault("failing-disk", disks.failing_disk, 3_000),
        Fault("stuck-disk", disks.stuck_disk, 6_000),
        Fault("full-disk", disks.full_disk, 8_000),
        Fault("lose-vote", disks.lose_vote, 2_000),
        Fault("damage-log", disks.damage_log, 2_000),
        Fault("change-amid-transfer", voters.change_amid_transfer, 10_000, shortest_ms=8_000),
        Fault("fail-machine", processes.fail_machine, 6_000),
        Fault("damage-several", disks.damage_several, 2_000),
        Fault("snapshot-amid-change", voters.snapshot_amid_change, 0),
        Fault("uneven-connections", net.uneven_connections, 8_000),
        Fault("stale-copy", copies.stale_copy, 6_000, shortest_ms=500),
        Fault("mixed-copy", copies.mixed_copy, 6_000, shortest_ms=500),
        Fault("cloned-disk", copies.cloned_disk, 8_000, shortest_ms=500),
        Fault("edited-voters", lists.edited_voters, 6_000),
        Fault("new-replicas-with-another-list", lists.new_replicas_with_another_list, 10_000, shortest_ms=2_000),
    )
}
"""Every kind by its name. The order counts: the trace names a kind by its place."""
