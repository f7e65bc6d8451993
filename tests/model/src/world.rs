//! One bounded world: who is there, what may happen, and what must hold.

use stateright::{Expectation, Model, Property};

use crate::log::{Entry, Kind, Log};
use crate::rules::{self, Rules};
use crate::state::{
    bit, members, Budget, Fetch, Id, Replica, Role, Set, State, VoteRequest, REPLICAS,
};

#[derive(Clone)]
pub struct World {
    pub name: &'static str,
    pub about: &'static str,
    pub rules: Rules,
    /// Everybody who is there.
    pub all: Set,
    /// The voters before any entry names some.
    pub first: Set,
    pub start: State,
    pub epoch_max: u8,
    /// Who may stand.
    pub standing: Set,
    /// Who may fetch.
    pub fetching: Set,
    /// Whose election state may be lost, and whose snapshot.
    pub unlucky: Set,
    /// Whether one answer may hold less than the leader has.
    pub short_answers: bool,
    /// Whether somebody must always be electable.
    pub must_elect: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    Stand(Id),
    /// Whether the answer arrives stands behind the request.
    Vote(Id, VoteRequest, bool),
    Follow(Id, u8, Id),
    Append(Id),
    ChangeVoters(Id, Set),
    Flush(Id),
    /// A Fetch is answered at once, with so many entries; the answer is on its way.
    Fetch(Fetch, u8),
    /// A Fetch is late: its sender asks anew, and it still arrives.
    FetchLate(Fetch),
    ServeLate(Fetch),
    Receive(Fetch),
    Report(Id, Id),
    Recall(Id),
    LosePower(Id),
    LoseVote(Id),
    DamageSnapshot(Id),
}

impl World {
    fn fetch_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for asked in &state.fetches {
            if asked.answer.is_some() {
                actions.push(Action::Receive(*asked));
            } else if serves(state, asked) {
                actions.push(Action::ServeLate(*asked));
            }
        }
        for id in members(self.all & self.fetching) {
            for lane in 0..self.rules.lanes() {
                let Some(asked) = rules::question(state.at(id), id, lane, &self.rules) else {
                    continue;
                };
                if !rules::may_fetch(state, id, lane) || !serves(state, &asked) {
                    continue;
                }
                actions.push(Action::Fetch(asked, u8::MAX >> 1));
                if self.short_answers {
                    actions.push(Action::Fetch(asked, 1));
                }
                if state.budget.late > 0 && !state.fetches.contains(&asked) {
                    actions.push(Action::FetchLate(asked));
                }
            }
        }
    }

    /// Forget what cannot matter any more.
    fn forget(&self, mut state: State) -> State {
        if state.budget.lost_votes == 0 {
            let mut asked = std::mem::take(&mut state.asked);
            asked.retain(|asked| {
                members(self.all).any(|id| rules::may_vote(&state, id, asked, &self.rules))
            });
            state.asked = asked;
        }
        state
    }

    fn leader_actions(&self, state: &State, id: Id, actions: &mut Vec<Action>) {
        let leader = state.at(id);
        if leader.flushed < leader.log.end() {
            actions.push(Action::Flush(id));
        }
        if !leader.log.is_full() && state.budget.appends > 0 {
            actions.push(Action::Append(id));
        }
        if !leader.log.is_full() && state.budget.changes > 0 {
            let sets = rules::next_voters(state, id, self.first, &self.rules, self.all);
            actions.extend(sets.into_iter().map(|set| Action::ChangeVoters(id, set)));
        }
    }

    fn fault_actions(&self, state: &State, id: Id, actions: &mut Vec<Action>) {
        let replica = state.at(id);
        if state.budget.crashes > 0 {
            actions.push(Action::LosePower(id));
        }
        let is_unlucky = self.unlucky & bit(id) != 0;
        if is_unlucky && state.budget.lost_votes > 0 && !replica.amnesiac {
            actions.push(Action::LoseVote(id));
        }
        let is_calm = !replica.is_leader() && !matches!(replica.role, Role::Candidate { .. });
        if is_unlucky
            && is_calm
            && state.budget.damages > 0
            && replica.snapshot > 0
            && !replica.damaged
        {
            actions.push(Action::DamageSnapshot(id));
        }
    }
}

/// Whether a Fetch is answered by who it is for.
fn serves(state: &State, asked: &Fetch) -> bool {
    let leader = state.at(asked.to);
    leader.is_leader() && leader.epoch == asked.epoch
}

impl World {
    pub fn property_named(&self, name: &str) -> Expectation {
        let mut properties = self.properties().into_iter();
        properties
            .find(|property| property.name == name)
            .expect("a property of this model")
            .expectation
    }

    /// How many things must happen at least once, lest nothing was tried.
    pub fn hopes(&self) -> usize {
        let properties = self.properties();
        properties
            .iter()
            .filter(|property| property.expectation == Expectation::Sometimes)
            .count()
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start.clone().sorted()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.lost {
            return;
        }
        for id in members(self.all) {
            let replica = state.at(id);
            let may_stand = self.standing & bit(id) != 0 && replica.may_stand(id, self.first);
            if may_stand && !replica.is_leader() && replica.epoch < self.epoch_max {
                actions.push(Action::Stand(id));
            }
            for asked in &state.asked {
                if rules::may_vote(state, id, asked, &self.rules) {
                    actions.push(Action::Vote(id, *asked, true));
                    if state.budget.late > 0 {
                        actions.push(Action::Vote(id, *asked, false));
                    }
                }
            }
            for (epoch, leader) in &state.leaders {
                if rules::may_follow(state, id, *epoch, *leader) {
                    actions.push(Action::Follow(id, *epoch, *leader));
                }
            }
            if replica.is_leader() {
                self.leader_actions(state, id, actions);
            }
            if replica.amnesiac {
                let others = rules::others_to_ask(replica, id, self.first);
                actions.extend(members(others).map(|other| Action::Report(id, other)));
            }
            if rules::may_recall(replica, id, self.first) {
                actions.push(Action::Recall(id));
            }
            self.fault_actions(state, id, actions);
        }
        self.fetch_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let (first, rules) = (self.first, &self.rules);
        match action {
            Action::Stand(id) => rules::stand(&mut state, id, first, rules),
            Action::Vote(id, asked, arrives) => {
                state.budget.late -= u8::from(!arrives);
                rules::vote(&mut state, id, &asked, arrives, rules);
            }
            Action::Follow(id, epoch, leader) => rules::follow(&mut state, id, epoch, leader),
            Action::Append(id) => {
                state.budget.appends -= 1;
                rules::append(&mut state, id, Kind::Data);
            }
            Action::ChangeVoters(id, set) => {
                state.budget.changes -= 1;
                rules::append(&mut state, id, Kind::Voters(set));
                rules::update_high_watermark(&mut state, id, first, rules);
            }
            Action::Flush(id) => rules::flush(&mut state, id, first, rules),
            Action::Fetch(asked, limit) => {
                let answer = rules::serve(&mut state, &asked, first, rules, limit)?;
                state.fetches.push(Fetch {
                    answer: Some(answer),
                    ..asked
                });
            }
            Action::FetchLate(asked) => {
                state.budget.late -= 1;
                state.fetches.push(asked);
            }
            Action::ServeLate(asked) => {
                state.fetches.retain(|fetch| *fetch != asked);
                rules::serve(&mut state, &asked, first, rules, 1);
            }
            Action::Receive(asked) => {
                state.fetches.retain(|fetch| *fetch != asked);
                rules::receive(&mut state, &asked, rules);
            }
            Action::Report(id, other) => rules::report(&mut state, id, other),
            Action::Recall(id) => rules::recall(state.at_mut(id)),
            Action::LosePower(id) => {
                state.budget.crashes -= 1;
                rules::crash(&mut state, id, first, true);
            }
            Action::LoseVote(id) => {
                state.budget.lost_votes -= 1;
                rules::crash(&mut state, id, first, false);
            }
            Action::DamageSnapshot(id) => {
                state.budget.damages -= 1;
                state.at_mut(id).damaged = true;
            }
        }
        let state = self.forget(state).sorted();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leader in an epoch", |_, state: &State| {
                state.leaders.windows(2).all(|pair| pair[0].0 != pair[1].0)
            }),
            Property::always(
                "what is committed is in every later leader's log",
                |_, state: &State| !state.lost,
            ),
            Property::always(
                "equal entries stand behind equal logs",
                |world: &World, state: &State| rules::logs_match(state, world.all),
            ),
            Property::always("somebody can be elected", |world: &World, state: &State| {
                let leads = members(world.all).any(|id| state.at(id).is_leader());
                let is_quiet = state.fetches.iter().all(|fetch| fetch.answer.is_none());
                let is_calm = !world.must_elect || leads || !is_quiet;
                is_calm || rules::can_elect(state, world.all, world.first, &world.rules)
            }),
            Property::sometimes("somebody is elected", |world: &World, state: &State| {
                state.leaders.len() > world.start.leaders.len()
            }),
            Property::sometimes("something is committed", |world: &World, state: &State| {
                state.committed.end() > world.start.committed.end()
            }),
        ]
    }
}

// --- how worlds begin --------------------------------------------------------------------------------------------------

pub fn data(epoch: u8) -> Entry {
    Entry::new(epoch, Kind::Data)
}

pub fn change(epoch: u8) -> Entry {
    Entry::new(epoch, Kind::LeaderChange)
}

pub fn voters(epoch: u8, set: Set) -> Entry {
    Entry::new(epoch, Kind::Voters(set))
}

pub fn replica(epoch: u8, entries: &[Entry]) -> Replica {
    let log = Log::of(entries);
    Replica {
        log,
        flushed: log.end(),
        epoch,
        voted: None,
        leader: None,
        amnesiac: false,
        snapshot: 0,
        damaged: false,
        role: Role::Unattached,
        high_watermark: None,
        committed: 0,
        reported: [None; REPLICAS],
        end_reached_in: None,
    }
}

pub fn following(leader: Id, replica: Replica) -> Replica {
    Replica {
        leader: Some(leader),
        role: Role::Follower { leader },
        ..replica
    }
}

/// A leader whose followers have fetched up to `progress`.
pub fn leading(
    id: Id,
    start: u8,
    high_watermark: u8,
    progress: [Option<u8>; REPLICAS],
    replica: Replica,
) -> Replica {
    Replica {
        leader: Some(id),
        role: Role::Leader { start, progress },
        high_watermark: Some(high_watermark),
        committed: high_watermark,
        ..replica
    }
}

pub fn begin(
    replicas: &[Replica],
    leaders: &[(u8, Id)],
    committed: &[Entry],
    budget: Budget,
) -> State {
    let mut all = [replica(0, &[]); REPLICAS];
    all[..replicas.len()].copy_from_slice(replicas);
    let mut committed_in = [0; 8];
    committed_in[1] = committed.len() as u8;
    State {
        replicas: all,
        asked: vec![],
        fetches: vec![],
        budget,
        leaders: leaders.to_vec(),
        committed: Log::of(committed),
        committed_in,
        lost: false,
    }
}
