//! What a replica knows, what is on its disk, and what is on its way.

use crate::log::{End, Log};

pub const REPLICAS: usize = 4;
pub type Id = u8;
/// Replicas as bits.
pub type Set = u8;

pub fn bit(id: Id) -> Set {
    1 << id
}

pub fn members(set: Set) -> impl Iterator<Item = Id> {
    (0..REPLICAS as Id).filter(move |id| set & bit(*id) != 0)
}

pub fn is_majority(some: Set, of: Set) -> bool {
    2 * (some & of).count_ones() > of.count_ones()
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    Unattached,
    Candidate {
        voters: Set,
        granted: Set,
    },
    /// `progress` is the offset of each replica's newest Fetch.
    Leader {
        start: u8,
        progress: [Option<u8>; REPLICAS],
    },
    Follower {
        leader: Id,
    },
    Resigned,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Replica {
    // On the disk.
    pub log: Log,
    /// A power loss takes what is beyond. The disk does one thing after the other: what was appended before an election
    /// state is durable with it.
    pub flushed: u8,
    pub epoch: u8,
    pub voted: Option<Id>,
    pub leader: Option<Id>,
    /// The election state was lost: it may have voted.
    pub amnesiac: bool,
    /// Entries below are in an installed snapshot, and nowhere else.
    pub snapshot: u8,
    /// The disk has lost the snapshot.
    pub damaged: bool,
    // In memory.
    pub role: Role,
    pub high_watermark: Option<u8>,
    /// The greatest high watermark that is known here: nothing below is cut off.
    pub committed: u8,
    /// The epochs that the others have named since the election state was lost.
    pub reported: [Option<u8>; REPLICAS],
    /// The epoch in which the end of the leader's log was reached since then.
    pub end_reached_in: Option<u8>,
}

/// A candidate's request. It stays in the network: each voter may hear it, at any time or never.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VoteRequest {
    pub epoch: u8,
    pub candidate: Id,
    pub voters: Set,
    pub end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Answer {
    /// The leader's log as far as it is sent.
    Records {
        log: Log,
        high_watermark: Option<u8>,
    },
    Diverging(End),
}

/// A Fetch, then its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fetch {
    pub from: Id,
    /// Which of its connections to the leader: there is one, but where bug 1 is planted.
    pub lane: u8,
    pub to: Id,
    pub epoch: u8,
    pub end: End,
    pub anonymous: bool,
    /// None: a late question, for whose answer nobody waits any more.
    pub answer: Option<Answer>,
}

/// What may still happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Budget {
    pub appends: u8,
    pub crashes: u8,
    pub late: u8,
    pub lost_votes: u8,
    pub damages: u8,
    pub changes: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub replicas: [Replica; REPLICAS],
    pub asked: Vec<VoteRequest>,
    pub fetches: Vec<Fetch>,
    pub budget: Budget,
    // What no replica knows, for the properties.
    /// Epoch and id of everybody who was elected.
    pub leaders: Vec<(u8, Id)>,
    pub committed: Log,
    /// How much of it the leader of each epoch has committed.
    pub committed_in: [u8; 8],
    /// Something that was committed is not what another leader has.
    pub lost: bool,
}

impl State {
    pub fn at(&self, id: Id) -> &Replica {
        &self.replicas[id as usize]
    }

    pub fn at_mut(&mut self, id: Id) -> &mut Replica {
        &mut self.replicas[id as usize]
    }

    /// A leader has found out that a majority has this prefix of its log.
    pub fn commit(&mut self, epoch: u8, prefix: Log) {
        self.lost |= !prefix.starts_with(&self.committed) && !self.committed.starts_with(&prefix);
        self.committed_in[epoch as usize] = prefix.end();
        if prefix.starts_with(&self.committed) {
            self.committed = prefix;
        }
    }

    /// What the leaders of earlier epochs have committed.
    pub fn committed_before(&self, epoch: u8) -> Log {
        let end = self.committed_in[..epoch as usize]
            .iter()
            .max()
            .copied()
            .unwrap_or(0);
        self.committed.prefix(end)
    }

    /// Put the collections into one order, so that equal states are equal values.
    pub fn sorted(mut self) -> State {
        self.asked.sort_unstable();
        self.asked.dedup();
        self.fetches.sort_unstable();
        self.leaders.sort_unstable();
        self.leaders.dedup();
        self
    }
}
