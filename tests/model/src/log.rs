//! A log of a few entries, packed into one number: states are copied and hashed by the million.

/// What an entry is for. Its epoch and offset say which entry it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Data,
    LeaderChange,
    /// The voters from here on, one bit for each replica.
    Voters(u8),
}

/// One byte: three bits of epoch, from 1 on, and five of kind. 0 is no entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry(u8);

impl Entry {
    pub fn new(epoch: u8, kind: Kind) -> Entry {
        let kind = match kind {
            Kind::Data => 0,
            Kind::LeaderChange => 1,
            Kind::Voters(set) => 16 | set,
        };
        Entry(epoch << 5 | kind)
    }

    pub fn epoch(self) -> u8 {
        self.0 >> 5
    }

    pub fn kind(self) -> Kind {
        match self.0 & 31 {
            0 => Kind::Data,
            1 => Kind::LeaderChange,
            set => Kind::Voters(set & 15),
        }
    }
}

/// The end of a log prefix; the greater one is the more up-to-date log (KIP-595, Vote).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct End {
    pub epoch: u8,
    pub offset: u8,
}

/// Up to eight entries from offset 0 on, a byte each, the first one lowest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Log(u64);

impl Log {
    pub fn of(entries: &[Entry]) -> Log {
        entries
            .iter()
            .fold(Log::default(), |log, entry| log.with(*entry))
    }

    pub fn end(&self) -> u8 {
        8 - (self.0.leading_zeros() / 8) as u8
    }

    pub fn is_full(&self) -> bool {
        self.end() == 8
    }

    pub fn at(&self, offset: u8) -> Entry {
        Entry((self.0 >> (8 * offset)) as u8)
    }

    pub fn entries(self) -> impl Iterator<Item = Entry> {
        (0..self.end()).map(move |offset| self.at(offset))
    }

    pub fn with(&self, entry: Entry) -> Log {
        assert!(!self.is_full(), "this world is too small for its logs");
        Log(self.0 | (entry.0 as u64) << (8 * self.end()))
    }

    pub fn prefix(&self, end: u8) -> Log {
        if end >= 8 {
            *self
        } else {
            Log(self.0 & ((1 << (8 * end)) - 1))
        }
    }

    pub fn starts_with(&self, other: &Log) -> bool {
        self.prefix(other.end()) == *other
    }

    /// The epoch of the entry before `offset`; 0 if there is none.
    pub fn epoch_before(&self, offset: u8) -> u8 {
        if offset == 0 {
            0
        } else {
            self.at(offset - 1).epoch()
        }
    }

    /// The largest known epoch that is not above `epoch`, and where it ends (KIP-595, divergence of a follower's log).
    pub fn end_for(&self, epoch: u8) -> End {
        let offset = self
            .entries()
            .take_while(|entry| entry.epoch() <= epoch)
            .count() as u8;
        End {
            epoch: if offset == 0 {
                epoch
            } else {
                self.epoch_before(offset)
            },
            offset,
        }
    }

    /// The voter sets in force at `offset` and after it.
    pub fn voters_since(&self, offset: u8, first: u8) -> Vec<u8> {
        let mut sets = vec![first];
        for (place, entry) in self.entries().enumerate() {
            match entry.kind() {
                Kind::Voters(voters) if place < offset as usize => sets[0] = voters,
                Kind::Voters(voters) => sets.push(voters),
                _ => {}
            }
        }
        sets
    }

    /// The offset of the newest entry that names voters, and these.
    pub fn newest_voters(&self) -> Option<(u8, u8)> {
        (0..self.end())
            .rev()
            .find_map(|offset| match self.at(offset).kind() {
                Kind::Voters(voters) => Some((offset, voters)),
                _ => None,
            })
    }
}

/// `0:leader@2 1:data@2`.
impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = self.entries().enumerate().map(|(offset, entry)| {
            format!(
                "{offset}:{}@{}",
                crate::story::kind(entry.kind()),
                entry.epoch()
            )
        });
        write!(f, "[{}]", words.collect::<Vec<_>>().join(" "))
    }
}
