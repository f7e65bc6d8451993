"""The safety promises, which must hold in every schedule of the core fuzzer, on the deeds and words of the cores.

The ids are those of `kraftlib.testing.invariants`; here each is checked once, at the action that would break it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.batch import Batch
from kraftlib.records.control import decode_control
from kraftlib.records.control_messages import VotersRecord
from kraftlib.types import ElectionState, Epoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tools.core_fuzz.budget import is_impaired

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost

Message = Any


class BrokenPromiseError(Exception):
    """A promise does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what


@attrs.frozen
class Committed:
    """A batch that is committed."""

    epoch: Epoch
    data: bytes
    end_offset: Offset
    in_epoch: Epoch = 0
    """Of the leader that committed it, perhaps much later than it was written."""


def require(holds: bool, invariant: str, what: str) -> None:
    """Raise BrokenPromiseError unless it holds. For rare events: the text is made in any case."""
    if not holds:
        raise BrokenPromiseError(invariant, what)


class Promises:
    """All that is remembered of a run to judge what comes next."""

    def __init__(self, voters: VoterSet) -> None:
        self.committed: dict[Offset, Committed] = {}
        self.committed_end: Offset = 0
        self.leaders: dict[Epoch, ReplicaKey] = {}
        self.commits = 0
        self.elections = 0
        self._votes: dict[tuple[ReplicaKey, Epoch], ReplicaId] = {}
        self._places: dict[tuple[Offset, Epoch], tuple[bytes, Epoch]] = {}
        """The bytes at an offset and epoch, and the epoch of the record before: both are the same everywhere."""
        self._voters = voters
        """The voters that the committed log names."""

    # --- elections ---------------------------------------------------------------------------------------------------

    def election_written(self, host: CoreHost, election: ElectionState) -> None:
        """An election state is made durable."""
        before = host.store.election
        if before is not None and election.epoch < before.epoch:
            raise BrokenPromiseError("I2", f"{host} goes back from epoch {before.epoch} to {election.epoch}")
        if before is not None and before.amnesiac and not election.amnesiac:
            self._memory_is_back(host, election.epoch)
        voted = election.voted_key
        if voted is None:
            same_epoch = before is not None and before.epoch == election.epoch
            if same_epoch and before is not None and before.voted_key is not None and election.leader_id != host.key.id:
                raise BrokenPromiseError("I3", f"{host} forgets its vote of epoch {election.epoch}")
            return
        known = self._votes.setdefault((host.key, election.epoch), voted.id)
        if known != voted.id:
            raise BrokenPromiseError("I3", f"{host} votes for {voted.id} in epoch {election.epoch} after {known}")
        if voted.id != host.key.id and (before is None or before.voted_key != voted or before.epoch != election.epoch):
            self._vote_is_wise(host, election.epoch)

    def _memory_is_back(self, host: CoreHost, epoch: Epoch) -> None:
        """A replica votes again: no vote that it has forgotten can still elect, and it has all that it had told of.

        A vote of a newer epoch can do no harm if it was for a replica that no set of the leader's log names any more.
        """
        leader = host.world.hosts.get(self.leaders[epoch].id) if epoch in self.leaders else None
        sets = [self._voters]
        if leader is not None:
            sets += leader.store.view(host.world.static_voters).voters.since(self.committed_end - 1)
        for (key, voted_epoch), voted_id in self._votes.items():
            if key == host.key and voted_epoch > epoch and any(voted_id in voters.ids for voters in sets):
                raise BrokenPromiseError(
                    "I3", f"{host} votes again in epoch {epoch}, and has voted for {voted_id} in {voted_epoch}"
                )
        store = host.store
        have = {batch.base_offset: batch.epoch for batch in store.batches}
        for offset, entry in self.committed.items():
            told = store.told.get(offset) == entry.epoch and store.start_offset <= offset
            if told and have.get(offset) != entry.epoch:
                raise BrokenPromiseError(
                    "I5", f"{host} votes again in epoch {epoch} without {offset}@{entry.epoch}, which it once had"
                )
        store.told_end_offset, store.told = 0, {}

    def _vote_is_wise(self, host: CoreHost, epoch: Epoch) -> None:
        request = getattr(host.hearing, "request", None)
        if not isinstance(request, VoteRequest):
            return
        partition = request.topics[0].partitions[0]
        claimed = OffsetAndEpoch(offset=partition.last_offset, epoch=partition.last_offset_epoch)
        own = host.store.end
        if claimed < own and not host.store.is_amnesiac:
            raise BrokenPromiseError(
                "I5", f"{host} votes in epoch {epoch} for a log that ends at {claimed}; its own ends at {own}"
            )

    def became_leader(self, host: CoreHost) -> None:
        """A core has entered the role of leader."""
        epoch = host.running.epoch
        other = self.leaders.setdefault(epoch, host.key)
        require(other == host.key, "I1", f"epoch {epoch} has leaders {other} and {host.key}")
        self.elections += 1
        host.world.errands.elected(host)
        store = host.store
        election = store.election
        durable = election is not None and election.epoch == epoch and election.leader_id == host.key.id
        require(durable, "I2", f"{host} leads epoch {epoch} and has {election} on its disk")
        require(not store.holes, "I5", f"{host} is elected in epoch {epoch} with the holes {store.holes}")
        have = {batch.base_offset: (batch.epoch, bytes(batch.data)) for batch in store.batches}
        for offset, entry in self.committed.items():
            if offset >= store.start_offset and have.get(offset) != (entry.epoch, entry.data):
                found = have.get(offset)
                text = f"{host} leads epoch {epoch} without {offset}@{entry.epoch}, which is committed"
                raise BrokenPromiseError("I5", f"{text}; there is {offset}@{found[0]}" if found else text)

    # --- what is said ------------------------------------------------------------------------------------------------

    def request_sent(self, host: CoreHost, request: Message) -> None:
        """A request leaves: all that it vouches for is durable."""
        store = host.store
        if isinstance(request, FetchRequest):
            self._fetch_is_honest(host, request)
        elif isinstance(request, VoteRequest):
            partition = request.topics[0].partitions[0]
            claimed = OffsetAndEpoch(offset=partition.last_offset, epoch=partition.last_offset_epoch)
            if claimed != store.end:
                raise BrokenPromiseError("I5", f"{host} says that its log ends at {claimed}, it ends at {store.end}")
            if store.holes or store.is_amnesiac:
                raise BrokenPromiseError(
                    "I12", f"{host} stands with holes {store.holes}, amnesiac: {store.is_amnesiac}"
                )
            if not host.running.is_voter:
                raise BrokenPromiseError("I16", f"{host} stands and is no voter")
            if not partition.pre_vote:
                self._is_durable(host, partition.replica_epoch, request)
                flushed = store.flushed_offset
                require(claimed.offset <= flushed, "I12", f"{host} stands with {claimed}, durable is {flushed}")

    def _fetch_is_honest(self, host: CoreHost, request: FetchRequest) -> None:
        partition, store = request.topics[0].partitions[0], host.store
        offset, epoch = partition.fetch_offset, partition.last_fetched_epoch
        self._is_durable(host, partition.current_leader_epoch, request)
        if request.replica_state.replica_id < 0:
            return
        if store.is_amnesiac:
            raise BrokenPromiseError("I12", f"{host} fetches in its own name and has lost its election")
        if offset > store.flushed_offset:
            raise BrokenPromiseError("I12", f"{host} fetches from {offset}, durable is {store.flushed_offset}")
        # A snapshot was just set aside: its records were acknowledged before, and the core hears of the loss next.
        is_news = any(type(event) is ev.SnapshotLost for event in host.events)
        if store.holes and offset > store.repaired_to and not is_news:
            raise BrokenPromiseError("I12", f"{host} fetches from {offset} and lacks {store.holes}")
        if not store.holes and epoch != store.epoch_before(offset):
            raise BrokenPromiseError("I12", f"{host} fetches from {offset}@{epoch}, there ends {store.end}")

    def response_sent(self, host: CoreHost, response: Message) -> None:
        """An answer leaves: a granted vote is durable."""
        if not isinstance(response, VoteResponse) or not response.topics:
            return
        partition = response.topics[0].partitions[0]
        request = getattr(host.hearing, "request", None)
        if not partition.vote_granted or not isinstance(request, VoteRequest):
            return
        asked = request.topics[0].partitions[0]
        if host.store.is_amnesiac:
            raise BrokenPromiseError("I3", f"{host} grants a vote and has lost its election")
        if asked.pre_vote:
            return
        election = host.store.election
        voted = None if election is None else election.voted_key
        durable = election is not None and election.epoch == asked.replica_epoch
        if not durable or voted is None or voted.id != asked.replica_id:
            raise BrokenPromiseError("I12", f"{host} grants {asked.replica_id} its vote; on its disk is {election}")

    def _is_durable(self, host: CoreHost, epoch: Epoch, message: Message) -> None:
        election = host.store.election
        if epoch > 0 and (election is None or election.epoch < epoch):
            raise BrokenPromiseError("I2", f"{host} sends {type(message).__name__} of epoch {epoch}, has {election}")

    # --- the log -----------------------------------------------------------------------------------------------------

    def appended(self, host: CoreHost, batches: tuple[Batch, ...]) -> None:
        """Batches are appended: one offset and epoch is one record, with one past."""
        before = host.store.epoch_before(batches[0].base_offset)
        for batch in batches:
            place, data = (batch.base_offset, batch.epoch), bytes(batch.data)
            known = self._places.setdefault(place, (data, before))
            if known[0] != data or (-1 not in (known[1], before) and known[1] != before):
                raise BrokenPromiseError(
                    "I4", f"{host} has at {place[0]}@{place[1]} other bytes than the other replicas"
                )
            if batch.epoch > host.running.epoch:
                raise BrokenPromiseError("I4", f"{host} appends {place[0]}@{place[1]} in epoch {host.running.epoch}")
            before = batch.epoch
        leads = isinstance(host.running.state.role_state, Leader)
        if leads and any(self.leaders.get(batch.epoch, host.key) != host.key for batch in batches):
            raise BrokenPromiseError("I13", f"{host} writes in an epoch that it does not lead")

    def rebuilt(self, host: CoreHost) -> None:
        """The log was cut, repaired or replaced: it is a log that could have been written, and the core knows it."""
        store, known = host.store, host.running.state.log
        before: Batch | None = None
        for batch in store.batches:
            place = self._places.get((batch.base_offset, batch.epoch))
            follows = before is not None and before.end_offset == batch.base_offset
            if place is None or place[0] != bytes(batch.data):
                raise BrokenPromiseError(
                    "I4", f"{host} has at {batch.base_offset}@{batch.epoch} bytes that no leader wrote"
                )
            if before is not None and follows and place[1] not in (-1, before.epoch):
                raise BrokenPromiseError(
                    "I4", f"{host} has {batch.base_offset}@{batch.epoch} behind epoch {before.epoch}"
                )
            before = batch
        found = store.view(host.world.static_voters)
        ours: tuple[object, ...] = (known.start_offset, known.end, known.holes)
        theirs: tuple[object, ...] = (found.start_offset, found.end, found.holes)
        if not store.is_damaged and known.header_offset <= known.end_offset:
            # Else voter sets may stand in missing records, or were told by the header of a snapshot that is lost since.
            ours += (known.voters.latest, known.kraft_version.latest)
            theirs += (found.voters.latest, found.kraft_version.latest)
        if ours != theirs:
            raise BrokenPromiseError("L16", f"{host} takes its log for {ours}, which is {theirs}")

    def truncated(self, host: CoreHost, dropped: list[Batch], *, had_holes: bool) -> None:
        """Batches are truncated: none of them is committed, unless the replica knows that it lacks something."""
        leads = isinstance(host.running.state.role_state, Leader)
        require(not leads, "I13", f"{host} leads and truncates")
        self._nothing_committed_goes(host, dropped, had_holes=had_holes)

    def installed(self, host: CoreHost, dropped: list[Batch], snapshot_id: OffsetAndEpoch, *, had_holes: bool) -> None:
        """A snapshot has replaced the log: it covers committed records only, and nothing committed is behind it."""
        if snapshot_id.offset > self.committed_end:
            raise BrokenPromiseError("I14", f"{host} installs {snapshot_id}, committed is {self.committed_end}")
        behind = [batch for batch in dropped if batch.base_offset >= snapshot_id.offset]
        self._nothing_committed_goes(host, behind, had_holes=had_holes)

    def _nothing_committed_goes(self, host: CoreHost, dropped: list[Batch], *, had_holes: bool) -> None:
        for batch in dropped:
            entry = self.committed.get(batch.base_offset)
            if entry is None or (entry.epoch, entry.data) != (batch.epoch, bytes(batch.data)):
                continue
            if entry.in_epoch > host.running.epoch:
                continue  # a newer leader committed it, and this copy of a deposed leader's follower was not counted
            if had_holes and (host.store.is_amnesiac or host.running.state.amnesia is not None):
                continue
            raise BrokenPromiseError(
                "I11", f"{host} drops {batch.base_offset}@{batch.epoch}, which is committed, at {host.store.end}"
            )

    def advanced(self, host: CoreHost, high_watermark: Offset) -> None:
        """A replica takes everything below `high_watermark` for committed."""
        store, core = host.store, host.running
        if high_watermark < host.high_watermark:
            raise BrokenPromiseError(
                "I7", f"the high watermark of {host} goes back from {host.high_watermark} to {high_watermark}"
            )
        if high_watermark > store.end_offset:
            raise BrokenPromiseError("I7", f"high watermark {high_watermark} of {host} is beyond its end {store.end}")
        # A leader may give up in the event that lets it commit.
        epoch = core.epoch if isinstance(core.state.role_state, Leader) else host.led_epoch
        for batch in store.batches:
            if batch.end_offset <= host.high_watermark:
                continue
            if batch.end_offset > high_watermark:
                break
            known = self.committed.get(batch.base_offset)
            if known is not None:
                if known.epoch != batch.epoch or known.data != bytes(batch.data):
                    raise BrokenPromiseError("I6", f"{host} has another record than what is committed at {batch}")
            elif epoch is None:
                raise BrokenPromiseError("I6", f"{host} takes {batch.base_offset}@{batch.epoch} for committed")
            elif batch.base_offset != self.committed_end:
                raise BrokenPromiseError("I6", f"{host} commits {batch.base_offset} after {self.committed_end}")
            else:
                self._commit(host, batch, epoch)
        if high_watermark > self.committed_end:
            raise BrokenPromiseError("I7", f"{host} names {high_watermark}, committed is {self.committed_end}")
        if epoch is not None and store.epoch_before(high_watermark) != epoch:
            raise BrokenPromiseError("I8", f"{host} commits {high_watermark} with no record of its epoch {epoch}")

    def _commit(self, host: CoreHost, batch: Batch, epoch: Epoch) -> None:
        voters = host.running.voters
        durable = sum(1 for voter in voters if host.world.is_durable_at(voter.key, batch))
        if durable < voters.majority:
            raise BrokenPromiseError(
                "I8", f"{host} commits {batch.base_offset}@{batch.epoch} with {durable} of {len(voters)} durable copies"
            )
        self.committed[batch.base_offset] = Committed(batch.epoch, bytes(batch.data), batch.end_offset, epoch)
        self.committed_end = batch.end_offset
        self.commits += 1
        if batch.is_control:
            self._voters_change(host, batch)

    def _voters_change(self, host: CoreHost, batch: Batch) -> None:
        for record in batch.records():
            control = decode_control(record)
            if isinstance(control, VotersRecord):
                voters = VoterSet.from_record(control)
                left = [one.key for one in self._voters if not any(one.key.matches(other.key) for other in voters)]
                came = [one.key for one in voters if not any(other.key.matches(one.key) for other in self._voters)]
                neighbours = len(left) + len(came) <= 1 or not len(self._voters)
                require(neighbours, "I16", f"{host} commits {voters} after {self._voters}")
                self._voters = voters

    def looked_at(self, host: CoreHost) -> None:
        """An event was handled to its end."""
        core = host.running
        if len(core.voters):
            # Uncommitted records may be truncated, and no replica need know of voters that it was not formatted with.
            offset = core.state.log.voters.latest_offset
            durable = min(core.state.committed_offset, host.store.flushed_offset)
            host.has_known_voters |= offset is None or offset < durable
        elif is_impaired(host):
            host.has_known_voters = False  # a hole may be cut off, with all that is behind it
        elif host.has_known_voters and not host.events:
            raise BrokenPromiseError("I16", f"{host} has forgotten who the voters are")
        role = core.state.role_state
        if role is not host.role_seen:
            host.role_seen = role
            if isinstance(role, Leader):
                host.led_since_ms = host.world.now_ms
                self.became_leader(host)
        if isinstance(role, Leader):
            self._majority_is_heard(host)

    def _majority_is_heard(self, host: CoreHost) -> None:
        """A leader that no majority fetches from resigns: two windows of check quorum after the last contact."""
        core, now_ms = host.running, host.world.now_ms
        if core.state.role_state is not host.role_seen or len(core.voters) < 2:
            return
        voters = core.voters
        if voters is not host.voters_seen:
            host.voters_seen, host.voters_since_ms = voters, now_ms
        earliest_ms = now_ms - 3 * core.state.config.fetch_timeout_ms - 1
        if max(host.voters_since_ms, host.led_since_ms) >= earliest_ms:
            return
        heard = sum(1 for voter_id in voters.ids if host.heard_ms.get(voter_id, -1) >= earliest_ms)
        if heard + core.is_voter < voters.majority:
            raise BrokenPromiseError(
                "E7", f"{host} still leads epoch {core.epoch}, and no majority asks it for anything"
            )

    def read_passed(self, host: CoreHost, needed: Offset, offset: Offset) -> None:
        """A reader is told the offset at which it begins."""
        if offset < needed:
            raise BrokenPromiseError("I21", f"{host} lets a read begin at {offset}, {needed} was committed before")
