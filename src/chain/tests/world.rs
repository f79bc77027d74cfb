//! The worlds of the model: an agent, a chain, two back ends, and the product's own window, floor and status.

mod first;

use std::time::Duration;

use alloy::primitives::U256;

use crate::chain::block::{Block, Log, ReadAt};
use crate::chain::cache::{Details, Entry, Shown, Status, Ticket};
use crate::chain::dated::Floor;
use crate::chain::follower::window::{Piece, Position, Window};
use crate::chain::registries::logs::{Cause, Drops, Kind};
use crate::chain::tests::actions::{Action, BLOCKS_MAX, HEIGHT_MAX, Mutant, Named, REORGS_MAX, TICKS_MAX};
use crate::chain::tests::blocks::{BackEnd, Blocks, HELD, ORGANIZATION, drops};
use crate::domain::{AgentId, Lifetimes};
use crate::ports::Parts;

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
    made: usize,
    is_followed: bool,
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
    window: Window,
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
            window: Window::new(),
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
            actions.extend([Action::PollLosing { back_end: one }, Action::BeginRead { back_end: one }]);
            if self.flight.is_some() {
                actions.push(Action::ReadBeside { back_end: one });
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
                self.poll(self.back_ends[head].head, (self.back_ends[logs], false), mutant);
            }
            Action::PollLosing { back_end } => {
                self.poll(self.back_ends[back_end].head, (self.back_ends[back_end], true), mutant);
            }
            Action::BeginRead { back_end } => {
                self.begin_read(self.back_ends[back_end].head, mutant);
            }
            Action::EndRead => self.end_read(mutant),
            Action::ReadBeside { back_end } => {
                let under_way = self.flight.take();
                self.begin_read(self.back_ends[back_end].head, mutant);
                self.end_read(mutant);
                self.flight = under_way;
            }
            Action::LoseTouch => {
                self.window.forget();
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
        let last = self.window.last()?;
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

    fn poll(&mut self, head: usize, logs: (BackEnd, bool), mutant: Option<Mutant>) {
        let block = self.blocks.block(head);
        match self.window.position(&block) {
            Position::Behind if mutant == Some(Mutant::LessIsARollback) => self.reorganize(head, mutant),
            Position::Behind => self.ignored(head),
            Position::Same | Position::Ahead | Position::First | Position::Reorganized
                if !self.accepts(head, mutant) => {}
            Position::Same => self.confirm(head),
            Position::First => {
                self.window.begin(block);
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
        self.window.begin(block);
        if mutant != Some(Mutant::KeepInReorganization) {
            self.status.restart(Some(block));
        } else {
            self.status.advance(block, [0; 2], &self.status.shown(block.number));
        }
        (self.known, self.shown, self.lacks_logs) = (0, 0, false);
        self.confirm(head);
    }

    /// The logs of the head may be lost: too many, or too long.
    fn account(&mut self, head: usize, (back_end, is_lost): (BackEnd, bool), mutant: Option<Mutant>) {
        let block = self.blocks.block(head);
        let last = *self.window.last().unwrap();
        let is_of_chain = |(date, before): &Shown| {
            let of = |made| (self.blocks.date(made), self.blocks.block(made).parent) == (*date, *before);
            self.blocks.chain(head).any(of)
        };
        if mutant != Some(Mutant::ShownIsBelieved) && !self.status.shown(block.number).iter().all(is_of_chain)
        {
            return self.reorganize(head, mutant);
        }
        let mut pieces = self.window.pieces(&block, false).unwrap();
        if mutant == Some(Mutant::NoOverlap) {
            pieces = [Piece { kind: Kind::All, from: last.number + 1, to: block.number }].into();
        }
        let has = |made: usize| self.blocks.chain(back_end.head).any(|other| other == made);
        if mutant != Some(Mutant::LogsWithoutProof) && !has(head) {
            return;
        }
        if !self.blocks.chain(head).any(|made| self.blocks.block(made).hash == last.hash) {
            return self.reorganize(head, mutant);
        }
        let in_range = |height: u64| pieces.iter().any(|piece| (piece.from..=piece.to).contains(&height));
        let is_had = |height: u64| height <= back_end.logs && !(is_lost && height == block.number);
        let logs: Vec<Log> = self
            .blocks
            .chain(back_end.head)
            .filter(|made| in_range(self.blocks[*made].height) && is_had(self.blocks[*made].height))
            .filter_map(|made| self.blocks.log(made, self.named))
            .collect();
        let lost = Piece { kind: Kind::All, from: block.number, to: block.number };
        let lost: &[Piece] = if is_lost { &[lost] } else { &[] };
        if !self.window.account(block, &logs, lost) {
            return self.reorganize(head, mutant);
        }
        self.lacks_logs = !is_lost && back_end.logs < block.number;
        let mut drops = drops(&logs);
        if mutant != Some(Mutant::KeepWhatIsLost) {
            lost.iter().for_each(|piece| drops.add_cause(Cause { log: None, block: piece.to }));
        }
        self.status.advance(block, drops.floors(), &self.status.shown(block.number));
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
            let current = self.status.begin(0).epoch;
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

    fn begin_read(&mut self, made: usize, mutant: Option<Mutant>) {
        if !self.accepts(made, mutant) {
            return;
        }
        let ticket = self.status.begin(self.now_micros);
        let shows = |followed: &Block| {
            self.blocks.chain(made).any(|ours| self.blocks.block(ours).hash == followed.hash)
        };
        let is_any = mutant == Some(Mutant::AnyForkIsFollowed);
        let is_followed = ticket.followed.as_ref().is_some_and(|followed| is_any || shows(followed));
        self.flight = Some(Flight { ticket, made, is_followed, known: self.known });
    }

    fn end_read(&mut self, mutant: Option<Mutant>) {
        let Some(Flight { mut ticket, made, is_followed, known }) = self.flight.take() else {
            return;
        };
        let height = self.blocks[made].height;
        if height < known {
            self.broken = Some("a read shows an older block than was known when it began");
        }
        let is_of_this_epoch = ticket.epoch == self.status.begin(0).epoch;
        let is_of_now = is_of_this_epoch && self.followed() == Some(made);
        if mutant == Some(Mutant::KeepAcrossRestart) {
            ticket = self.status.begin(ticket.began_micros);
        }
        let mut date = self.blocks.date(made);
        if mutant == Some(Mutant::KeepAfterDrop) {
            date.number = u64::MAX;
        }
        let in_other_groups = self.named == Named::Organization || self.entry.is_none();
        let before = Some(self.blocks.block(made).parent);
        let mut read = ReadAt { date, before, is_followed };
        read.is_followed = self.status.confirms(&ticket, &read);
        let known = (made, Details::Unasked, HELD);
        match self.status.keep(&ticket, known, read, in_other_groups, self.entry.as_ref()) {
            Some(Entry::Read { profile, details, is_followed, epoch, began_micros, .. }) => {
                let block = height;
                self.entry = Some(Entry::Read { profile, details, block, is_followed, epoch, began_micros });
            }
            Some(shown) => self.entry = Some(shown),
            None if is_of_now && self.shown <= height => {
                self.broken = Some("a read at the followed block is not kept");
            }
            None => {}
        }
        self.floor.met(self.blocks.date(made), self.now_micros);
        self.known = self.known.max(height);
        if is_of_this_epoch {
            self.shown = self.shown.max(height);
        }
    }

    /// What a hit would serve now.
    fn check(&mut self) {
        let Some(entry) = &self.entry else { return };
        let &Entry::Read { profile: made, is_followed, block, .. } = entry else { return };
        if !self.status.serves(entry, Parts::Gate, &LIFETIMES, self.now_micros) {
            return;
        }
        let Some(followed) = self.followed() else {
            if is_followed {
                self.broken = Some("what was read at a followed block serves although none is followed");
            }
            return;
        };
        if block < self.shown {
            self.broken = Some("the cache serves an older block than was shown");
        }
        let is_below = self.blocks.chain(followed).any(|ours| ours == made);
        // Of what is above the follower finds out when it gets there.
        let is_above = block > self.blocks[followed].height;
        if is_followed && !is_below && !is_above {
            self.broken = Some("the cache serves a state of another fork for longer than an interval");
        }
        if is_below && !self.lacks_logs && self.blocks[followed].version != self.blocks[made].version {
            self.broken = Some("the cache serves an older state than that of the followed block");
        }
    }
}
