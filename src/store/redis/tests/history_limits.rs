//! The judge of histories of admissions: no more than the limit in any width; after a failover no more than that and what
//! the promoted replica had not received.
//!
//! An admission happened between the start and the end of its call. Those whose calls lie within one width as a whole
//! count together, so that what is found is a breach for certain. Calls are short and windows fill at once, so that one
//! admission too many is found too.
//!
//! A promoted replica has the first part of what its master accepted. Between the end of the master and the promotion the
//! run reads how many accepted times the replica has of each window. All other admissions of the dead master were not
//! received. A call that failed may have been accepted too, and may be one of those that the replica has.

use std::collections::HashMap;

use crate::domain::quota::Quota;
use crate::ports::store::{Admission, NonceRefused, Scope};
use crate::store::redis::tests::history::Span;

/// The part of a width by which Redis' clock and the monotonic one may differ: a time service slews by less.
const SLEW_PART: u64 = 1_000;

/// The agent and the scope of a window.
pub(super) type Window = (u64, Scope);

/// One call of `admit`.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) span: Span,
    pub(super) window: Window,
    pub(super) quota: Quota,
    /// `None` is a fault.
    pub(super) answer: Option<Admission>,
}

impl Asked {
    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.answer, Some(Admission::Admitted { .. }))
    }
}

/// The end of a master and what its replica has.
#[derive(Debug, Default)]
pub(super) struct Failover {
    /// A call that was under way meanwhile was answered by either master.
    pub(super) killed: Span,
    /// For each window of that master, how many accepted times the replica has.
    pub(super) received: HashMap<Window, usize>,
}

/// Which master answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Master {
    /// The one that died.
    Old,
    /// The promoted replica.
    New,
    /// One of those two: the call was under way at the kill.
    Either,
    /// One that lives, or there is only one.
    Other,
}

impl Failover {
    fn master(&self, asked: &Asked) -> Master {
        match asked.span {
            _ if !self.received.contains_key(&asked.window) => Master::Other,
            Span { start, .. } if start > self.killed.end => Master::New,
            Span { end, .. } if end > self.killed.start => Master::Either,
            Span { .. } => Master::Old,
        }
    }

    /// How many admissions to a window the promoted replica had not received, at most.
    pub(super) fn lost(&self, history: &[Asked], window: &Window) -> usize {
        let of_window = || history.iter().filter(|asked| asked.window == *window);
        let old = of_window().filter(|asked| asked.is_admitted() && self.master(asked) == Master::Old);
        let is_failed = |asked: &&Asked| asked.answer.is_none() && asked.span.start <= self.killed.end;
        let received = self.received.get(window).copied().unwrap_or(usize::MAX);
        old.count().saturating_sub(received.saturating_sub(of_window().filter(is_failed).count()))
    }
}

/// How full a window was in its fullest width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fullest {
    window: Window,
    admitted: usize,
    limit: usize,
    /// How many of those admitted the promoted replica had not received, at most.
    lost: usize,
}

impl Fullest {
    /// How many more were admitted than may be.
    fn above(&self) -> usize {
        self.admitted.saturating_sub(self.limit + self.lost)
    }
}

/// The windows of a history to which more were admitted than may be. Each master keeps to what it has: the dead one to
/// its own, the promoted one to its own and what it had received.
fn breaches(history: &[Asked], failover: &Failover) -> Vec<Fullest> {
    let alone = fullest(history, failover, &[Master::Other, Master::Old], |_| 0);
    let lost = |window: &Window| failover.lost(history, window);
    let both = fullest(history, failover, &[Master::Old, Master::New], lost);
    alone.into_iter().chain(both).filter(|width| width.above() > 0).collect()
}

/// The fullest width of each window, of the admissions by these masters.
fn fullest(
    history: &[Asked],
    failover: &Failover,
    masters: &[Master],
    lost: impl Fn(&Window) -> usize,
) -> Vec<Fullest> {
    let mut windows: HashMap<&Window, Vec<&Asked>> = HashMap::new();
    for asked in history.iter().filter(|asked| asked.is_admitted()) {
        if masters.contains(&failover.master(asked)) {
            windows.entry(&asked.window).or_default().push(asked);
        }
    }
    let mut all = Vec::new();
    for (window, mut admitted) in windows {
        admitted.sort_by_key(|asked| asked.span.start);
        let lost = lost(window);
        let width = |first: usize| {
            let Asked { span, quota, .. } = admitted[first];
            let end = span.start + quota.window_micros - quota.window_micros / SLEW_PART;
            let within = admitted[first..].iter().filter(move |asked| asked.span.end < end);
            let limit = within.clone().map(|asked| asked.quota.limit as usize).max().unwrap_or(0);
            let old = within.clone().filter(|asked| failover.master(asked) == Master::Old).count();
            Fullest { window: window.clone(), admitted: within.count(), limit, lost: old.min(lost) }
        };
        all.extend((0..admitted.len()).map(width).max_by_key(|width| (width.above(), width.admitted)));
    }
    all
}

/// The sums of all histories of one kind.
#[derive(Debug, Default)]
pub(super) struct Figures {
    runs: usize,
    faults: usize,
    asked: usize,
    admitted: usize,
    failed: usize,
    /// The most above the limit in any width, and how many of that window the promoted replica had not received.
    most_above: (usize, usize),
}

impl Figures {
    /// Judges a history in which the servers failed so often.
    #[track_caller]
    pub(super) fn add(&mut self, faults: usize, history: &[Asked], failover: &Failover) {
        assert_eq!(breaches(history, failover), vec![]);
        let admitted = || history.iter().filter(|asked| asked.is_admitted());
        self.runs += 1;
        self.faults += faults;
        self.asked += history.len();
        self.admitted += admitted().count();
        self.failed += history.iter().filter(|asked| asked.answer.is_none()).count();
        let every = [Master::Other, Master::Old, Master::New, Master::Either];
        for width in fullest(history, failover, &every, |_| 0) {
            let lost = failover.lost(history, &width.window);
            self.most_above = self.most_above.max((width.above(), lost));
        }
    }
}

/// Admissions of one window, each with its span and under a limit of 2 in 1,000 µs.
fn handmade(spans: &[(u64, u64)]) -> Vec<Asked> {
    let asked = |(start, end): &(u64, u64)| Asked {
        span: Span { start: *start, end: *end },
        window: (1, Scope::Api),
        quota: Quota { limit: 2, window_micros: 1_000 },
        answer: Some(Admission::Admitted { remaining: 0 }),
    };
    spans.iter().map(asked).collect()
}

fn found(history: &[Asked]) -> usize {
    breaches(history, &Failover::default()).len()
}

#[test]
fn one_admission_too_many_is_found_where_it_is_certain() {
    let full = [(10, 20), (30, 40)];
    assert_eq!(found(&handmade(&full)), 0);
    let width = Fullest { window: (1, Scope::Api), admitted: 3, limit: 2, lost: 0 };
    let too_many = handmade(&[full[0], full[1], (990, 1_008)]);
    assert_eq!(breaches(&too_many, &Failover::default())[0], width);
    for may_be_later in [(990, 1_009), (990, 5_000), (1_010, 1_020)] {
        assert_eq!(found(&handmade(&[full[0], full[1], may_be_later])), 0, "{may_be_later:?}");
    }
    // Their order in the history says nothing.
    assert_ne!(found(&handmade(&[(990, 1_008), full[1], full[0]])), 0);
}

#[test]
fn refusals_faults_other_windows_and_larger_limits_are_no_breach() {
    let three = handmade(&[(10, 20), (30, 40), (50, 60)]);
    assert_ne!(found(&three), 0);
    let with = |change: fn(&mut Asked)| {
        let mut history = three.clone();
        change(&mut history[1]);
        found(&history)
    };
    assert_eq!(with(|asked| asked.answer = None), 0);
    assert_eq!(with(|asked| asked.answer = Some(Admission::NonceRefused(NonceRefused::Used))), 0);
    assert_eq!(with(|asked| asked.window.0 = 2), 0);
    assert_eq!(with(|asked| asked.window.1 = Scope::Tenant("t".into())), 0);
    assert_eq!(with(|asked| asked.quota.limit = 3), 0);
}

#[test]
fn after_a_failover_only_what_was_not_received_may_come_on_top() {
    let killed = Span { start: 100, end: 105 };
    let with = |received| Failover { killed, received: [((1, Scope::Api), received)].into() };
    let history = handmade(&[(10, 20), (30, 40), (150, 160)]);
    for received in [0, 1] {
        assert_eq!(breaches(&history, &with(received)), vec![], "{received}");
    }
    assert_eq!(breaches(&history, &with(2)).len(), 1, "both were received");
    let mut failed = history.clone();
    failed.push(Asked { answer: None, ..history[0].clone() });
    assert_eq!(breaches(&failed, &with(2)), vec![], "one of the two may be that of the call that failed");
    assert_eq!(breaches(&history, &Failover { killed, ..Failover::default() }).len(), 1, "elsewhere");
    for alone in [[(10, 20), (30, 40), (50, 60)], [(110, 120), (130, 140), (150, 160)]] {
        assert_eq!(breaches(&handmade(&alone), &with(0)).len(), 1, "each master keeps the limit");
    }
    for under_way in [(90, 110), (102, 110)] {
        let history = handmade(&[(10, 20), (30, 40), under_way]);
        assert_eq!(breaches(&history, &with(2)), vec![], "it may be lost");
    }
}
