//! A way to a state, in words.

use stateright::Path;

use crate::log::Kind;
use crate::state::{members, Answer, Fetch, Role, Set, State};
use crate::world::Action;

pub fn lines(path: &Path<State, Action>) -> Vec<String> {
    let steps: Vec<_> = path.clone().into_vec();
    let mut lines = vec![];
    for (place, (state, action)) in steps.iter().enumerate() {
        if let (Some(action), Some((after, _))) = (action, steps.get(place + 1)) {
            lines.push(format!("{}{}", told(action), changed(state, after)));
        }
    }
    if let Some((last, _)) = steps.last() {
        for id in 0..last.replicas.len() as u8 {
            let replica = last.at(id);
            if replica.epoch > 0 {
                lines.push(format!(
                    "at the end {id} is {} of epoch {}, {:?}",
                    role(&replica.role),
                    replica.epoch,
                    replica.log
                ));
            }
        }
        lines.push(format!("at the end committed is {:?}", last.committed));
    }
    lines
}

fn told(action: &Action) -> String {
    match action {
        Action::Stand(id) => format!("{id} stands"),
        Action::Vote(id, asked, arrives) => {
            let lost = if *arrives { "" } else { "; its answer is lost" };
            format!(
                "{id} hears that {} stands for epoch {} with {}@{}{lost}",
                asked.candidate, asked.epoch, asked.end.offset, asked.end.epoch
            )
        }
        Action::Follow(id, epoch, leader) => {
            format!("{id} hears that {leader} leads epoch {epoch}")
        }
        Action::Append(id) => format!("{id} appends a record"),
        Action::ChangeVoters(id, set) => {
            format!("{id} appends a record: the voters are {}", set_of(*set))
        }
        Action::Flush(id) => format!("{id} has flushed its log"),
        Action::Fetch(asked, limit) => {
            let few = if *limit == 1 {
                ", one record at most"
            } else {
                ""
            };
            format!(
                "{} is answered on the way to {}{few}",
                fetch(asked),
                asked.from
            )
        }
        Action::FetchLate(asked) => format!("{} is late, and given up", fetch(asked)),
        Action::ServeLate(asked) => format!("the late {} arrives", fetch(asked)),
        Action::Receive(asked) => format!(
            "{} receives the answer to {}: {}",
            asked.from,
            fetch(asked),
            answer(asked)
        ),
        Action::Report(id, other) => format!("{id} is told the epoch of {other}"),
        Action::Recall(id) => format!("{id} votes again"),
        Action::LosePower(id) => format!("{id} loses power and starts again"),
        Action::LoseVote(id) => format!("{id} loses its election state and starts again"),
        Action::DamageSnapshot(id) => format!("the disk of {id} loses its snapshot"),
    }
}

fn fetch(asked: &Fetch) -> String {
    let name = if asked.anonymous { " as nobody" } else { "" };
    let lane = if asked.lane > 0 {
        " on its other connection"
    } else {
        ""
    };
    format!(
        "Fetch {}@{} of {} to {}{name}{lane}",
        asked.end.offset, asked.end.epoch, asked.from, asked.to
    )
}

fn answer(asked: &Fetch) -> String {
    match asked.answer {
        Some(Answer::Diverging(end)) => format!("DIVERGING {}@{}", end.offset, end.epoch),
        Some(Answer::Records {
            log,
            high_watermark,
            ..
        }) => {
            let known = high_watermark.map_or("unknown".to_string(), |offset| offset.to_string());
            format!(
                "{} records, high watermark {known}",
                log.end() - asked.end.offset
            )
        }
        None => "nothing".to_string(),
    }
}

/// What others could notice of a step.
fn changed(before: &State, after: &State) -> String {
    let mut words = String::new();
    for (id, (was, is)) in before.replicas.iter().zip(&after.replicas).enumerate() {
        if is.voted != was.voted && is.voted.is_some_and(|whom| whom != id as u8) {
            words += &format!(
                "; {id} votes for {} in epoch {}",
                is.voted.unwrap_or_default(),
                is.epoch
            );
        }
        if is.is_leader() && !was.is_leader() {
            words += &format!("; {id} is elected in epoch {}", is.epoch);
        }
        if is.log.end() < was.log.end() {
            words += &format!(
                "; {id} has cut its log from {} to {}",
                was.log.end(),
                is.log.end()
            );
        }
    }
    if after.committed != before.committed {
        words += &format!("; committed up to {}", after.committed.end());
    }
    words
}

fn role(role: &Role) -> &'static str {
    match role {
        Role::Unattached => "unattached",
        Role::Candidate { .. } => "candidate",
        Role::Leader { .. } => "leader",
        Role::Follower { .. } => "follower",
        Role::Resigned => "resigned",
    }
}

pub fn set_of(set: Set) -> String {
    let ids: Vec<String> = members(set).map(|id| id.to_string()).collect();
    format!("{{{}}}", ids.join(", "))
}

pub fn kind(kind: Kind) -> String {
    match kind {
        Kind::Data => "data".to_string(),
        Kind::LeaderChange => "leader".to_string(),
        Kind::Voters(set) => format!("voters{}", set_of(set)),
    }
}
