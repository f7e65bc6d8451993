"""The invariants of a quorum, which hold at every moment: one function per invariant, named by its id.

Each is told what has just happened and returns a complaint, or None if all is well. They know more than any replica
could: `Facts` is true of the whole world, and a node's `chain` is what really stands in its log. None of them asks the
core what it believes about anything but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kraftlib.records.batch import Batch
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.runtime.alarm import ASK_EVERY_MS
from kraftlib.testing import application_invariants, election_invariants, list_invariants, voter_invariants
from kraftlib.testing.facts import Facts, LogEntry
from kraftlib.testing.images import DiskImage, durable_at, ids, is_majority
from kraftlib.testing.violation import Complaint
from kraftlib.types import Epoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey


def i4_same_place_same_record(entry: LogEntry, batch: Batch, parent: LogEntry | None) -> Complaint:
    """I4, log matching: offset and epoch name one record, and everything before it."""
    if entry.batch.data is not batch.data and entry.batch.data != batch.data:
        return f"batch {entry} has other bytes than node {entry.first_writer} wrote there"
    if entry.parent is not parent:
        return f"batch {entry} follows {parent}, where node {entry.first_writer} wrote it behind {entry.parent}"
    return None


def i6_no_divergence_below_the_high_watermark(facts: Facts, node: DiskImage, high_watermark: Offset) -> Complaint:
    """I6: the records that a node takes for committed are the same for all.

    `high_watermark` was raised just now; because entries are linked, looking at its last one is enough.
    """
    if high_watermark == 0:
        return None
    entry = node.chain.covering(high_watermark - 1)
    known = facts.committed.covering(high_watermark - 1)
    if entry is None or entry.end_offset != high_watermark:
        return f"the high watermark {high_watermark} of {node.key} lies inside or beyond a batch: {entry}"
    return None if entry is known else f"{node.key} takes {entry} for committed, which is {known}"


def i7_high_watermark_never_falls(node: DiskImage, before: Offset, after: Offset, log_end: Offset) -> Complaint:
    """I7: the high watermark of a node rises, as long as it lives, and stays within its log."""
    if after < before:
        return f"the high watermark of {node.key} falls from {before} to {after}"
    return None if after <= log_end else f"the high watermark {after} of {node.key} is beyond its log end {log_end}"


def i7_newest_leader_never_behind(facts: Facts, node: DiskImage, epoch: Epoch, high_watermark: Offset) -> Complaint:
    """I7, of the quorum: the newest leader's high watermark is never below one that was known before."""
    if epoch < facts.latest_epoch or high_watermark >= facts.committed_end:
        return None
    return f"leader {node.key} of epoch {epoch} has high watermark {high_watermark}, known was {facts.committed_end}"


def i8_majority_before_commit(
    node: DiskImage,
    high_watermark: Offset,
    epoch_start: Offset,
    voters: Sequence[ReplicaKey],
    nodes: Mapping[ReplicaId, DiskImage],
) -> Complaint:
    """I8, the commit rule: only beyond the start of the own epoch, and with a majority of the latest voter set.

    Only the disks of the voters at this moment count, not their messages (I9).
    """
    if high_watermark <= epoch_start:
        return f"leader {node.key} commits up to {high_watermark}, its epoch starts at {epoch_start}"
    entry = node.chain.covering(high_watermark - 1)
    if entry is None:
        return f"leader {node.key} commits up to {high_watermark}, its log ends at {node.chain.end_offset}"
    holding = durable_at(entry, voters, nodes)
    if is_majority(holding, voters):
        return None
    return f"leader {node.key} commits {entry}, durable at {ids(holding)} of {ids(voters)}: no majority"


def i8_new_leader_committed_nothing(node: DiskImage, known: Offset | None, epoch_start: Offset) -> Complaint:
    """I8: the high watermark that a leader knew as a follower is not that of its epoch, in which it has committed
    nothing."""
    if known is None or known > epoch_start:
        return None
    return f"leader {node.key} goes by the high watermark {known} before its epoch starts at {epoch_start}"


def i9_committed_is_durable(facts: Facts, nodes: Mapping[ReplicaId, DiskImage]) -> Complaint:
    """I9, durability: committed records stand on the disks of a majority, through all crashes."""
    tail, voters = facts.committed.tail, facts.committed_under
    if tail is None:
        return None
    holding = durable_at(tail, voters, nodes)
    if is_majority(holding, voters):
        return None
    return f"committed is {tail}, durable at {ids(holding)} of {ids(voters)} only"


def i10_acknowledged_is_committed(
    facts: Facts, base_offset: Offset, last_offset: Offset, epoch: Epoch, values: Sequence[bytes]
) -> Complaint:
    """I10: an acknowledged append stands among the committed records, where its caller was told, as one piece."""
    entry = facts.committed.covering(base_offset)
    if entry is None or entry.end_offset <= last_offset:
        return f"records [{base_offset}, {last_offset + 1}) were acknowledged, committed is {facts.committed_end}"
    if entry.epoch != epoch:
        return f"records from {base_offset} on were acknowledged in epoch {epoch}, they are of {entry.epoch}"
    first = base_offset - entry.base_offset
    if entry.batch.values()[first : first + len(values)] != list(values):
        return f"other records stand at [{base_offset}, {last_offset + 1}) than those that were acknowledged"
    return None


def i11_nothing_committed_is_truncated(
    facts: Facts, node: DiskImage, dropped: Sequence[LogEntry], high_watermark: Offset, epoch: Epoch
) -> Complaint:
    """I11: no log drops records that were committed up to its epoch, or that it took for committed itself."""
    if not dropped:
        return None
    first = dropped[0]
    if facts.was_committed(first, epoch):
        return f"{node.key} truncates {first}, which is committed"
    if first.base_offset < high_watermark:
        return f"{node.key} truncates {first}, its high watermark is {high_watermark}"
    return None


def i11_truncation_has_a_reason(node: DiskImage, reason: str | None) -> Complaint:
    """I11: a running replica truncates only because its leader said where their logs part."""
    return None if reason is None else f"{node.key} truncates its log because of {reason}"


def i11_truncation_goes_far_enough(node: DiskImage, tail: LogEntry | None, leader_end: OffsetAndEpoch) -> Complaint:
    """I11: nothing stays that the leader has just said it does not have: no later epoch, no more of the same one."""
    if tail is None or leader_end.epoch == 0 or (tail.epoch, tail.end_offset) <= (leader_end.epoch, leader_end.offset):
        return None
    return f"{node.key} keeps {tail}, though its leader's log has nothing after {leader_end}"


def i11_snapshot_takes_nothing_committed(
    facts: Facts, node: DiskImage, snapshot: OffsetAndEpoch, epoch: Epoch
) -> Complaint:
    """I11: a snapshot that takes the place of a log covers everything that stood there and was committed by then."""
    entry = node.chain.covering(snapshot.offset)
    if entry is None or not facts.was_committed(entry, epoch):
        return None
    return f"{node.key} drops {entry}, which is committed, for snapshot {snapshot}"


def i12_fetch_only_beyond_what_is_durable(node: DiskImage, fetch_offset: Offset) -> Complaint:
    """I12, flush before speaking: a fetch offset vouches for everything below."""
    if fetch_offset <= node.flushed_offset:
        return None
    return f"{node.key} fetches from {fetch_offset}, durable is {node.flushed_offset}"


def i12_damage_vouches_for_nothing(node: DiskImage, missing: Offset, fetch_offset: Offset) -> Complaint:
    """I12: a replica that has lost records does not fetch beyond them under its own id, as if it had them."""
    if fetch_offset <= missing:
        return None
    return f"{node.key} fetches from {fetch_offset} under its own name, and lacks what follows {missing}"


def i12_core_knows_what_is_durable(node: DiskImage, believed: Offset) -> Complaint:
    """I12, from inside: the core never believes more durable than is."""
    if believed <= node.flushed_offset:
        return None
    return f"{node.key} believes that {believed} is durable, it is {node.flushed_offset}"


def i12_core_vouches_for_what_it_knows(node: DiskImage, known: Offset, fetch_offset: Offset) -> Complaint:
    """I12, from inside: it is no luck that what a Fetch vouches for is durable; the core was told so."""
    return None if fetch_offset <= known else f"{node.key} fetches from {fetch_offset}, and only knows {known} durable"


def i13_only_the_leader_writes(
    facts: Facts, node: DiskImage, entry: LogEntry, *, is_new: bool, leads: Epoch | None
) -> Complaint:
    """I13: new records of an epoch come from its leader, who never writes the same place twice.

    `leads` is the epoch that the node leads, None if it does not.
    """
    if is_new and facts.leaders.get(entry.epoch) != node.key:
        return f"{node.key} writes {entry} first; the leader of that epoch is {facts.leaders.get(entry.epoch)}"
    if not is_new and leads == entry.epoch:
        return f"leader {node.key} writes {entry} once more"
    return None


def i13_epoch_opens_with_its_leader(node: DiskImage, entry: LogEntry, voters: Sequence[ReplicaKey]) -> Complaint:
    """I13: the first record of an epoch names its leader, the voters, and the majority that elected it."""
    if entry.parent is not None and entry.parent.epoch == entry.epoch:
        return None
    controls = [control for _, control in decode_control_batch(entry.batch)] if entry.batch.is_control else []
    opening = controls[0] if controls else None
    if not isinstance(opening, LeaderChangeMessage) or opening.leader_id != node.key.id:
        return f"epoch {entry.epoch} of {node.key} opens with {opening or entry}"
    named = sorted(voter.voter_id for voter in opening.voters)
    granting = {voter.voter_id for voter in opening.granting_voters}
    if named != sorted(ids(voters)) or not granting <= set(named) or 2 * len(granting) <= len(named):
        return (
            f"epoch {entry.epoch} of {node.key} says that {sorted(granting)} of {named} elected him, of {ids(voters)}"
        )
    return None


def i13_leader_never_truncates(node: DiskImage, leads: Epoch | None, end_offset: Offset) -> Complaint:
    """I13, append-only: a leader drops nothing from its log."""
    return None if leads is None else f"{node.key} leads epoch {leads} and truncates its log to {end_offset}"


def i14_snapshot_covers_committed_records_only(facts: Facts, node: DiskImage, snapshot: OffsetAndEpoch) -> Complaint:
    """I14: a snapshot ends at or below what is committed, and names the epoch of its last record."""
    if snapshot.offset == 0:
        return None
    entry = facts.committed.covering(snapshot.offset - 1)
    if entry is None:
        return f"{node.key} has snapshot {snapshot}, committed is {facts.committed_end}"
    return None if entry.epoch == snapshot.epoch else f"{node.key} has snapshot {snapshot}, its last record is {entry}"


def i14_snapshot_names_its_voters(
    facts: Facts, node: DiskImage, snapshot: OffsetAndEpoch, named: Sequence[ReplicaKey] | None
) -> Complaint:
    """I14: a snapshot that names voters names those of the last record that it covers."""
    entry = facts.committed.covering(snapshot.offset - 1)
    if named is None or entry is None or entry.voters is None or set(named) == set(entry.voters):
        return None
    return f"{node.key} has snapshot {snapshot} with voters {ids(named)}, its last record is of {ids(entry.voters)}"


def i17_strangers_change_nothing(node: DiskImage, before: object, after: object) -> Complaint:
    """I17, identity: a message of another cluster, or an impossible one, changes no state."""
    return (
        None if before == after else f"{node.key} was {before} and is {after} after a message that must change nothing"
    )


def i18_same_bytes(nodes: Iterable[DiskImage], start: Offset, end: Offset) -> Complaint:
    """I18: nodes that have the same range of the log have the same bytes."""
    images = {node.key: b"".join(bytes(entry.batch.data) for entry in node.chain.between(start, end)) for node in nodes}
    first = next(iter(images.values()), b"")
    different = [key for key, image in images.items() if image != first]
    return f"the logs of {ids(different)} differ from the others in [{start}, {end})" if different else None


def i19_bounds(node: DiskImage, sizes: Mapping[str, tuple[int, int]]) -> Complaint:
    """I19: the memory of a replica stays within bounds. `sizes` gives each what there is, and its limit."""
    beyond = {name: size for name, (size, limit) in sizes.items() if size > limit}
    return f"{node.key} has too many: {beyond}" if beyond else None


def i20_no_spin(node: DiskImage, turns: int, limit: int) -> Complaint:
    """I20: an idle replica sleeps. `turns` is how often its core was called within a simulated second."""
    return None if turns <= limit else f"the core of {node.key} was called {turns} times in a second, limit {limit}"


def i20_nothing_stays_due(node: DiskImage, deadline_ms: int | None, now_ms: int) -> Complaint:
    """I20: a core that was called has done what was due, and wants to be called later, not over and over again."""
    if deadline_ms is None or deadline_ms > now_ms:
        return None
    return f"the core of {node.key} was called at {now_ms} ms and is due since {deadline_ms} ms"


def i20_one_turn_at_a_time(node: DiskImage, turn: str, due: int) -> Complaint:
    """I20: a replica does not ask for another turn of its loop while one is due."""
    return None if due <= 1 else f"{node.key} asks for {turn} while {due - 1} such turns are due"


def i20_is_not_asked_all_the_time(node: DiskImage, asked_ms: Sequence[int], at_once: int) -> Complaint:
    """I20: a busy replica asks its core now and then when it is due, not after each event. `asked_ms` are the latest
    times of that without a deadline between."""
    if len(asked_ms) < at_once or asked_ms[-1] - asked_ms[0] >= ASK_EVERY_MS:
        return None
    return f"{node.key} asks its core {at_once} times within {asked_ms[-1] - asked_ms[0]} ms when it is due"


def i23_upstream_sends_committed_records_only(facts: Facts, node: DiskImage, end_offset: Offset) -> Complaint:
    """I23: a replica that does not lead sends nothing but committed records."""
    if end_offset <= facts.committed_end:
        return None
    return f"{node.key} does not lead and sends records up to {end_offset}, committed is {facts.committed_end}"


def i23_committed_records_only_behind_upstreams(facts: Facts, node: DiskImage, entry: LogEntry) -> Complaint:
    """I23: an observer with upstreams never has a record that might be truncated."""
    known = facts.committed.covering(entry.base_offset)
    return None if known is entry else f"{node.key} has upstreams and appends {entry}, which is not committed: {known}"


def e7_leader_without_listeners_resigns(node: DiskImage, silent_ms: int, limit_ms: int) -> Complaint:
    """E7, check quorum: a leader from whom no majority fetches gives up (KAFKA-15489)."""
    if silent_ms <= limit_ms:
        return None
    return f"{node.key} still leads, {silent_ms} ms after a majority asked for anything, limit {limit_ms}"


def e8_leader_that_gets_nowhere_resigns(node: DiskImage, stalled_ms: int, limit_ms: int) -> Complaint:
    """E8: a leader that commits nothing, with followers that fetch and do not get on, gives up."""
    if stalled_ms <= limit_ms:
        return None
    return f"{node.key} still leads, and has committed no waiting record for {stalled_ms} ms, limit {limit_ms}"


def i19_every_request_is_answered(node: DiskImage, forgotten: Sequence[int]) -> Complaint:
    """I19: a request is answered, or its core knows that it waits."""
    return None if not forgotten else f"{node.key} has forgotten the requests {list(forgotten)}"


def i22_nothing_unexpected(node: DiskImage, error: BaseException) -> Complaint:
    """I22: no replica stops itself unless its disk failed."""
    cause = error.__cause__ or error
    return f"{node.key} stopped itself: {type(cause).__name__}: {cause}"


def l16_core_knows_its_log(node: DiskImage, believed: Mapping[str, object], found: Mapping[str, object]) -> Complaint:
    """L16: the core's view of the log equals the log as it is opened anew."""
    different = {name: (believed[name], found[name]) for name in believed if believed[name] != found[name]}
    return f"the core of {node.key} goes by another log than there is: {different}" if different else None


def v13_due_is_done_in_time(node: DiskImage, due_ms: int, is_waiting: bool) -> Complaint:
    """V13: a replica that nothing holds up does what is due in time."""
    return f"the core of {node.key} is due at {due_ms} ms and was not called" if is_waiting else None


def s6_full_disk_takes_no_records(node: DiskImage, entry: LogEntry, *, told: bool) -> Complaint:
    """S6: a follower that knows of its full disk takes nothing more, and so acknowledges nothing more."""
    return f"{node.key} takes {entry} though it knows that its disk is full" if told else None


def s6_full_disk_of_a_leader_takes_its_reserve(
    node: DiskImage, entry: LogEntry, taken_bytes: int, reserve_bytes: int
) -> Complaint:
    """S6: the appends that a leader had accepted when its disk became full fit into the reserve of the disk."""
    if taken_bytes <= reserve_bytes:
        return None
    return f"{node.key} writes {entry} on a full disk, after {taken_bytes} bytes, and its reserve is {reserve_bytes}"


def s6_full_leader_refuses(node: DiskImage, number: int, *, told: bool) -> Complaint:
    """S6: a leader that knows of its full disk accepts no more appends."""
    return f"{node.key} accepts append {number} though it knows that its disk is full" if told else None


def s10_hung_disk_costs_the_leadership(node: DiskImage, stuck_ms: int, limit_ms: int) -> Complaint:
    """S10: a leader whose disk makes nothing durable gives up, for its followers hear from it and would keep it."""
    if stuck_ms <= limit_ms:
        return None
    return f"{node.key} still leads, and its disk has made nothing durable for {stuck_ms} ms, limit {limit_ms}"


def s14_going_back_is_said(node: DiskImage, voter: ReplicaKey, before: int, said: int) -> Complaint:
    """S14: a leader that finds a voter with less than it had says so: an older copy of its disk is there."""
    return None if said > before else f"leader {node.key} counts less of {voter} than before, and does not say so"


def invariant_of(function: Callable[..., Any]) -> str:
    """Return the id of the invariant that a function of this module checks: `i12_…` is I12."""
    return function.__name__.partition("_")[0].upper()


INVARIANTS: Final[Mapping[str, Sequence[Callable[..., Complaint]]]] = {
    number: [
        value
        for module in (application_invariants, election_invariants, list_invariants, voter_invariants, None)
        for name, value in list(vars(module).items() if module is not None else globals().items())
        if name.startswith(f"{number.lower()}_")
    ]
    for number in (
        *(f"I{n}" for n in range(1, 21)),
        "I22",
        "I23",
        "E7",
        "E8",
        "L16",
        "M5",
        "S6",
        "S10",
        "S14",
        "HOLD",
        "V6",
        "V9",
        "V10",
        "V13",
    )
}
"""Every check of this module and of the other modules of invariants by its id."""
