"""The fault budget: the losses that are allowed at one time, so that every promise must hold all the same.

* A crash takes what was not flushed, from any number of replicas, at any time.
* Durable data is lost at **one** replica at a time: its election, records, snapshots, the end of its log, and any
  of these together. Until it has all of it again, no other replica loses anything that was durable.
* Never of a replica that is the only voter of a set which some replica takes for the one in force: no other
  replica could tell the lost records, and `kraftlib` refuses to open such a log.
* A disk is replaced by an empty one where no replica takes the old one for a voter, nor could come to, in a set that is
  committed or in one that is not. And the disk of a voter, which is dead from then on: where the others are a majority
  of each such set without it, and no other replica is impaired, until no set names the dead voter.

The loss may cost progress, not safety: while a voter is impaired the others must be a majority of each set that
may be in force, or no leader can be asked for (`electable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kraftlib.consensus.roles import Leader
from kraftlib.consensus.voters import VoterSet

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld


def is_impaired(host: CoreHost) -> bool:
    """Whether it lacks something that was durable once."""
    return host.store.is_amnesiac or host.store.is_damaged


def sets_in_force(world: CoreWorld) -> Iterator[VoterSet]:
    """Yield every voter set that some replica takes for the one in force, or would after a truncation."""
    for host in world.hosts.values():
        log = host.core.state.log if host.core is not None else host.store.view(world.static_voters)
        committed = host.core.state.committed_offset if host.core is not None else log.start_offset
        yield from log.voters.since(min(committed, world.promises.committed_end) - 1)


def has_dead_voters(world: CoreWorld) -> bool:
    """Whether some set names a voter whose disk was replaced."""
    if not any(host.disks for host in world.hosts.values()):
        return False
    return any(
        not voter.key.matches(world.hosts[voter.key.id].key) for voters in sets_in_force(world) for voter in voters
    )


def may_lose_something(world: CoreWorld, host: CoreHost) -> bool:
    """Whether a replica that is down may lose what was durable."""
    if any(is_impaired(other) for other in world.hosts.values() if other is not host) or has_dead_voters(world):
        return False
    return not any(len(voters) == 1 and host.key in voters for voters in sets_in_force(world))


def may_be_replaced(world: CoreWorld, host: CoreHost) -> bool:
    """Whether the disk of a replica may be replaced by an empty one."""
    if world.static_voters is not None and host.key in world.static_voters:
        return False
    if host.disks == 0 and host.number in world.first_voters and not world.promises.committed_end:
        return False
    for other in world.hosts.values():
        if other.core is None:
            return False
        log = other.core.state.log
        if isinstance(other.core.state.role_state, Leader) and other.core.status().voter_change_pending:
            return False
        if log.end_offset < world.promises.committed_end and other is not host:
            return False
    sets = [voters for voters in sets_in_force(world) if host.key in voters]
    if not sets:
        return True
    others = [other for other in world.hosts.values() if other is not host]
    if has_dead_voters(world) or any(is_impaired(other) for other in others):
        return False
    return all(_reaches_majority(others, voters) for voters in sets)


def electable(world: CoreWorld) -> bool:
    """Whether the unimpaired replicas are a majority of every set that may be in force, and can elect one of them.

    They cannot where the longest log of all is that of a replica which a record in it removes, so that it stands no
    more. While no replica is impaired, the others are always enough to elect one of them.
    """
    whole = [host for host in world.hosts.values() if not is_impaired(host)]
    if len(whole) == len(world.hosts) and not has_dead_voters(world):
        return True
    if not all(_reaches_majority(whole, voters) for voters in sets_in_force(world) if len(voters)):
        return False
    for host in whole:
        voters = host.store.view(world.static_voters).voters.latest
        if host.key in voters and _reaches_majority([one for one in whole if one.store.end <= host.store.end], voters):
            return True
    return False


def _reaches_majority(hosts: Sequence[CoreHost], voters: VoterSet) -> bool:
    return sum(1 for host in hosts if host.key in voters) >= voters.majority
