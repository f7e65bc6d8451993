"""KRaft, the protocol, as pure decisions: `Replica.handle(event, now_ms)` returns an ordered list of actions.

This page tells the whole protocol; each rule is found again in the file of its conversation.

**Its purpose.** A few replicas keep copies of one log. At any time at most one of them, the *leader*, writes to it. A
record is *committed* once a majority of the *voters* has it on disk: from then on it is in the log of every leader to
come, at the same offset, for ever. All else follows from keeping these two sentences true while machines stop, disks
lie and networks lose, delay, repeat and reorder.

**Epochs.** Leadership is numbered. An *epoch* has one leader at most, and its number only grows. Every message
carries the sender's epoch: a replica that sees a higher one gives up what it was doing in the lower one. A record
carries the epoch of the leader that wrote it, so (offset, epoch) names one record for ever; therefore a leader that
restarts never leads its old epoch again, for a record that it had not flushed may be lost (`transitions`).

**Followers pull.** In Raft a leader pushes records; here a follower *fetches* them (KIP-595). The Fetch says how far
the follower's log goes, (fetch offset, epoch of the last record). The leader compares (`log_view`): if its own log
has that position, it sends what comes next; if not, it names the end of the highest epoch that may be common, the
follower cuts its log back to there and asks again. Since a follower flushes before it fetches again, the very same
question acknowledges everything below its offset. One message thus replicates, acknowledges, finds the leader
(every replica that is asked names it) and shows that both are alive. A leader with nothing to send keeps the question
until it has (`fetch_leader`, `fetch_follower`).

**The high watermark** (`fetch_leader`) is one past the last committed record: the offset that a majority of voters has
reached, the leader's own copy counted only when flushed. A leader may count only records of its own epoch (an older
record on a majority may still be overwritten: Raft, figure 8); so each epoch begins with a LeaderChange record, and the
high watermark is unknown until a majority has it. Followers learn it with the next answer (KIP-1166).

**Elections** (`vote`, `quorum_epoch`). A voter that has not heard of a leader for a random while becomes *prospective*:
it asks the others whether they would vote for it, and changes nothing by asking (pre-vote, KIP-996): a voter that was
cut off and returns therefore does not depose a live leader. If a majority would, it becomes *candidate* of the next
epoch, votes for itself, durably, and asks again, bindingly. A vote is given once per epoch, durably before it is
spoken, and only to a log that is at least as long as the own one, compared by last epoch and then offset: hence a new
leader has everything committed. The new leader sends BeginQuorumEpoch to every voter that has not fetched yet. A leader
that leaves sends EndQuorumEpoch and names its successors, the most caught-up first, so that no time is lost.

**A leader may be mistaken.** It resigns when no majority of voters has fetched for a while (check quorum, `deadlines`);
until then nothing that it appends commits, for the others' majority has moved on.

**Membership** (`voters`, `voter_changes`, `joining`; KIP-853). The voter set stands in the log itself, as a control
record, and counts from the moment it is appended. Voters come and go one at a time, so any two neighbouring majorities
share a voter. A voter is an id *and* the id of its disk: a replica that lost its disk is another replica. Quorums of
kraft.version 0 have a fixed set from the configuration instead, until they are upgraded (`kraft_version`). *Observers*
fetch like followers and count for nothing.

**Snapshots** (`fetch_snapshot`, `snapshots`; KIP-630). A snapshot replaces all records below its offset. A follower
that lies before the leader's log is told of the newest one, fetches the file in chunks, verifies it and begins its log
anew behind it.

**Durability.** The order of the actions is the argument. The election state is written before anything that depends
on it is sent. A flush is the only thing that overlaps with others; a fetch offset that is sent never exceeds what is
flushed, a candidate asks for votes with a log that is flushed, and the leader's copy does not count before. A flush
that began before a truncation vouches for nothing after it (`log_version`).

**Where to read on**: `replica` (the door, and the table of handlers), `roles` (the states and the table of changes),
`transitions` (entering a role), `poll` (the duties of each role, and until when it may sleep). The extensions of
Kafka's protocol are in `extensions` and `repair`.

Left out, and why: there is no notion of time beyond `now_ms`, no thread, no socket, no file. Those are deeds
(`kraftlib.runtime`, `kraftlib.storage`).
"""
