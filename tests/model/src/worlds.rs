//! The worlds that are checked. Each is small enough to be searched to its end, and large enough for its rules to fail.

use crate::rules::Rules;
use crate::state::{Budget, Replica, Role, Set, State};
use crate::world::{begin, change, data, following, leading, replica, voters, World};

/// `long` makes them larger: minutes each instead of seconds.
pub fn worlds(rules: Rules, long: bool) -> Vec<World> {
    let makers = [
        elections,
        divergence,
        late_questions,
        commits,
        lost_vote,
        lost_vote_later,
        lost_snapshot,
        cut_hole,
        removal,
        changes,
    ];
    makers
        .iter()
        .map(|make| make(rules, u8::from(long)))
        .collect()
}

fn world(name: &'static str, about: &'static str, rules: Rules, all: Set, start: State) -> World {
    World {
        name,
        about,
        rules,
        all,
        first: all,
        start,
        epoch_max: 2,
        standing: all,
        fetching: all,
        unlucky: 0,
        short_answers: false,
        must_elect: false,
    }
}

fn elections(rules: Rules, more: u8) -> World {
    let budget = Budget {
        appends: more,
        crashes: 1,
        ..Budget::default()
    };
    let start = begin(&[replica(0, &[]); 3], &[], &[], budget);
    let about = "three voters from the beginning, two epochs, one power loss";
    World {
        must_elect: true,
        ..world("elections", about, rules, 0b111, start)
    }
}

/// Replica 0 led epoch 2 and has records of it that nobody else has.
fn deposed_leader(budget: Budget) -> State {
    let deposed = replica(2, &[change(1), change(2), data(2)]);
    let replicas = [
        Replica {
            leader: Some(0),
            role: Role::Resigned,
            ..deposed
        },
        replica(2, &[change(1)]),
        replica(2, &[change(1)]),
    ];
    begin(&replicas, &[(2, 0)], &[change(1)], budget)
}

fn divergence(rules: Rules, more: u8) -> World {
    let start = deposed_leader(Budget {
        appends: 1,
        crashes: more,
        ..Budget::default()
    });
    let about = "a deposed leader with records that nobody else has, two more epochs";
    World {
        epoch_max: 4,
        ..world("divergence", about, rules, 0b111, start)
    }
}

fn late_questions(rules: Rules, more: u8) -> World {
    let start = deposed_leader(Budget {
        crashes: more,
        late: 1,
        ..Budget::default()
    });
    let about = "the same deposed leader, two more epochs, one lost or late message";
    World {
        epoch_max: 4,
        ..world("late-questions", about, rules, 0b111, start)
    }
}

/// Figure 8 of the Raft paper: a record of an old epoch on a majority is not committed yet.
fn commits(rules: Rules, more: u8) -> World {
    let budget = Budget {
        crashes: 1,
        late: more,
        ..Budget::default()
    };
    let replicas = [
        replica(2, &[data(1)]),
        replica(2, &[change(2)]),
        replica(2, &[]),
    ];
    let start = begin(&replicas, &[], &[], budget);
    let about =
        "figure 8 of the Raft paper: two old records, neither of them committed, two more epochs";
    World {
        epoch_max: 4,
        short_answers: true,
        ..world("commits", about, rules, 0b111, start)
    }
}

/// Replica 2 leads and adds replica 3; replica 0 is behind, and may vote and forget it.
fn forgetful(rules: Rules, name: &'static str, about: &'static str) -> World {
    let budget = Budget {
        lost_votes: 1,
        ..Budget::default()
    };
    let old = [voters(1, 0b0111), change(2)];
    let new = [old[0], old[1], voters(2, 0b1111)];
    let progress = [Some(1), Some(2), None, Some(3)];
    let replicas = [
        following(2, replica(2, &old[..1])),
        following(2, replica(2, &old)),
        leading(2, 1, 2, progress, replica(2, &new)),
        following(2, replica(2, &new)),
    ];
    let start = begin(&replicas, &[(2, 2)], &old, budget);
    let world = world(name, about, rules, 0b1111, start);
    World {
        first: 0b0111,
        epoch_max: 3,
        standing: 0b1010,
        unlucky: 0b0001,
        short_answers: true,
        ..world
    }
}

fn lost_vote(rules: Rules, more: u8) -> World {
    let about = "a leader adds a voter; one voter votes and loses its election state";
    let fetching = if more > 0 { 0b1111 } else { 0b0111 };
    World {
        epoch_max: 3 + more,
        fetching,
        ..forgetful(rules, "lost-vote", about)
    }
}

/// The voters do not change; replica 0 may vote for replica 1 in epoch 4 and forget it.
fn lost_vote_later(rules: Rules, more: u8) -> World {
    let budget = Budget {
        lost_votes: 1,
        crashes: more,
        ..Budget::default()
    };
    let log = [change(1)];
    let replicas = [
        following(2, replica(1, &log)),
        following(2, replica(1, &log)),
        leading(2, 0, 1, [Some(1), Some(1), None, None], replica(1, &log)),
    ];
    let start = begin(&replicas, &[(1, 2)], &log, budget);
    let about = "three voters; one votes and loses its election state; two more epochs";
    World {
        epoch_max: 3,
        unlucky: 0b001,
        ..world("lost-vote-later", about, rules, 0b111, start)
    }
}

/// The log of replica 1 is an installed snapshot, which its disk loses.
fn lost_snapshot(rules: Rules, more: u8) -> World {
    let budget = Budget {
        appends: more,
        crashes: 1,
        damages: 1,
        ..Budget::default()
    };
    let log = [change(1), data(1), data(1)];
    let replicas = [
        leading(0, 0, 3, [None, Some(3), Some(1), None], replica(1, &log)),
        following(
            0,
            Replica {
                snapshot: 3,
                committed: 3,
                ..replica(1, &log)
            },
        ),
        following(0, replica(1, &log[..1])),
    ];
    let start = begin(&replicas, &[(1, 0)], &log, budget);
    let about =
        "a voter whose log is a snapshot that its disk loses, two more epochs, one power loss";
    World {
        epoch_max: 3,
        unlucky: 0b010,
        ..world("lost-snapshot", about, rules, 0b111, start)
    }
}

/// The same, and behind the snapshot stands an entry that nobody else has: replica 1 led epoch 2.
fn cut_hole(rules: Rules, more: u8) -> World {
    let budget = Budget {
        crashes: more,
        damages: 1,
        ..Budget::default()
    };
    let log = [change(1), data(1), data(1)];
    let deposed = replica(2, &[log[0], log[1], log[2], change(2)]);
    let replicas = [
        replica(2, &log),
        Replica {
            leader: Some(1),
            role: Role::Resigned,
            snapshot: 3,
            committed: 3,
            ..deposed
        },
        replica(2, &log[..1]),
    ];
    let start = begin(&replicas, &[(2, 1)], &log, budget);
    let about = "a deposed leader loses the snapshot below what nobody else has, two more epochs";
    World {
        epoch_max: 4,
        unlucky: 0b010,
        ..world("cut-hole", about, rules, 0b111, start)
    }
}

fn removal(rules: Rules, more: u8) -> World {
    let budget = Budget {
        appends: more,
        crashes: 2,
        late: 1,
        changes: 2,
        ..Budget::default()
    };
    let log = [voters(1, 0b11), change(1)];
    let replicas = [
        leading(0, 1, 2, [None, Some(2), None, None], replica(1, &log)),
        following(0, replica(1, &log)),
    ];
    let start = begin(&replicas, &[(1, 0)], &log, budget);
    let about = "two voters, two changes of the voters, two more epochs, two power losses, one late message";
    World {
        epoch_max: 3,
        must_elect: true,
        ..world("removal", about, rules, 0b11, start)
    }
}

fn changes(rules: Rules, more: u8) -> World {
    let budget = Budget {
        changes: 2,
        ..Budget::default()
    };
    let log = [voters(1, 0b0111), change(1)];
    let follower = following(0, replica(1, &log));
    let leader = leading(0, 1, 2, [None, Some(2), Some(2), Some(2)], replica(1, &log));
    let all = [leader, follower, follower, follower];
    let start = begin(&all[..3 + more as usize], &[(1, 0)], &log, budget);
    let about = "three voters, two changes of the voters, two more epochs";
    let world = world(
        "changes",
        about,
        rules,
        if more > 0 { 0b1111 } else { 0b111 },
        start,
    );
    World {
        first: 0b0111,
        epoch_max: 3,
        ..world
    }
}
