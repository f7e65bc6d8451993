"""The end of a run of the core fuzzer: all is mended, and the quorum must get on.

Within a minute of simulated time a leader commits, all replicas that run have its records, lost data is here again, and
quarantined states are healed (V1, V3). Messages arrive in order from now on, and every flush ends at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraftlib.types import Offset
from tools.core_fuzz.budget import electable, is_impaired
from tools.core_fuzz.promises import BrokenPromiseError

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld

LONGEST_MS: Final = 60_000
STEPS_MAX: Final = 60_000
APPEND_EVERY_MS: Final = 200


def get_well(world: CoreWorld) -> int:
    """Mend everything; return after how many ms all had what is committed, -1 if no leader can be asked for."""
    world.calm_down()
    if not electable(world):
        return -1
    began_ms, appended_ms, goal = world.now_ms, 0, None
    for _ in range(STEPS_MAX):
        if world.now_ms - began_ms > LONGEST_MS:
            break
        if world.wire:
            world.hand(world.wire.pop(0))
            continue
        if _disks_are_done(world):
            continue
        for host in world.leaders():
            due = host.control is not None or world.now_ms - appended_ms > APPEND_EVERY_MS
            if host.core is not None and host.core.wants_records and due:
                appended_ms = world.now_ms
                world.append_to(host)
        if world.wire:
            continue
        leader = max(world.leaders(), key=lambda one: one.running.epoch, default=None)
        if leader is not None and goal is None and leader.running.high_watermark is not None:
            goal = leader.store.end_offset
        if leader is not None and goal is not None and _all_have(world, leader, goal):
            return world.now_ms - began_ms
        world.pass_time(whole=True)
    if not electable(world):
        return -1  # a wrong state was found meanwhile, and the snapshot was set aside with which that log began
    raise BrokenPromiseError("V1" if goal is None else "V3", f"does not get on after {LONGEST_MS} ms: {_state(world)}")


def _disks_are_done(world: CoreWorld) -> bool:
    is_busy = False
    for host in world.up():
        if host.store.flushes:
            host.finish_flush()
            is_busy = True
        if host.core is not None and host.slow:
            host.hear_slow_disk()
            is_busy = True
    return is_busy


def _all_have(world: CoreWorld, leader: CoreHost, goal: Offset) -> bool:
    if (leader.running.high_watermark or 0) < goal:
        return False
    if any(is_impaired(host) and host.running.is_voter for host in world.hosts.values()):
        return False
    if any(host.running.state.digests.quarantine is not None for host in world.hosts.values()):
        return False
    return all((host.running.high_watermark or 0) >= goal for host in world.hosts.values())


def _state(world: CoreWorld) -> str:
    parts = []
    for host in world.hosts.values():
        core = host.running
        is_wrong = core.state.digests.quarantine is not None
        flags = f"{'?' * host.store.is_amnesiac}{'!' * host.store.is_damaged}{'~' * is_wrong}"
        text = f"{host.number} {core.role.value}{flags} of epoch {core.epoch}, log {core.state.log.end}"
        parts.append(f"{text}, high watermark {core.high_watermark}, voters {list(core.voters.ids)}")
    return "; ".join(parts)
