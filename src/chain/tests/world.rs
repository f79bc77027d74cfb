//! The worlds of the model: an agent, a chain, two back ends, and the product's own tracker, floor and status.

use std::time::Duration;

use alloy::primitives::U256;

use crate::chain::answer::Floor;
use crate::chain::block::Log;
use crate::chain::cache::status::{Entry, Status, Ticket};
use crate::chain::follower::tracker::{BlockTracker, Position, Range};
use crate::chain::registries::logs::Drops;
use crate::chain::tests::actions::{Action, BLOCKS_MAX, HEIGHT_MAX, Mutant, Named, REORGS_MAX, TICKS_MAX};
use crate::chain::tests::blocks::{BackEnd, Blocks, HELD, ORGANIZATION, drops};
use crate::domain::agent_id::AgentId;
use crate::domain::chain_settings::Lifetimes;

const LIFETIMES: Lifetimes = Lifetimes {
    poll_interval: Duration::from_micros(10),
    max_staleness: Duration::from_micros(STALENESS_MICROS),
    reread_after: None,
};
const TICK_MICROS: u64 = 10;
const STALENESS_MICROS: u64 = 1_000;

/// None becomes void.
const FLOOR: Floor = Floor::new(u64::MAX, None);

/// A read under way, with the block of the answer that it will give.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flight {
    ticket: Ticket,
    began_micros: u64,
    made: usize,
    /// No lower block may be shown: what was known when it began.
    known: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    named: Named,
    blocks: Blocks,
    /// The chain's head.
    head: usize,
    back_ends: [BackEnd; 2],
    reorgs: u8,
    ticks: u8,
    now_micros: u64,
    tracker: BlockTracker,
    floor: Floor,
    status: Status,
    /// The block that a profile was read at is its value.
    entry: Option<Entry<usize>>,
    flight: Option<Flight>,
    /// The highest block that was accounted for or shown, and of those shown of the agent, since the last beginning.
    known: u64,
    shown: u64,
    /// The blocks that were followed and then reorganized away: from then on they are behind, until one follows them.
    left: u8,
    /// The last logs lacked what a back end did not have yet. That is promised for the next ones only.
    lacks_logs: bool,
    pub(super) broken: Option<&'static str>,
}

impl World {
    pub(super) fn new(named: Named) -> Self {
        Self {
            named,
            blocks: Blocks::new(),
            head: 0,
            back_ends: [BackEnd { head: 0, logs: 1 }; 2],
            reorgs: 0,
            ticks: 0,
            now_micros: 1,
            tracker: BlockTracker::new(),
            floor: FLOOR,
            status: Status::default(),
            entry: None,
            flight: None,
            known: 0,
            shown: 0,
            left: 0,
            lacks_logs: false,
            broken: None,
        }
    }

    /// The agent's profile is cached at the followed block, which is the head of all.
    pub(super) fn warm(named: Named) -> Self {
        let mut world = Self::new(named);
        for action in [
            Action::Grow { changes: true },
            Action::CatchUp { back_end: 0, with_logs: true },
            Action::CatchUp { back_end: 1, with_logs: true },
            Action::Poll { head: 0, logs: 0 },
            Action::BeginRead { back_end: 0, latest: true },
            Action::EndRead,
            Action::Tick,
            Action::BeginRead { back_end: 0, latest: false },
            Action::EndRead,
        ] {
            world.step(action, None);
        }
        assert!(matches!(world.entry, Some(Entry::Read { is_pinned: true, .. })) && world.broken.is_none());
        let entry = world.entry.as_ref().unwrap();
        assert!(world.status.serves(entry, &LIFETIMES, world.now_micros), "what was just read serves");
        Self { ticks: 0, ..world }
    }

    /// A log of the followed block, which is the head of one back end, has dropped the agent.
    pub(super) fn dropped(named: Named) -> Self {
        let mut world = Self::warm(named);
        for action in [
            Action::Grow { changes: true },
            Action::CatchUp { back_end: 0, with_logs: true },
            Action::Poll { head: 0, logs: 0 },
        ] {
            world.step(action, None);
        }
        assert!(matches!(world.entry, Some(Entry::Dropped { .. })));
        world
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::LoseTouch];
        if self.flight.is_some() {
            actions.push(Action::EndRead);
        }
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
            actions.extend([true, false].map(|with_logs| Action::CatchUp { back_end: one, with_logs }));
            actions.extend([0, 1].map(|logs| Action::Poll { head: one, logs }));
            actions.extend([true, false].map(|latest| Action::BeginRead { back_end: one, latest }));
            if self.flight.is_some() {
                actions.push(Action::ReadLatest { back_end: one });
            }
        }
        actions
    }

    pub(super) fn step(&mut self, action: Action, mutant: Option<Mutant>) {
        match action {
            Action::Grow { changes } => self.head = self.blocks.make(self.head, changes),
            Action::Reorganize { changes } => {
                self.reorgs += 1;
                self.head = self.blocks.make(self.blocks[self.head].parent, changes);
            }
            Action::CatchUp { back_end, with_logs } => {
                let height = self.blocks[self.head].height;
                self.back_ends[back_end] =
                    BackEnd { head: self.head, logs: if with_logs { height } else { height - 1 } };
            }
            Action::Poll { head, logs } => {
                self.poll(self.back_ends[head].head, self.back_ends[logs], mutant);
            }
            Action::BeginRead { back_end, latest } => {
                self.begin_read(self.back_ends[back_end].head, latest, mutant);
            }
            Action::EndRead => self.end_read(mutant),
            Action::ReadLatest { back_end } => {
                let under_way = self.flight.take();
                self.begin_read(self.back_ends[back_end].head, true, mutant);
                self.end_read(mutant);
                self.flight = under_way;
            }
            Action::LoseTouch => {
                self.tracker.forget();
                if mutant != Some(Mutant::KeepOutOfTouch) {
                    self.status.restart(None);
                }
                (self.shown, self.left, self.lacks_logs) = (0, 0, false);
            }
            Action::Tick => {
                self.ticks += 1;
                self.now_micros += TICK_MICROS;
            }
        }
        self.check();
    }

    /// The followed block.
    fn followed(&self) -> Option<usize> {
        let last = self.tracker.last()?;
        (0..self.blocks.len()).find(|made| self.blocks.block(*made).hash == last.hash)
    }

    fn accepts(&mut self, made: usize, mutant: Option<Mutant>) -> bool {
        let mut date = self.blocks.date(made);
        match mutant {
            Some(Mutant::AnyAge) => return true,
            Some(Mutant::OneBlockOlder) => {
                (date.timestamp, date.number) = (date.timestamp + 1, date.number + 1)
            }
            _ => {}
        }
        let accepts = self.floor.accepts(date, self.now_micros, 0).is_ok();
        if !accepts && made == self.head {
            self.broken = Some("an answer of the chain's head does not count");
        }
        accepts
    }

    fn poll(&mut self, head: usize, logs: BackEnd, mutant: Option<Mutant>) {
        let block = self.blocks.block(head);
        match self.tracker.position(&block) {
            Position::Behind if mutant == Some(Mutant::LessIsARollback) => self.reorganize(head, mutant),
            Position::Behind => self.ignored(head),
            Position::Same | Position::Ahead | Position::First | Position::Reorganized
                if !self.accepts(head, mutant) => {}
            Position::Same => self.confirm(head),
            Position::First => {
                self.tracker.begin(block, false);
                self.status.restart(Some(block));
                self.confirm(head);
            }
            Position::Reorganized => self.reorganize(head, mutant),
            Position::Ahead => self.account(head, logs, mutant),
        }
    }

    /// A head was taken for one that is behind. It must not be the chain's own, in the place of the followed block.
    fn ignored(&mut self, head: usize) {
        let followed = self.followed().unwrap();
        let is_in_its_place = head != followed && self.blocks[head].height == self.blocks[followed].height;
        let was_left = self.left & 1 << head != 0;
        if is_in_its_place && !was_left && self.blocks.chain(self.head).any(|made| made == head) {
            self.broken = Some("a reorganization is ignored");
        }
    }

    fn reorganize(&mut self, head: usize, mutant: Option<Mutant>) {
        let block = self.blocks.block(head);
        if self.reorgs == 0 {
            self.broken = Some("the follower began anew without a reorganization");
        }
        if let Some(followed) = self.followed() {
            if head < followed {
                self.broken = Some("the follower began anew at an older fork");
            }
            self.left |= 1 << followed;
        }
        self.tracker.begin(block, true);
        if mutant != Some(Mutant::KeepInReorganization) {
            self.status.restart(Some(block));
        } else {
            self.status.advance(block, [0; 3]);
        }
        (self.known, self.shown, self.lacks_logs) = (0, 0, false);
        self.confirm(head);
    }

    fn account(&mut self, head: usize, back_end: BackEnd, mutant: Option<Mutant>) {
        let block = self.blocks.block(head);
        let mut range = self.tracker.range(&block).unwrap();
        if mutant == Some(Mutant::NoOverlap) {
            range = Range { from: range.last.number + 1, ..range };
        }
        let has = |made: usize| self.blocks.chain(back_end.head).any(|other| other == made);
        if mutant != Some(Mutant::LogsWithoutProof) && !has(head) {
            return;
        }
        if !self.blocks.chain(head).any(|made| self.blocks.block(made).hash == range.last.hash) {
            return self.reorganize(head, mutant);
        }
        let in_range = |made: &usize| (range.from..=range.to).contains(&self.blocks[*made].height);
        let lacks_logs = back_end.logs < range.to;
        let logs: Vec<Log> = self
            .blocks
            .chain(back_end.head)
            .filter(|made| in_range(made) && self.blocks[*made].height <= back_end.logs)
            .filter_map(|made| self.blocks.log(made, self.named))
            .collect();
        if !self.tracker.account(&range, block, &logs) {
            return self.reorganize(head, mutant);
        }
        self.lacks_logs = lacks_logs;
        let drops = drops(&logs);
        self.status.advance(block, drops.floors());
        if mutant != Some(Mutant::NoDrops) {
            self.apply(&drops);
        }
        self.confirm(head);
    }

    /// Drops the agent as the cache does: members are found by their cached profiles.
    fn apply(&mut self, drops: &Drops) {
        let is_cached = matches!(self.entry, Some(Entry::Read { .. }));
        let by_organization = drops.organizations.get(&ORGANIZATION).filter(|_| is_cached);
        let by_holder = drops.holders.get(&HELD.owner);
        let by_id = drops.agents.get(&AgentId::new(U256::ONE));
        for at in [by_id, by_organization, by_holder].into_iter().flatten() {
            let Some(entry) = &self.entry else { return };
            let Some(dropped) = self.status.dropped(entry, HELD, *at) else { continue };
            let current = self.status.begin_latest().epoch;
            if matches!(entry, Entry::Read { block, epoch, .. } if block >= at && *epoch == current) {
                self.broken = Some("a profile is dropped that has the change");
            }
            self.entry = Some(dropped);
        }
    }

    fn confirm(&mut self, head: usize) {
        self.floor.met(self.blocks.date(head), self.now_micros);
        self.known = self.known.max(self.blocks[head].height);
        self.status.confirm(self.now_micros, STALENESS_MICROS);
    }

    fn begin_read(&mut self, back_end: usize, latest: bool, mutant: Option<Mutant>) {
        let mut ticket = if latest {
            self.status.begin_latest()
        } else {
            self.status.begin(self.entry.as_ref(), self.now_micros)
        };
        if mutant == Some(Mutant::OlderThanShown) && !latest {
            let never_shown = Entry::<usize>::Dropped { holders: HELD, floor: 0, epoch: u32::MAX };
            ticket = self.status.begin(Some(&never_shown), self.now_micros);
        }
        let made = match ticket.pinned {
            Some(pinned) => {
                self.blocks.chain(back_end).find(|made| self.blocks.block(*made).hash == pinned.hash)
            }
            None => self.accepts(back_end, mutant).then_some(back_end),
        };
        let known = if ticket.pinned.is_some() { self.shown } else { self.known };
        if let Some(made) = made {
            self.flight = Some(Flight { ticket, began_micros: self.now_micros, made, known });
        }
    }

    fn end_read(&mut self, mutant: Option<Mutant>) {
        let Some(Flight { mut ticket, began_micros, made, known }) = self.flight.take() else { return };
        let height = self.blocks[made].height;
        if height < known {
            self.broken = Some("a read shows an older block than was known when it began");
        }
        let mut block = height;
        let is_pinned_there = ticket.pinned.is_some_and(|at| Some(&at) == self.tracker.last())
            && ticket.epoch == self.status.begin_latest().epoch;
        if mutant == Some(Mutant::KeepAcrossRestart) {
            ticket = Ticket { pinned: ticket.pinned, ..self.status.begin_latest() };
        }
        if mutant == Some(Mutant::KeepAfterDrop) {
            block = u64::MAX;
        }
        let mut kept = ticket;
        if mutant == Some(Mutant::LatestKeptForGood) {
            kept.pinned = kept.pinned.or(Some(self.blocks.block(made)));
        }
        let has_organizations = self.named == Named::Organization;
        let read = ((made, HELD, block), (self.entry.as_ref(), began_micros));
        match self.status.keep(&kept, read.0, (has_organizations, self.entry.is_none()), read.1) {
            Some(shown @ Entry::Dropped { .. }) => self.entry = Some(shown),
            Some(Entry::Read { profile, is_pinned, epoch, .. }) => {
                self.entry = Some(Entry::Read { profile, block: height, is_pinned, epoch, began_micros });
            }
            _ if is_pinned_there && self.shown <= height => {
                self.broken = Some("a read at the followed block is not kept");
            }
            _ => {}
        }
        if ticket.pinned.is_none() {
            self.floor.met(self.blocks.date(made), self.now_micros);
            self.known = self.known.max(height);
        }
        self.shown = self.shown.max(height);
    }

    /// What a hit would serve now.
    fn check(&mut self) {
        let Some(entry) = &self.entry else { return };
        let &Entry::Read { profile: made, is_pinned, block, .. } = entry else { return };
        if !self.status.serves(entry, &LIFETIMES, self.now_micros) {
            return;
        }
        let Some(followed) = self.followed() else {
            if is_pinned {
                self.broken = Some("what was read at a followed block serves although none is followed");
            }
            return;
        };
        if block < self.shown {
            self.broken = Some("the cache serves an older block than was shown");
        }
        // What was read at the latest block may be newer than what is followed, or of a fork that is no more.
        let is_comparable = self.blocks.chain(followed).any(|ours| ours == made) || is_pinned;
        if is_comparable && !self.lacks_logs && self.blocks[followed].version != self.blocks[made].version {
            self.broken = Some("the cache serves another state than that of the followed block");
        }
    }
}
