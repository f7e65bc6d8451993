//! The rules, one function each. `docs/explanation/model.md` says where kraftlib has them.

use crate::log::{End, Entry, Kind};
use crate::state::{
    bit, is_majority, members, Answer, Fetch, Id, Replica, Role, Set, State, VoteRequest, REPLICAS,
};

/// The rules that may be broken on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// An answer counts only for the exact question, and one Fetch is outstanding to any given replica.
    pub exact_answers: bool,
    /// A lost vote comes back only once the leader's end was reached.
    pub waits_for_the_end: bool,
    /// The epoch of a log's end outlives the snapshot that it was read from.
    pub end_epoch_is_kept: bool,
    /// A truncation that drops what is missing costs the vote.
    pub cut_hole_is_amnesia: bool,
    /// A change of the voters goes to the voters that it names alone, until it is committed.
    pub changes_go_to_voters_first: bool,
    /// A vote is given only to a log that is as long as our own.
    pub votes_for_longer_logs: bool,
    /// Only an entry of the own epoch is committed by counting.
    pub counts_own_epoch: bool,
    /// The leader counts its own copy once it is flushed.
    pub counts_flushed: bool,
    /// The voters change one at a time, each change committed before the next one.
    pub one_change_at_a_time: bool,
}

/// A bug that can be put in, and the world in which it shows.
pub struct Plant {
    pub name: &'static str,
    pub about: &'static str,
    pub world: &'static str,
}

const fn plant(name: &'static str, world: &'static str, about: &'static str) -> Plant {
    Plant { name, about, world }
}

pub const PLANTS: [Plant; 9] = [
    plant(
        "1",
        "divergence",
        "two Fetches to one leader; of the question only the offset is looked at",
    ),
    plant(
        "3",
        "lost-vote",
        "a lost vote comes back at the leader's high watermark, before its end",
    ),
    plant(
        "4",
        "lost-snapshot",
        "a log that was one snapshot forgets the epoch of its end with it",
    ),
    plant(
        "5",
        "cut-hole",
        "a truncation drops what is missing, and the vote is not in doubt",
    ),
    plant(
        "6",
        "removal",
        "a voter that is removed is sent the change before it is committed",
    ),
    plant(
        "shorter-log",
        "elections",
        "a vote is given to a shorter log",
    ),
    plant(
        "older-epochs",
        "commits",
        "an entry of an older epoch is committed by counting",
    ),
    plant(
        "unflushed",
        "elections",
        "the leader counts its own copy before it is flushed",
    ),
    plant(
        "two-changes",
        "changes",
        "the voters change while another change is not committed",
    ),
];

impl Rules {
    /// The rules as they are, but for one; `""` breaks none.
    pub fn with(plant: &str) -> Rules {
        Rules {
            exact_answers: plant != "1",
            waits_for_the_end: plant != "3",
            end_epoch_is_kept: plant != "4",
            cut_hole_is_amnesia: plant != "5",
            changes_go_to_voters_first: plant != "6",
            votes_for_longer_logs: plant != "shorter-log",
            counts_own_epoch: plant != "older-epochs",
            counts_flushed: plant != "unflushed",
            one_change_at_a_time: plant != "two-changes",
        }
    }

    pub fn lanes(&self) -> u8 {
        if self.exact_answers {
            1
        } else {
            2
        }
    }
}

impl Replica {
    /// The voters in force: those of the newest entry that names some, committed or not.
    pub fn voters(&self, first: Set) -> Set {
        self.log.newest_voters().map_or(first, |(_, voters)| voters)
    }

    pub fn end(&self, rules: &Rules) -> End {
        let offset = self.log.end();
        let is_lost = self.damaged && offset == self.snapshot && !rules.end_epoch_is_kept;
        End {
            epoch: if is_lost {
                0
            } else {
                self.log.epoch_before(offset)
            },
            offset,
        }
    }

    pub fn is_anonymous(&self) -> bool {
        self.amnesiac || self.damaged
    }

    pub fn may_stand(&self, id: Id, first: Set) -> bool {
        self.voters(first) & bit(id) != 0 && !self.amnesiac && !self.damaged
    }

    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }
}

// --- elections ---------------------------------------------------------------------------------------------------------

/// Enter a role, durably. What was asked in the role before is forgotten.
fn enter(state: &mut State, id: Id, epoch: u8, role: Role) {
    forget_questions(state, id);
    let replica = state.at_mut(id);
    if epoch > replica.epoch {
        replica.voted = None;
        replica.leader = None;
    }
    replica.epoch = epoch;
    match role {
        Role::Candidate { .. } => replica.voted = Some(id),
        Role::Leader { .. } => replica.leader = Some(id),
        Role::Follower { leader } => replica.leader = Some(leader),
        Role::Unattached | Role::Resigned => {}
    }
    replica.role = role;
    replica.flushed = replica.log.end();
}

/// Begin an epoch and vote for oneself.
pub fn stand(state: &mut State, id: Id, first: Set, rules: &Rules) {
    let (epoch, voters) = (state.at(id).epoch + 1, state.at(id).voters(first));
    enter(
        state,
        id,
        epoch,
        Role::Candidate {
            voters,
            granted: bit(id),
        },
    );
    let end = state.at(id).end(rules);
    state.asked.push(VoteRequest {
        epoch,
        candidate: id,
        voters,
        end,
    });
    maybe_win(state, id);
}

/// Whether `asked` gets the vote of `id`, which is in its epoch.
fn grants_vote(state: &State, id: Id, asked: &VoteRequest, rules: &Rules) -> bool {
    let replica = state.at(id);
    if replica.amnesiac || replica.role != Role::Unattached || replica.leader.is_some() {
        return false;
    }
    match replica.voted {
        Some(candidate) => candidate == asked.candidate,
        None => asked.end >= replica.end(rules) || !rules.votes_for_longer_logs,
    }
}

/// A voter hears a candidate.
pub fn vote(state: &mut State, id: Id, asked: &VoteRequest, arrives: bool, rules: &Rules) {
    if asked.epoch > state.at(id).epoch {
        enter(state, id, asked.epoch, Role::Unattached);
    }
    if asked.epoch < state.at(id).epoch || !grants_vote(state, id, asked, rules) {
        return;
    }
    let voter = state.at_mut(id);
    voter.voted = Some(asked.candidate);
    voter.flushed = voter.log.end();
    let candidate = state.at_mut(asked.candidate);
    if arrives && candidate.epoch == asked.epoch {
        if let Role::Candidate { voters, granted } = candidate.role {
            candidate.role = Role::Candidate {
                voters,
                granted: granted | bit(id),
            };
            maybe_win(state, asked.candidate);
        }
    }
}

/// Whether it matters to a voter that it hears a candidate.
pub fn may_vote(state: &State, id: Id, asked: &VoteRequest, rules: &Rules) -> bool {
    let epoch = state.at(id).epoch;
    let is_asked = asked.voters & bit(id) != 0 && asked.candidate != id;
    is_asked
        && (asked.epoch > epoch || (asked.epoch == epoch && grants_vote(state, id, asked, rules)))
}

/// Lead, and say so in the log. The entry is on its way to the disk.
fn maybe_win(state: &mut State, id: Id) {
    let (epoch, start) = (state.at(id).epoch, state.at(id).log.end());
    match state.at(id).role {
        Role::Candidate { voters, granted } if is_majority(granted, voters) => {}
        _ => return,
    }
    state.lost |= !state.at(id).log.starts_with(&state.committed_before(epoch));
    state.leaders.push((epoch, id));
    enter(
        state,
        id,
        epoch,
        Role::Leader {
            start,
            progress: [None; REPLICAS],
        },
    );
    let leader = state.at_mut(id);
    leader.high_watermark = None;
    leader.log = leader.log.with(Entry::new(epoch, Kind::LeaderChange));
}

/// Learn who leads: by BeginQuorumEpoch, or by any answer.
pub fn may_follow(state: &State, id: Id, epoch: u8, leader: Id) -> bool {
    let replica = state.at(id);
    let is_open = matches!(replica.role, Role::Unattached | Role::Candidate { .. });
    leader != id && (epoch > replica.epoch || (epoch == replica.epoch && is_open))
}

pub fn follow(state: &mut State, id: Id, epoch: u8, leader: Id) {
    enter(state, id, epoch, Role::Follower { leader });
}

// --- the leader --------------------------------------------------------------------------------------------------------

pub fn append(state: &mut State, id: Id, kind: Kind) {
    let leader = state.at_mut(id);
    leader.log = leader.log.with(Entry::new(leader.epoch, kind));
}

pub fn flush(state: &mut State, id: Id, first: Set, rules: &Rules) {
    let replica = state.at_mut(id);
    replica.flushed = replica.log.end();
    update_high_watermark(state, id, first, rules);
}

/// What a majority of the voters in force has flushed is committed, if it reaches into the leader's own epoch.
pub fn update_high_watermark(state: &mut State, id: Id, first: Set, rules: &Rules) {
    let leader = *state.at(id);
    let Role::Leader { start, progress } = leader.role else {
        return;
    };
    let own = if rules.counts_flushed {
        leader.flushed
    } else {
        leader.log.end()
    };
    let mut ends: Vec<i16> = members(leader.voters(first))
        .map(|voter| {
            if voter == id {
                own as i16
            } else {
                progress[voter as usize].map_or(-1, i16::from)
            }
        })
        .collect();
    ends.sort_unstable_by(|one, other| other.cmp(one));
    let offset = ends[ends.len() / 2];
    let is_own = offset > start as i16 || !rules.counts_own_epoch;
    if !is_own
        || offset < 1
        || leader
            .high_watermark
            .is_some_and(|known| offset <= known as i16)
    {
        return;
    }
    let prefix = leader.log.prefix(offset as u8);
    state.commit(leader.epoch, prefix);
    let leader = state.at_mut(id);
    leader.high_watermark = Some(offset as u8);
    leader.committed = leader.committed.max(offset as u8);
    if leader.voters(first) & bit(id) == 0
        && leader.log.newest_voters().map(|(offset, _)| offset) < leader.high_watermark
    {
        leader.role = Role::Resigned; // its own removal is committed
    }
}

/// The voter sets that a leader may write next.
pub fn next_voters(state: &State, id: Id, first: Set, rules: &Rules, of: Set) -> Vec<Set> {
    let leader = state.at(id);
    let Role::Leader { progress, .. } = leader.role else {
        return vec![];
    };
    let Some(high_watermark) = leader.high_watermark else {
        return vec![];
    };
    let is_settled = leader.log.newest_voters().map(|(offset, _)| offset) < Some(high_watermark); // None is less than any offset
    if !is_settled && rules.one_change_at_a_time {
        return vec![];
    }
    let voters = leader.voters(first);
    let mut sets = vec![];
    for other in members(of) {
        if voters & bit(other) == 0 {
            if progress[other as usize].is_some() {
                sets.push(voters | bit(other));
            }
        } else if voters.count_ones() > 1 {
            let rest = voters & !bit(other);
            if other != id || rest.count_ones() > 1 {
                sets.push(rest); // one of two lets the other one lead before it is removed
            }
        }
    }
    sets
}

/// A leader hears a Fetch of its epoch: it counts what is flushed there, and answers.
pub fn serve(
    state: &mut State,
    asked: &Fetch,
    first: Set,
    rules: &Rules,
    limit: u8,
) -> Option<Answer> {
    let id = asked.to;
    if let Some(Answer::Records { .. }) = judge_fetch(state.at(id), asked, first, rules, limit) {
        record_progress(state, id, asked, first, rules);
    }
    judge_fetch(state.at(id), asked, first, rules, limit) // the answer names the high watermark that follows
}

/// The answer to a Fetch of the leader's epoch; `limit` entries are sent.
fn judge_fetch(
    leader: &Replica,
    asked: &Fetch,
    first: Set,
    rules: &Rules,
    limit: u8,
) -> Option<Answer> {
    let known = leader.log.end_for(asked.end.epoch);
    let is_valid = asked.end.offset == 0
        || (known.epoch == asked.end.epoch && asked.end.offset <= known.offset);
    if !is_valid {
        return Some(Answer::Diverging(known));
    }
    let is_settled = leader.log.newest_voters().map(|(offset, _)| offset) < Some(leader.committed); // None is less than any offset
    let may_send = is_settled
        || asked.anonymous
        || leader.voters(first) & bit(asked.from) != 0
        || !rules.changes_go_to_voters_first;
    let sendable = if may_send {
        leader.log.end()
    } else {
        asked.end.offset
    };
    let sent = sendable.min(asked.end.offset + limit);
    Some(Answer::Records {
        log: leader.log.prefix(sent),
        high_watermark: leader.high_watermark,
    })
}

/// The Fetch of a voter says what it has flushed; that of nobody says nothing.
fn record_progress(state: &mut State, id: Id, asked: &Fetch, first: Set, rules: &Rules) {
    if asked.anonymous {
        return;
    }
    if let Role::Leader { progress, .. } = &mut state.at_mut(id).role {
        progress[asked.from as usize] = Some(asked.end.offset);
    }
    update_high_watermark(state, id, first, rules);
}

// --- the follower ------------------------------------------------------------------------------------------------------

pub fn may_fetch(state: &State, id: Id, lane: u8) -> bool {
    let replica = state.at(id);
    matches!(replica.role, Role::Follower { .. })
        && replica.flushed == replica.log.end()
        && !state
            .fetches
            .iter()
            .any(|fetch| fetch.from == id && fetch.lane == lane && fetch.answer.is_some())
}

/// The question that a follower asks.
pub fn question(replica: &Replica, id: Id, lane: u8, rules: &Rules) -> Option<Fetch> {
    let Role::Follower { leader } = replica.role else {
        return None;
    };
    let (epoch, end, anonymous) = (replica.epoch, replica.end(rules), replica.is_anonymous());
    Some(Fetch {
        from: id,
        lane,
        to: leader,
        epoch,
        end,
        anonymous,
        answer: None,
    })
}

/// Whether an answer is for what this replica would ask now.
fn fits(replica: &Replica, asked: &Fetch, rules: &Rules) -> bool {
    let end = replica.end(rules);
    let is_exact = asked.end.epoch == end.epoch || !rules.exact_answers;
    asked.end.offset == end.offset && is_exact && asked.anonymous == replica.is_anonymous()
}

pub fn receive(state: &mut State, asked: &Fetch, rules: &Rules) {
    let replica = state.at_mut(asked.from);
    let (Some(answer), true) = (asked.answer, fits(replica, asked, rules)) else {
        return;
    };
    match answer {
        Answer::Records {
            log,
            high_watermark,
        } => {
            if replica.damaged {
                replica.damaged = false; // the leader has all that it ever had, and fills what is missing
                return;
            }
            let known = replica.log.end();
            replica.log = log
                .entries()
                .skip(known as usize)
                .fold(replica.log, |own, entry| own.with(entry));
            replica.flushed = replica.log.end();
            if let Some(offset) = high_watermark {
                let offset = offset.min(replica.log.end());
                if offset >= replica.committed {
                    replica.high_watermark = Some(offset);
                    replica.committed = offset;
                }
            }
            note_leader_end(replica, known < log.end(), high_watermark, rules);
        }
        Answer::Diverging(end) => truncate(replica, end, rules),
    }
}

/// Cut the log back to where it may agree with the leader's, never below what is known to be committed. A hole goes from
/// its start, although it may be committed: nothing of it is here.
fn truncate(replica: &mut Replica, leader_end: End, rules: &Rules) {
    let own = replica.log.end_for(leader_end.epoch);
    let agreed = if own.epoch == leader_end.epoch {
        own.offset.min(leader_end.offset)
    } else {
        own.offset
    };
    if agreed < replica.committed || agreed >= replica.log.end() {
        return;
    }
    let drops_hole = replica.damaged && agreed <= replica.snapshot;
    let end = if drops_hole { 0 } else { agreed };
    replica.log = replica.log.prefix(end);
    replica.flushed = replica.flushed.min(end);
    if drops_hole {
        (replica.damaged, replica.snapshot) = (false, 0);
        replica.amnesiac |= rules.cut_hole_is_amnesia;
    }
}

// --- a lost vote -------------------------------------------------------------------------------------------------------

/// A leader that knows its high watermark has answered: without records, if this is the end of its log.
fn note_leader_end(
    replica: &mut Replica,
    has_records: bool,
    high_watermark: Option<u8>,
    rules: &Rules,
) {
    if let (true, Some(offset)) = (replica.amnesiac, high_watermark) {
        let is_reached = !has_records || (!rules.waits_for_the_end && replica.flushed >= offset);
        if is_reached {
            replica.end_reached_in = Some(replica.epoch);
        }
    }
}

/// The other voters of every set that may be in force somewhere.
pub fn others_to_ask(replica: &Replica, id: Id, first: Set) -> Set {
    let sets = replica.log.voters_since(replica.committed, first);
    sets.iter().fold(0, |all, set| all | set) & !bit(id)
}

/// Another voter answers a Fetch, and names its epoch.
pub fn report(state: &mut State, id: Id, other: Id) {
    let epoch = state.at(other).epoch;
    state.at_mut(id).reported[other as usize] = Some(epoch);
    if epoch > state.at(id).epoch {
        enter(state, id, epoch, Role::Unattached);
    }
}

pub fn may_recall(replica: &Replica, id: Id, first: Set) -> bool {
    let others = others_to_ask(replica, id, first);
    let heard: Vec<Option<u8>> = members(others)
        .map(|other| replica.reported[other as usize])
        .collect();
    replica.amnesiac
        && !replica.damaged
        && others != 0
        && matches!(replica.role, Role::Follower { .. })
        && heard
            .iter()
            .all(|told| told.is_some_and(|told| told <= replica.epoch))
        && replica.end_reached_in == Some(replica.epoch)
}

pub fn recall(replica: &mut Replica) {
    replica.amnesiac = false;
    replica.reported = [None; REPLICAS];
    replica.end_reached_in = None;
}

// --- crashes -----------------------------------------------------------------------------------------------------------

/// Nobody waits for the answers any more.
fn forget_questions(state: &mut State, id: Id) {
    state
        .fetches
        .retain(|fetch| fetch.from != id || fetch.answer.is_none());
}

/// Lose power and start again: what was not flushed is gone, and the role follows from the election state.
pub fn crash(state: &mut State, id: Id, first: Set, keeps_vote: bool) {
    forget_questions(state, id);
    let replica = state.at_mut(id);
    replica.log = replica.log.prefix(replica.flushed);
    if !keeps_vote {
        replica.epoch = replica.log.epoch_before(replica.log.end());
        (replica.voted, replica.leader, replica.amnesiac) = (None, None, true);
    }
    replica.role = match (replica.leader, replica.voted) {
        (Some(leader), _) if leader == id => Role::Resigned,
        (_, Some(voted)) if voted == id && replica.may_stand(id, first) => Role::Candidate {
            voters: replica.voters(first),
            granted: bit(id),
        },
        (Some(leader), _) => Role::Follower { leader },
        _ => Role::Unattached,
    };
    replica.high_watermark = None;
    replica.committed = if replica.damaged { 0 } else { replica.snapshot };
    replica.reported = [None; REPLICAS];
    replica.end_reached_in = None;
    let epoch = replica.epoch;
    if let Role::Candidate { voters, .. } = replica.role {
        let end = replica.end(&Rules::with(""));
        state.asked.push(VoteRequest {
            epoch,
            candidate: id,
            voters,
            end,
        });
    }
}

// --- what must hold ----------------------------------------------------------------------------------------------------

/// Whether somebody could be elected, if everybody is up and nothing is on its way.
pub fn can_elect(state: &State, all: Set, first: Set, rules: &Rules) -> bool {
    members(all).any(|id| {
        let (candidate, voters) = (state.at(id), state.at(id).voters(first));
        let granting = members(voters).filter(|other| {
            let voter = state.at(*other);
            *other == id || (!voter.amnesiac && candidate.end(rules) >= voter.end(rules))
        });
        candidate.may_stand(id, first) && is_majority(granting.map(bit).sum(), voters)
    })
}

/// Whether no two logs have one entry behind different ones.
pub fn logs_match(state: &State, all: Set) -> bool {
    let logs: Vec<_> = members(all).map(|id| state.at(id).log).collect();
    logs.iter().all(|one| {
        logs.iter().all(|other| {
            let shared = one.end().min(other.end());
            (1..=shared).rev().all(|end| {
                one.at(end - 1) != other.at(end - 1) || one.prefix(end) == other.prefix(end)
            })
        })
    })
}
