//! The worlds of the model: an agent, a chain, two back ends, and the product's own tracker, floor and status between
//! them.

use alloy::primitives::{Address, B256, U256};
use alloy::sol_types::SolEvent;

use crate::chain::answer::{Date, Floor};
use crate::chain::block::{Block, Log};
use crate::chain::cache::status::{Entry, Serving, Status, Ticket};
use crate::chain::follower::tracker::{BlockTracker, Position};
use crate::chain::registries::standard::Staked;

const SERVING: Serving = Serving { interval_micros: 10, reread_micros: None };
const TICK_MICROS: u64 = 10;
const STALENESS_MICROS: u64 = 1_000;

/// Nothing becomes void in these worlds.
const FLOOR: Floor = Floor::new(u64::MAX, None);

/// The bounds of the worlds.
const BLOCKS_MAX: usize = 7;
const HEIGHT_MAX: u64 = 4;
const REORGS_MAX: u8 = 1;
const TICKS_MAX: u8 = 1;

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Answers of any age count.
    AnyAge,
    /// Answers one block older than the newest known one count.
    OneBlockOlder,
    /// A read is kept whatever was dropped since it began.
    KeepAfterDrop,
    /// A read is kept although the follower began anew since.
    KeepAcrossRestart,
    /// Logs come from a back end that does not show that it has the head.
    LogsWithoutProof,
    /// Logs drop nothing.
    NoDrops,
    /// A read at the latest block is kept like one at the followed block.
    LatestKeptForGood,
    /// A node that has less is taken for a rollback.
    LessIsARollback,
    /// An agent is read at the followed block although it was shown at a later one.
    OlderThanShown,
    /// A reorganization leaves what was cached.
    KeepInReorganization,
}

/// A block of the world: its parent by index, its height, the agent's version after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Made {
    parent: usize,
    height: u64,
    version: u8,
}

/// A read under way, with the answer that it will give.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flight {
    ticket: Ticket,
    began_micros: u64,
    made: usize,
    /// What was known when it began: no lower block may be shown.
    known: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    blocks: Vec<Made>,
    /// The heads of the chain and of both back ends.
    head: usize,
    back_ends: [usize; 2],
    reorgs: u8,
    ticks: u8,
    now_micros: u64,
    tracker: BlockTracker,
    floor: Floor,
    status: Status,
    entry: Option<Entry<u8>>,
    flight: Option<Flight>,
    /// The highest block that was accounted for or shown, and of those shown of the agent, since the last beginning.
    known: u64,
    shown: u64,
    pub(super) broken: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Grow {
        changes: bool,
    },
    Reorganize {
        changes: bool,
    },
    /// A back end gets the chain's head.
    CatchUp(usize),
    /// The head comes from one back end, the logs from another.
    Poll {
        head: usize,
        logs: usize,
    },
    BeginRead {
        back_end: usize,
        latest: bool,
    },
    EndRead,
    LoseTouch,
    Tick,
}

impl World {
    pub(super) fn new() -> Self {
        let genesis = Made { parent: 0, height: 1, version: 0 };
        Self {
            blocks: vec![genesis],
            head: 0,
            back_ends: [0, 0],
            reorgs: 0,
            ticks: 0,
            now_micros: 1,
            tracker: BlockTracker::new(None),
            floor: FLOOR,
            status: Status::new(),
            entry: None,
            flight: None,
            known: 0,
            shown: 0,
            broken: None,
        }
    }

    /// The agent's profile is cached at the followed block, which is the head of all.
    pub(super) fn warm() -> Self {
        let mut world = Self::new();
        for action in [
            Action::Grow { changes: true },
            Action::CatchUp(0),
            Action::CatchUp(1),
            Action::Poll { head: 0, logs: 0 },
            Action::BeginRead { back_end: 0, latest: true },
            Action::EndRead,
            Action::Tick,
            Action::BeginRead { back_end: 0, latest: false },
            Action::EndRead,
        ] {
            world.step(action, None);
        }
        let Some(Entry::Read { reading, .. }) = &world.entry else { panic!("nothing is cached") };
        assert!(reading.is_pinned() && world.broken.is_none());
        Self { ticks: 0, ..world }
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::EndRead, Action::LoseTouch];
        if self.blocks.len() < BLOCKS_MAX && self.blocks[self.head].height < HEIGHT_MAX {
            actions.extend([true, false].map(|changes| Action::Grow { changes }));
        }
        if self.blocks.len() < BLOCKS_MAX && self.head != 0 && self.reorgs < REORGS_MAX {
            actions.extend([true, false].map(|changes| Action::Reorganize { changes }));
        }
        if self.ticks < TICKS_MAX {
            actions.push(Action::Tick);
        }
        for one in [0, 1] {
            actions.push(Action::CatchUp(one));
            actions.extend([0, 1].map(|logs| Action::Poll { head: one, logs }));
            actions.extend([true, false].map(|latest| Action::BeginRead { back_end: one, latest }));
        }
        actions
    }

    pub(super) fn step(&mut self, action: Action, mutant: Option<Mutant>) {
        match action {
            Action::Grow { changes } => self.head = self.make(self.head, changes),
            Action::Reorganize { changes } => {
                self.reorgs += 1;
                self.head = self.make(self.blocks[self.head].parent, changes);
            }
            Action::CatchUp(back_end) => self.back_ends[back_end] = self.head,
            Action::Poll { head, logs } => self.poll(self.back_ends[head], self.back_ends[logs], mutant),
            Action::BeginRead { back_end, latest } => {
                self.begin_read(self.back_ends[back_end], latest, mutant)
            }
            Action::EndRead => self.end_read(mutant),
            Action::LoseTouch => {
                self.tracker.forget();
                self.status.lose_touch();
            }
            Action::Tick => {
                self.ticks += 1;
                self.now_micros += TICK_MICROS;
            }
        }
        self.check();
    }

    fn make(&mut self, parent: usize, changes: bool) -> usize {
        let Made { height, version, .. } = self.blocks[parent];
        let newest = self.blocks.iter().map(|made| made.version).max().unwrap();
        let version = if changes { newest + 1 } else { version };
        self.blocks.push(Made { parent, height: height + 1, version });
        self.blocks.len() - 1
    }

    fn block(&self, made: usize) -> Block {
        let hash = |made: usize| B256::with_last_byte(u8::try_from(made).unwrap() + 1);
        let Made { parent, height, .. } = self.blocks[made];
        Block { number: height, hash: hash(made), parent: hash(parent), timestamp: 0 }
    }

    /// The chain that ends with this block, downwards.
    fn chain(&self, from: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(from), |made| (*made != 0).then(|| self.blocks[*made].parent))
    }

    fn date(&self, made: usize) -> Date {
        Date { number: self.blocks[made].height, timestamp: 0 }
    }

    fn accepts(&self, made: usize, mutant: Option<Mutant>) -> bool {
        let mut date = self.date(made);
        match mutant {
            Some(Mutant::AnyAge) => return true,
            Some(Mutant::OneBlockOlder) => date.number += 1,
            _ => {}
        }
        self.floor.accepts(date, self.now_micros, 0).is_ok()
    }

    fn poll(&mut self, head: usize, logs: usize, mutant: Option<Mutant>) {
        let block = self.block(head);
        let mut position = self.tracker.position(&block);
        if mutant == Some(Mutant::LessIsARollback) && position == Position::Behind {
            position = Position::Reorganized;
        }
        match position {
            Position::Behind | Position::Gap => {}
            Position::Same | Position::Ahead | Position::First if !self.accepts(head, mutant) => {}
            Position::Same => self.confirm(head),
            Position::First => {
                self.tracker.begin(block);
                self.status.restart(block);
                self.confirm(head);
            }
            Position::Reorganized => self.reorganize(head, mutant),
            Position::Ahead => self.account(head, logs, mutant),
        }
    }

    fn reorganize(&mut self, head: usize, mutant: Option<Mutant>) {
        let block = self.block(head);
        let last = *self.tracker.last().unwrap();
        if self.chain(head).chain(self.chain(self.head)).any(|made| self.block(made).hash == last.hash)
            && self.reorgs == 0
        {
            self.broken = Some("the follower began anew without a reorganization");
        }
        self.tracker.reorganize(block);
        if mutant != Some(Mutant::KeepInReorganization) {
            self.status.restart(block);
        } else {
            self.status.advance(block, false, false);
        }
        self.floor.reset(self.date(head), self.now_micros);
        (self.known, self.shown) = (0, 0);
        self.confirm(head);
    }

    fn account(&mut self, head: usize, logs: usize, mutant: Option<Mutant>) {
        let block = self.block(head);
        let range = self.tracker.range(&block).unwrap();
        let has = |made: usize| self.chain(logs).any(|other| other == made);
        let followed = self.chain(head).any(|made| self.block(made).hash == range.last.hash);
        if mutant != Some(Mutant::LogsWithoutProof) && !has(head) {
            return;
        }
        if !followed {
            return self.reorganize(head, mutant);
        }
        let in_range = |made: &usize| (range.from..=range.to).contains(&self.blocks[*made].height);
        let logs: Vec<Log> = self.chain(logs).filter(in_range).filter_map(|made| self.log(made)).collect();
        match self.tracker.account(&range, block, &logs) {
            None => self.reorganize(head, mutant),
            Some(drops) => {
                self.status.advance(block, false, drops.everybody.is_some());
                if let Some(entry) = self.entry.clone().filter(|_| !drops.agents.is_empty())
                    && mutant != Some(Mutant::NoDrops)
                {
                    self.entry = Some(self.status.dropped(&entry, Address::ZERO));
                }
                self.confirm(head);
            }
        }
    }

    fn log(&self, made: usize) -> Option<Log> {
        let Made { parent, version, .. } = self.blocks[made];
        let Block { number, hash, .. } = self.block(made);
        (self.blocks[parent].version != version).then(|| Log {
            address: Address::ZERO,
            block_number: number,
            block_hash: hash,
            log_index: 0,
            topics: vec![Staked::SIGNATURE_HASH, U256::ONE.into(), B256::ZERO],
            first_word: None,
        })
    }

    fn confirm(&mut self, head: usize) {
        self.floor.met(self.date(head), self.now_micros);
        self.known = self.known.max(self.blocks[head].height);
        self.status.confirm(self.now_micros, STALENESS_MICROS);
    }

    fn begin_read(&mut self, back_end: usize, latest: bool, mutant: Option<Mutant>) {
        let mut ticket = if latest {
            self.status.begin::<u8>(None, self.now_micros)
        } else {
            self.status.begin(self.entry.as_ref(), self.now_micros)
        };
        if mutant == Some(Mutant::OlderThanShown) && !latest {
            ticket = self.status.begin(
                Some(&self.status.dropped::<u8>(
                    &Entry::Dropped { owner: Address::ZERO, floor: 0, generation: self.status.generation() },
                    Address::ZERO,
                )),
                self.now_micros,
            );
        }
        let made = match ticket.pinned {
            Some(pinned) => self.chain(back_end).find(|made| self.block(*made).hash == pinned.hash),
            None => Some(back_end).filter(|made| self.accepts(*made, mutant)),
        };
        let known = if ticket.pinned.is_some() { self.shown } else { self.known };
        if let Some(made) = made {
            self.flight = Some(Flight { ticket, began_micros: self.now_micros, made, known });
        }
    }

    fn end_read(&mut self, mutant: Option<Mutant>) {
        let Some(Flight { ticket, began_micros, made, known }) = self.flight.take() else { return };
        let Made { height, version, .. } = self.blocks[made];
        if height < known {
            self.broken = Some("a read shows an older block than was known when it began");
        }
        let (mut ticket, mut block) = (ticket, height);
        if mutant == Some(Mutant::KeepAcrossRestart) {
            let pinned = ticket.pinned;
            ticket = Ticket { pinned, generation: self.status.generation() };
        }
        if mutant == Some(Mutant::KeepAfterDrop) {
            block = u64::MAX;
        }
        if self.status.may_keep(&ticket, block, false, self.entry.as_ref()) {
            let mut kept = ticket;
            if mutant == Some(Mutant::LatestKeptForGood) {
                kept.pinned = kept.pinned.or(Some(self.block(made)));
            }
            let reading = self.status.reading(&kept, began_micros);
            self.entry = Some(Entry::Read { profile: version, block: height, reading });
        }
        if ticket.pinned.is_none() {
            self.floor.met(self.date(made), self.now_micros);
            self.known = self.known.max(height);
        }
        self.shown = self.shown.max(height);
    }

    /// What a hit would serve now.
    fn check(&mut self) {
        let Some(Entry::Read { profile, block, reading }) = &self.entry else { return };
        let (generation, until) = (self.status.generation().as_number(), self.status.in_touch_until());
        if !SERVING.serves(reading, generation, until, self.now_micros) {
            return;
        }
        let Some(last) = self.tracker.last() else { return };
        let followed = (0..self.blocks.len()).find(|made| self.block(*made).hash == last.hash).unwrap();
        let is_followed_state = self.blocks[followed].version == *profile;
        // At the latest block it may be newer than what is followed.
        if !is_followed_state && (reading.is_pinned() || *block < last.number) {
            self.broken = Some("the cache serves another state than that of the followed block");
        }
    }
}
