"""Watches a simulated quorum and asks, at each thing that happens, the invariants that it could break.

The checks are in `kraftlib.testing.invariants`; this module says when each of them is asked, and with which facts. The
first complaint ends the run: later events happen in a world that is already wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kraftlib.consensus import events as ev
from kraftlib.consensus.extensions.misconfiguration import VOTERS_TAG
from kraftlib.consensus.extensions.upstreams import is_marked, takes_committed_only
from kraftlib.consensus.fetch_leader import WENT_BACK
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.roles import Leader, Role
from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.records.batch import Batch, read_batches
from kraftlib.runtime.opening import view_of
from kraftlib.testing import application_invariants as app_inv
from kraftlib.testing import election_invariants as elections
from kraftlib.testing import invariants as inv
from kraftlib.testing import list_invariants as lists_of_voters
from kraftlib.testing import voter_invariants as voter_inv
from kraftlib.testing.facts import Facts, LogEntry
from kraftlib.testing.images import is_same
from kraftlib.testing.trace import Step, Trace
from kraftlib.testing.violation import Complaint
from kraftlib.testing.watched_core import ASKED_AT_ONCE
from kraftlib.types import ZERO_UUID, ElectionState, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from kraftlib.testing.clock import Timeline
    from kraftlib.testing.copies import Witness
    from kraftlib.testing.network import Port
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.process import Process

Message = Any

STANDING = frozenset({Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER})
ROLE_NUMBERS = {role: number for number, role in enumerate(Role)}

REBUILT = frozenset({ev.LogTruncated, ev.SnapshotInstalled, ev.Repaired})
"""Events after which the core has made its picture of the log anew, and nothing is on its way to the log."""

ALARMS = (
    "two leaders",
    "unknown leadership",
    "truncation below the high watermark",
    "empty truncation",
    "foreign batch",
    "epoch jump",
    "impossible snapshot",
)
"""Reasons for a refusal that mean lost data or a lie of another replica. Here that happens only on purpose."""


class Checker:
    """All-knowing, and pedantic."""

    def __init__(
        self,
        timeline: Timeline,
        trace: Trace,
        nodes: Mapping[ReplicaId, SimulatedNode],
        first_voters: Sequence[ReplicaKey],
        complain: Callable[[str, str], None],
    ) -> None:
        self.facts = Facts()
        self.elections = 0
        """Number of times that a replica became leader."""
        self.on_elected: Callable[[SimulatedNode], None] | None = None
        """Is told of every new leader, before any other part hears of it."""
        self.alarms_expected = False
        self.tolerated: set[str] = set()
        """Alarms that are no violation in this world."""
        self._timeline = timeline
        self._trace = trace
        self._nodes = nodes
        self.first_voters = tuple(first_voters)
        """The voters while no log names others: of the configuration, or of the bootstrap checkpoint."""
        self.witnesses: list[Witness] = []
        """Leaders that count a voter for more than is on its disk since an older copy was put back there."""
        self._complain = complain

    def check(self, invariant: Callable[..., Complaint], *arguments: Any, **named: Any) -> None:
        """Ask one invariant."""
        complaint = invariant(*arguments, **named)
        if complaint is not None:
            self._complain(inv.invariant_of(invariant), complaint)

    def voters_of(self, node: SimulatedNode) -> Sequence[ReplicaKey]:
        """Return the latest voter set in the log of `node`, committed or not."""
        tail = node.chain.tail
        return self.listed_voters(node) if tail is None or tail.voters is None else tail.voters

    def listed_voters(self, node: SimulatedNode) -> Sequence[ReplicaKey]:
        """Return the voters by which `node` goes while its log names none; a checkpoint counts more than any list."""
        is_static = all(voter.directory_id is None for voter in self.first_voters)
        return (node.edited_voters if is_static else ()) or self.first_voters

    def static_ids(self, node: SimulatedNode) -> Sequence[ReplicaId]:
        """Return the ids of the static voters that `node` counts; none, if its log or its checkpoint names voters."""
        tail = node.chain.tail
        listed = self.listed_voters(node) if tail is None or tail.voters is None else ()
        return sorted(voter.id for voter in listed if voter.directory_id is None)

    # --- starts ------------------------------------------------------------------------------------------------------

    def start_refused(self, node: SimulatedNode, refusal: ConfigError) -> None:
        """A replica was not started, since its configuration does not fit its disk."""
        lists = (self.static_ids(node), node.began_with)
        self.check(lists_of_voters.i16_only_another_list_is_refused, node, *lists, str(refusal))

    def start_allowed(self, node: SimulatedNode) -> None:
        """A replica is about to begin with the configuration and the disk that it has."""
        ids, durable = self.static_ids(node), node.elections.read()
        if durable is None or durable.epoch == 0:
            node.began_with = ids
        elif ids and not durable.amnesiac:
            self.check(lists_of_voters.i16_another_list_is_refused, node, ids, node.began_with)

    # --- the core ----------------------------------------------------------------------------------------------------

    def handled(self, process: Process) -> None:
        """The core has handled an event; its actions are not performed yet."""
        state, node = process.replica.state, process.node
        role_state, before = state.role_state, process.seen_role_state
        if role_state is not before or state.epoch != process.seen_epoch:
            self._role_changed(process)
        high_watermark = state.high_watermark
        if high_watermark is not None and high_watermark != process.seen_high_watermark:
            # A leader that commits and resigns within one event committed as a leader.
            leader = role_state if isinstance(role_state, Leader) else before
            self._high_watermark_moved(process, high_watermark, leader if isinstance(leader, Leader) else None)
        process.seen_high_watermark = high_watermark
        if self.witnesses:
            self._look_at_witnesses(process)
        if type(process.last_event) in REBUILT:
            self.look_at_picture(process)
        if state.log.flushed_offset > node.flushed_offset:
            self.check(inv.i12_core_knows_what_is_durable, node, state.log.flushed_offset)
        if state.refused and not self.alarms_expected:
            for reason in ALARMS:
                if reason in self.tolerated:
                    continue
                if reason == "unknown leadership" and (node.disks > 1 or node.votes_lost):
                    continue  # messages name a leader by id, and its id had another disk then, or another memory
                if reason in state.refused:
                    self._complain("I11", f"{node.key} has refused what a peer sent: {reason}")

    def _look_at_witnesses(self, process: Process) -> None:
        for witness in [witness for witness in self.witnesses if witness.process is process]:
            role = process.replica.state.role_state
            progress = role.progress.get(witness.key.id) if isinstance(role, Leader) else None
            if progress is None or not is_same(progress.key, witness.key) or progress.end_offset > witness.counted:
                self.witnesses.remove(witness)
            elif progress.end_offset < witness.counted:
                self.witnesses.remove(witness)
                said = process.replica.state.refused.get(WENT_BACK, 0)
                self.check(inv.s14_going_back_is_said, process.node, witness.key, witness.said, said)

    def asked_when(self, process: Process, deadline_ms: int | None, asked_ms: Sequence[int]) -> None:
        """The core has said when it wants to be called next, as it has at these times before."""
        self.check(inv.i20_nothing_stays_due, process.node, deadline_ms, process.replica.state.now_ms)
        if not process.node.config.append_linger_ms:  # the end of each linger is a time at which the timer asks
            self.check(inv.i20_is_not_asked_all_the_time, process.node, asked_ms, ASKED_AT_ONCE)

    def look_at_picture(self, process: Process) -> None:
        """Compare what the core knows, or is about to be told, of its log with the log."""
        believed, found = _picture(process.replica.state.log), _picture(view_of(process.log, process.node.config))
        untold = process.untold.intersection(process.log.snapshots())
        believed["snapshots"] = tuple(sorted({*process.replica.state.log.snapshots, *untold}))
        self.check(inv.l16_core_knows_its_log, process.node, believed, found)

    def _role_changed(self, process: Process) -> None:
        state, node, facts = process.replica.state, process.node, self.facts
        self.check(elections.i2_epoch_never_falls, node, process.seen_epoch, state.epoch)
        process.seen_role_state, process.seen_epoch = state.role_state, state.epoch
        role, epoch = state.role, state.epoch
        self._trace.add(self._timeline.now_us, Step.ROLE, node.key.id, ROLE_NUMBERS[role], epoch, str(role))
        if role in STANDING and not (role is Role.LEADER and facts.leaders.get(epoch) == node.key):
            # Its log names them, unless the core is about to append more, which may name others.
            is_behind = state.log.end_offset > node.chain.end_offset
            voters = [voter.key for voter in state.voters] if is_behind else self.voters_of(node)
            self.check(elections.i16_only_voters_stand, node, voters, str(role))
        if role is Role.LEADER:
            process.leads_since_us = self._timeline.now_us
            if isinstance(state.role_state, Leader):
                start = state.role_state.epoch_start_offset
                self.check(inv.i8_new_leader_committed_nothing, node, state.high_watermark, start)
        # Within one event a replica may become leader and resign again; it led all the same.
        led = role is Role.LEADER or (role is Role.RESIGNED and epoch not in facts.leaders)
        if led and facts.leaders.get(epoch) != node.key:
            self.elections += 1
            self.check(elections.i1_one_leader_per_epoch, facts, epoch, node.key)
            self.check(elections.i5_leader_has_everything_committed, facts, epoch, node)
            if self.on_elected is not None:
                self.on_elected(node)
        elif state.leader_id is not None:
            self.check(elections.i1_known_leader, facts, epoch, state.leader_id, node)

    def _high_watermark_moved(self, process: Process, high_watermark: Offset, leader: Leader | None) -> None:
        state, node, facts = process.replica.state, process.node, self.facts
        highest = process.highest_high_watermark
        self.check(inv.i7_high_watermark_never_falls, node, highest, high_watermark, state.log.end_offset)
        process.highest_high_watermark = max(highest, high_watermark)
        self._trace.add(self._timeline.now_us, Step.COMMITTED, node.key.id, high_watermark, int(leader is not None))
        if leader is not None:
            self.check(inv.i7_newest_leader_never_behind, facts, node, state.epoch, high_watermark)
            self.check(
                inv.i8_majority_before_commit,
                node,
                high_watermark,
                leader.epoch_start_offset,
                self.voters_of(node),
                self._nodes,
            )
            entry = node.chain.covering(high_watermark - 1)
            if entry is not None and high_watermark > facts.committed_end:
                facts.committed_under = tuple(self.voters_of(node))
                conflict = facts.commit(entry)
                if conflict is not None:
                    self._complain(
                        "I6", f"{node.key} commits {entry}, whose past is not what was committed: {conflict}"
                    )
        if process.appended_end >= high_watermark:
            self.check(inv.i6_no_divergence_below_the_high_watermark, facts, node, high_watermark)

    # --- the disk ----------------------------------------------------------------------------------------------------

    def appended(self, process: Process, batches: Sequence[Batch]) -> None:
        """Batches stand in the log of a node."""
        node, facts = process.node, self.facts
        chain = node.chain
        state = process.replica.state
        leads = state.epoch if isinstance(state.role_state, Leader) else None
        for batch in batches:
            parent = chain.tail
            entry, is_new = facts.entry_of(batch, parent, node.key.id)
            self.check(inv.i13_only_the_leader_writes, facts, node, entry, is_new=is_new, leads=leads)
            if is_new and leads is not None:
                self.check(inv.i13_epoch_opens_with_its_leader, node, entry, self.voters_of(node))
            if is_new and entry.voters is not None and (parent is None or parent.voters is None):
                self.check(voter_inv.i16_first_set_names_the_voters, entry, self.first_voters)
            if not is_new:
                self.check(inv.i4_same_place_same_record, entry, batch, parent)
            elif entry.voters is not None and parent is not None and entry.voters != parent.voters:
                self.check(voter_inv.i16_voter_sets_differ_by_one, entry)
                if isinstance(state.role_state, Leader):
                    start = state.role_state.epoch_start_offset
                    self.check(voter_inv.i16_change_only_in_a_committed_epoch, facts, entry, start)
            # A leader may have resigned in the very turn in which it won, and opens its epoch all the same.
            follows = state.leader_id != node.key.id
            self.check(inv.s6_full_disk_takes_no_records, node, entry, told=state.disk_full and follows)
            if leads is not None and not batch.is_control:
                self._leader_takes(process, entry, state.disk_full)
            if takes_committed_only(state):
                self.check(inv.i23_committed_records_only_behind_upstreams, facts, node, entry)
            chain.append(entry)
            self._trace.add(self._timeline.now_us, Step.APPENDED, node.key.id, batch.base_offset, batch.epoch)
        process.appended_end = chain.end_offset
        high_watermark = state.high_watermark
        if high_watermark is not None and not leads and batches and batches[0].base_offset < high_watermark:
            # A follower learns of commits together with the records, and appends them only now.
            self.check(inv.i6_no_divergence_below_the_high_watermark, facts, node, high_watermark)

    def _leader_takes(self, process: Process, entry: LogEntry, disk_full: bool) -> None:
        reserve_bytes = process.node.config.disk_reserve_bytes
        if not disk_full or not reserve_bytes:
            process.taken_bytes = 0
            return
        self.check(
            inv.s6_full_disk_of_a_leader_takes_its_reserve, process.node, entry, process.taken_bytes, reserve_bytes
        )
        process.taken_bytes += entry.batch.size

    def truncated(self, process: Process, end_offset: Offset) -> None:
        """The log of a node was cut back."""
        node, state = process.node, process.replica.state
        dropped = node.chain.truncate(end_offset)
        process.appended_end = end_offset
        self._trace.add(self._timeline.now_us, Step.TRUNCATED, node.key.id, end_offset)
        leads = state.epoch if isinstance(state.role_state, Leader) else None
        self.check(inv.i13_leader_never_truncates, node, leads, end_offset)
        self.check(inv.i11_truncation_has_a_reason, node, _no_divergence(process.last_event))
        if isinstance(process.last_event, ev.ResponseReceived) and _no_divergence(process.last_event) is None:
            named = process.last_event.response.responses[0].partitions[0].diverging_epoch
            leader_end = OffsetAndEpoch(epoch=named.epoch, offset=named.end_offset)
            self.check(inv.i11_truncation_goes_far_enough, node, node.chain.tail, leader_end)
        known = process.highest_high_watermark
        self.check(inv.i11_nothing_committed_is_truncated, self.facts, node, dropped, known, state.epoch)

    def installed(self, process: Process, snapshot_id: OffsetAndEpoch) -> None:
        """A snapshot has taken the place of the log of a node."""
        node, facts = process.node, self.facts
        self._trace.add(self._timeline.now_us, Step.INSTALLED, node.key.id, snapshot_id.offset)
        self.check(inv.i14_snapshot_covers_committed_records_only, facts, node, snapshot_id)
        if process.replica.state.amnesia is None:
            # One whose log was damaged drops what it cannot vouch for, and counts for nothing until it has it again.
            self.check(inv.i11_snapshot_takes_nothing_committed, facts, node, snapshot_id, process.replica.epoch)
        node.chain.begin_at(facts.committed.covering(snapshot_id.offset - 1))
        process.appended_end = snapshot_id.offset

    def deleted(self, process: Process, snapshot_id: OffsetAndEpoch) -> None:
        """A node has forgotten what a snapshot replaces."""
        held = {hold.name: hold.offset for hold in process.retention.holds}
        self.check(app_inv.hold_keeps_the_log, process.node, snapshot_id, held)

    def snapshot_created(
        self, process: Process, snapshot_id: OffsetAndEpoch, named: Sequence[ReplicaKey] | None
    ) -> None:
        """A node has written a snapshot, which names these voters."""
        self._trace.add(self._timeline.now_us, Step.SNAPSHOT, process.node_id, snapshot_id.offset, snapshot_id.epoch)
        self.check(inv.i14_snapshot_covers_committed_records_only, self.facts, process.node, snapshot_id)
        self.check(inv.i14_snapshot_names_its_voters, self.facts, process.node, snapshot_id, named)

    def persisted(self, process: Process, before: ElectionState | None, after: ElectionState) -> None:
        """The election state of a node is durable."""
        node = process.node
        leader = -1 if after.leader_id is None else after.leader_id
        self._trace.add(self._timeline.now_us, Step.PERSISTED, node.key.id, after.epoch, leader)
        self.check(elections.i2_epoch_never_falls, node, 0 if before is None else before.epoch, after.epoch)
        self.check(elections.i3_vote_is_not_forgotten, node, before, after)

    def crashed(self, node: SimulatedNode) -> None:
        """A node has lost whatever was not durable: a sole voter perhaps the very epoch that it had just won.

        No other loss could matter: a candidate that asked for votes has made its own durable, and granted votes stay
        granted.
        """
        durable, is_alone = node.elections.read(), len(self.voters_of(node)) == 1
        for epoch in [epoch for epoch, key in self.facts.leaders.items() if key == node.key and is_alone]:
            if not node.votes_lost and epoch > (0 if durable is None else durable.epoch):
                del self.facts.leaders[epoch]
        self.check(inv.i9_committed_is_durable, self.facts, self._nodes)

    def failed(self, node: SimulatedNode, error: BaseException) -> None:
        """A replica has stopped itself."""
        self.check(inv.i22_nothing_unexpected, node, error)

    # --- the network -------------------------------------------------------------------------------------------------

    def request_sent(self, port: Port, request: Message) -> None:
        """A request is about to leave."""
        node = self._nodes.get(port.node_id)
        if node is None:
            return  # a client's
        durable = node.elections.read()
        partition: Any
        match request:
            case FetchRequest():
                partition = request.topics[0].partitions[0]
                epoch = partition.current_leader_epoch
                self.check(inv.i12_fetch_only_beyond_what_is_durable, node, partition.fetch_offset)
                self.check(elections.i12_amnesia_vouches_for_nothing, node, durable, request.replica_state.replica_id)
                if node.process is not None:
                    known = node.process.replica.state.log.flushed_offset
                    self.check(inv.i12_core_vouches_for_what_it_knows, node, known, partition.fetch_offset)
                    state = node.process.replica.state
                    if state.log.holes and request.replica_state.replica_id >= 0:
                        # Records that fill a hole are on the disk, beside the log, before more of it is fetched.
                        missing = (
                            state.log.holes[0].start_offset if state.filling is None else state.filling.next_offset
                        )
                        self.check(inv.i12_damage_vouches_for_nothing, node, missing, partition.fetch_offset)
            case VoteRequest():
                partition = request.topics[0].partitions[0]
                epoch = partition.replica_epoch
                self.check(elections.i16_only_voters_stand, node, self.voters_of(node), "asking for votes")
                if node.process is not None:
                    claimed = OffsetAndEpoch(epoch=partition.last_offset_epoch, offset=partition.last_offset)
                    tail, end_offset = node.chain.tail, node.process.appended_end
                    last_epoch = tail.epoch if tail is not None and tail.end_offset == end_offset else None
                    self.check(elections.i5_candidate_is_honest, node, end_offset, last_epoch, claimed)
                if not partition.pre_vote:
                    self._trace.add(self._timeline.now_us, Step.VOTED, node.key.id, node.key.id, epoch)
                    self.check(elections.i3_one_vote_per_epoch, self.facts, node.key, epoch, node.key)
                    self.check(elections.i12_vote_is_durable_before_it_is_spoken, node, durable, epoch, node.key)
                    claimed = OffsetAndEpoch(epoch=partition.last_offset_epoch, offset=partition.last_offset)
                    self.check(elections.i12_candidate_names_what_is_durable, node, claimed)
            case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
                partition = request.topics[0].partitions[0]
                epoch = partition.leader_epoch
                self.check(elections.i1_known_leader, self.facts, epoch, partition.leader_id, node)
            case FetchSnapshotRequest():
                epoch = request.topics[0].partitions[0].current_leader_epoch
            case _:
                return
        self.check(elections.i2_epoch_is_durable_before_it_is_spoken, self.facts, node, durable, epoch)

    def response_sent(self, port: Port, request: Message, response: Message) -> None:
        """The answer to `request` is about to leave."""
        node = self._nodes[port.node_id]
        durable = node.elections.read()
        partition: Any
        match response:
            case FetchResponse():
                if not response.responses:
                    return
                partition = response.responses[0].partitions[0]
                epoch = partition.current_leader.leader_epoch
                if partition.records:
                    self._look_at_lists(node, request)
                    if node.process is not None and self.facts.leaders.get(epoch) != node.key and is_marked(request):
                        end_offset = _end_of(partition.records)
                        self.check(inv.i23_upstream_sends_committed_records_only, self.facts, node, end_offset)
                    else:
                        self.check(elections.i1_known_leader, self.facts, epoch, node.key.id, node)
            case VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                if not response.topics:
                    return
                partition = response.topics[0].partitions[0]
                epoch = partition.leader_epoch
                if isinstance(response, VoteResponse) and partition.vote_granted:
                    self._vote_granted(node, request, epoch, durable)
            case _:
                return
        self.check(elections.i2_epoch_is_durable_before_it_is_spoken, self.facts, node, durable, epoch)

    def _look_at_lists(self, node: SimulatedNode, request: FetchRequest | VoteRequest) -> None:
        said = next((data for tag, data in request.unknown_tagged_fields if tag == VOTERS_TAG), None)
        self.check(lists_of_voters.i16_lists_do_not_mix, node, self.static_ids(node), said, type(request).__name__)

    def _vote_granted(
        self, node: SimulatedNode, request: VoteRequest, epoch: int, durable: ElectionState | None
    ) -> None:
        self._look_at_lists(node, request)
        asked = request.topics[0].partitions[0]
        directory_id = asked.replica_directory_id
        candidate = ReplicaKey(asked.replica_id, None if directory_id == ZERO_UUID else directory_id)
        self.check(elections.i3_amnesia_gives_no_vote, node, durable, candidate)
        tail = node.chain.tail
        # A vote that is given to the same candidate once more is the one that was judged when it was cast.
        is_new = asked.pre_vote or self.facts.votes.get((node.key, epoch)) != candidate
        if is_new and tail is not None and node.process is not None and tail.end_offset == node.process.appended_end:
            claimed = OffsetAndEpoch(epoch=asked.last_offset_epoch, offset=asked.last_offset)
            own = OffsetAndEpoch(epoch=tail.epoch, offset=tail.end_offset)
            self.check(elections.i5_no_vote_for_a_shorter_log, node, candidate, claimed, own)
        if asked.pre_vote:
            return
        self._trace.add(self._timeline.now_us, Step.VOTED, node.key.id, candidate.id, epoch)
        self.check(elections.i3_one_vote_per_epoch, self.facts, node.key, epoch, candidate)
        self.check(elections.i12_vote_is_durable_before_it_is_spoken, node, durable, epoch, candidate)


def _picture(view: LogView) -> dict[str, object]:
    return {
        "start": view.start_offset,
        "end": view.end_offset,
        "last epoch": view.last_epoch,
        "epochs": tuple(view.epoch_starts),
        "snapshots": tuple(view.snapshots),
        "voters": view.voters.latest,
        "kraft.version": view.kraft_version.latest,
        "holes": tuple(view.holes),
    }


def _end_of(records: bytes | memoryview) -> Offset:
    """Return one past the last record; 0 of records that a disk has damaged, which are refused where they arrive."""
    try:
        return read_batches(records)[-1].end_offset
    except CorruptBatchError:
        return 0


def _no_divergence(event: ev.Event | None) -> str | None:
    """Return what else than a diverging answer of the leader has led to a truncation."""
    if isinstance(event, ev.ResponseReceived) and isinstance(event.response, FetchResponse):
        if event.response.responses and event.response.responses[0].partitions[0].diverging_epoch.epoch >= 0:
            return None
        return "a Fetch answer that names no divergence"
    return type(event).__name__
