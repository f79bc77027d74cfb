//! The judge of histories: no window has more than its limit in any width; a nonce is used once; a change of a key that was
//! answered before a verification was asked makes it refused, and a key that was refused never passes again.
//!
//! A call did what it did between its start and its end, so that each breach that is found is one for certain. Admissions
//! whose calls lie within one width as a whole count together; calls are short and windows fill at once, so that one
//! admission too many is found too. Changes and verifications that overlap may go either way.
//!
//! A promoted replica has the first part of what its master accepted. Between the end of the master and the promotion the
//! run reads how many accepted times the replica has of each window; all other admissions of the dead master may come on
//! top. A call that failed may have been accepted too, and may be one of those that the replica has. The dead master may
//! have refused a key on account of a change that was never answered and that the replica had not received.

use std::collections::HashMap;

use crate::domain::Quota;
use crate::ports::{Admission, NonceRefused, Scope};

/// The part of a width by which Redis' clock and the monotonic one may differ: a time service slews by less.
const SLEW_PART: u64 = 1_000;

/// When a call began and when it had answered, in microseconds of a monotonic clock.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The agent and the scope of a window.
pub(super) type Window = (u64, Scope);

/// One call of `admit`.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) span: Span,
    pub(super) window: Window,
    pub(super) quota: Quota,
    /// The nonce that it shows, if it shows no key.
    pub(super) nonce: Option<u64>,
    /// `None` is a fault.
    pub(super) answer: Option<Admission>,
}

impl Asked {
    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.answer, Some(Admission::Admitted { .. }))
    }
}

/// One change of an agent's key. An agent's changes follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changed {
    pub(super) span: Span,
    pub(super) agent: u64,
    /// The key that it makes; `None` revokes.
    pub(super) key: Option<u64>,
    /// It was answered with "done".
    pub(super) done: bool,
}

/// One verification of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verified {
    pub(super) span: Span,
    pub(super) key: u64,
    /// `None` is a fault.
    pub(super) passed: Option<bool>,
}

/// The end of a master whose replica took its place. A call that was under way meanwhile was answered by either one.
#[derive(Debug, Clone)]
pub(super) struct Failover {
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

/// Admissions that no rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Breach {
    OverLimit(Fullest),
    /// The agent's nonce was used before.
    UsedAgain(u64, u64),
    /// The key was asked about after a change of it had been answered.
    AfterChange(u64),
    /// The key was asked about after it had been refused.
    AfterRefusal(u64),
}

#[derive(Debug, Default, Clone)]
pub(super) struct History {
    pub(super) asked: Vec<Asked>,
    pub(super) changed: Vec<Changed>,
    pub(super) verified: Vec<Verified>,
    pub(super) failover: Option<Failover>,
}

impl History {
    pub(super) fn breaches(&self) -> Vec<Breach> {
        let over = self.over_limits().into_iter().map(Breach::OverLimit);
        over.chain(self.used_again()).chain(self.passed_too_late()).collect()
    }

    /// The dead master keeps to its own, the promoted one to its own and what it had received.
    fn over_limits(&self) -> Vec<Fullest> {
        let alone = self.fullest(&[Master::Other, Master::Old], |_| 0);
        let both = self.fullest(&[Master::Old, Master::New], |window| self.lost(window));
        alone.into_iter().chain(both).filter(|width| width.above() > 0).collect()
    }

    fn master(&self, asked: &Asked) -> Master {
        let Some(Failover { killed, received }) = &self.failover else { return Master::Other };
        match asked.span {
            _ if !received.contains_key(&asked.window) => Master::Other,
            Span { start, .. } if start > killed.end => Master::New,
            Span { end, .. } if end > killed.start => Master::Either,
            Span { .. } => Master::Old,
        }
    }

    /// How many admissions to a window the promoted replica had not received, at most.
    pub(super) fn lost(&self, window: &Window) -> usize {
        let Some(Failover { killed, received }) = &self.failover else { return 0 };
        let of_window = || self.asked.iter().filter(|asked| asked.window == *window);
        let old = of_window().filter(|asked| asked.is_admitted() && self.master(asked) == Master::Old);
        let is_failed = |asked: &&Asked| asked.answer.is_none() && asked.span.start <= killed.end;
        let received = received.get(window).copied().unwrap_or(usize::MAX);
        old.count().saturating_sub(received.saturating_sub(of_window().filter(is_failed).count()))
    }

    /// The fullest width of each window, of the admissions by these masters.
    fn fullest(&self, masters: &[Master], lost: impl Fn(&Window) -> usize) -> Vec<Fullest> {
        let mut windows: HashMap<&Window, Vec<&Asked>> = HashMap::new();
        for asked in self.asked.iter().filter(|asked| asked.is_admitted()) {
            if masters.contains(&self.master(asked)) {
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
                let old = within.clone().filter(|asked| self.master(asked) == Master::Old).count();
                Fullest { window: window.clone(), admitted: within.count(), limit, lost: old.min(lost) }
            };
            all.extend((0..admitted.len()).map(width).max_by_key(|width| (width.above(), width.admitted)));
        }
        all
    }

    fn used_again(&self) -> Vec<Breach> {
        let mut times: HashMap<(u64, u64), usize> = HashMap::new();
        for asked in self.asked.iter().filter(|asked| asked.is_admitted()) {
            asked.nonce.iter().for_each(|nonce| *times.entry((asked.window.0, *nonce)).or_default() += 1);
        }
        let again = times.into_iter().filter(|(_, times)| *times > 1);
        again.map(|((agent, nonce), _)| Breach::UsedAgain(agent, nonce)).collect()
    }

    fn passed_too_late(&self) -> Vec<Breach> {
        let killed = self.failover.as_ref().map(|failover| failover.killed);
        let mut found = Vec::new();
        let mut of_key: HashMap<u64, Vec<&Verified>> = HashMap::new();
        for verified in &self.verified {
            of_key.entry(verified.key).or_default().push(verified);
        }
        for (made, key) in self.changed.iter().filter_map(|change| Some((change, change.key?))) {
            let replaces = |other: &&Changed| {
                other.done && other.agent == made.agent && other.span.start > made.span.end
            };
            let changed = self.changed.iter().filter(replaces).map(|change| change.span.end).min();
            let verified = of_key.remove(&key).unwrap_or_default();
            let refused = |after_kill: bool| {
                let is_one =
                    move |span: &Span| killed.is_some_and(|killed| span.start > killed.end) == after_kill;
                let refused = verified.iter().filter(|verified| verified.passed == Some(false));
                refused.map(|verified| verified.span).filter(is_one).map(|span| span.end).min()
            };
            let (refused_before, refused_after) = (refused(false), refused(true));
            for Verified { span, .. } in verified.iter().filter(|verified| verified.passed == Some(true)) {
                let is_after = |end: Option<u64>| end.is_some_and(|end| span.start > end);
                let same_master = killed.is_none_or(|killed| span.end < killed.start);
                if is_after(changed) {
                    found.push(Breach::AfterChange(key));
                }
                if is_after(refused_after) || same_master && is_after(refused_before) {
                    found.push(Breach::AfterRefusal(key));
                }
            }
        }
        found
    }
}

/// The sums of all histories of one kind.
#[derive(Debug, Default)]
pub(super) struct Figures {
    runs: usize,
    asked: usize,
    admitted: usize,
    failed: usize,
    changed: usize,
    verified: usize,
    passed: usize,
    refused: usize,
    /// The most above the limit in any width, and how many of that window the promoted replica had not received.
    most_above: (usize, usize),
}

impl Figures {
    #[track_caller]
    pub(super) fn add(&mut self, history: &History) {
        assert_eq!(history.breaches(), vec![]);
        let answered =
            |passed| history.verified.iter().filter(|verified| verified.passed == Some(passed)).count();
        assert!(answered(true) > 0 && answered(false) > 0);
        self.runs += 1;
        self.asked += history.asked.len();
        self.admitted += history.asked.iter().filter(|asked| asked.is_admitted()).count();
        self.failed += history.asked.iter().filter(|asked| asked.answer.is_none()).count();
        self.changed += history.changed.iter().filter(|change| change.done).count();
        self.verified += history.verified.len();
        self.passed += answered(true);
        self.refused += answered(false);
        for width in history.fullest(&[Master::Other, Master::Old, Master::New, Master::Either], |_| 0) {
            self.most_above = self.most_above.max((width.above(), history.lost(&width.window)));
        }
    }
}

/// Admissions of one window, each with its span and under a limit of 2 in 1,000 µs.
fn handmade(spans: &[(u64, u64)]) -> Vec<Asked> {
    let asked = |(start, end): &(u64, u64)| Asked {
        span: Span { start: *start, end: *end },
        window: (1, Scope::Api),
        quota: Quota { limit: 2, window_micros: 1_000 },
        nonce: None,
        answer: Some(Admission::Admitted { remaining: 0 }),
    };
    spans.iter().map(asked).collect()
}

fn found(asked: &[Asked]) -> Vec<Breach> {
    History { asked: asked.to_vec(), ..History::default() }.breaches()
}

#[test]
fn one_admission_too_many_is_found_where_it_is_certain() {
    let with = |third| found(&handmade(&[(10, 20), (30, 40), third]));
    let width = Fullest { window: (1, Scope::Api), admitted: 3, limit: 2, lost: 0 };
    assert_eq!(with((990, 1_008)), [Breach::OverLimit(width)]);
    for may_be_later in [(990, 1_009), (990, 5_000), (1_010, 1_020)] {
        assert_eq!(with(may_be_later), []);
    }
    assert_eq!(found(&handmade(&[(990, 1_008), (30, 40), (10, 20)])).len(), 1, "their order says nothing");
    let changes: [fn(&mut Asked); 5] = [
        |asked| asked.answer = None,
        |asked| asked.answer = Some(Admission::NonceRefused(NonceRefused::Used)),
        |asked| asked.window.0 = 2,
        |asked| asked.window.1 = Scope::Tenant("t".into()),
        |asked| asked.quota.limit = 3,
    ];
    for change in changes {
        let mut history = handmade(&[(10, 20), (30, 40), (50, 60)]);
        change(&mut history[1]);
        assert_eq!(found(&history), [], "{history:?}");
    }
}

#[test]
fn a_nonce_that_passes_twice_is_found_whatever_it_is_for() {
    let with = |change: fn(&mut Asked)| {
        let mut twice = handmade(&[(10, 20), (5_000, 5_020)]);
        twice.iter_mut().for_each(|asked| asked.nonce = Some(7));
        change(&mut twice[1]);
        found(&twice)
    };
    assert_eq!(with(|_| ()), [Breach::UsedAgain(1, 7)]);
    assert_eq!(with(|asked| asked.window.1 = Scope::Tenant("t".into())), [Breach::UsedAgain(1, 7)]);
    assert_eq!(with(|asked| asked.window.0 = 2), [], "of another agent");
    assert_eq!(with(|asked| asked.nonce = Some(8)), []);
    assert_eq!(with(|asked| asked.answer = None), [], "a fault passes nobody");
}

#[test]
fn after_a_failover_only_what_was_not_received_may_come_on_top() {
    let elsewhere = Failover { killed: Span { start: 100, end: 105 }, received: HashMap::new() };
    let judged = |asked: &[Asked], received| {
        let failover = Failover { received: [((1, Scope::Api), received)].into(), ..elsewhere.clone() };
        History { asked: asked.to_vec(), failover: Some(failover), ..History::default() }.breaches().len()
    };
    let history = handmade(&[(10, 20), (30, 40), (150, 160)]);
    assert_eq!([0, 1, 2].map(|received| judged(&history, received)), [0, 0, 1], "both were received");
    let failed = [&history[..], &[Asked { answer: None, ..history[0].clone() }]].concat();
    assert_eq!(judged(&failed, 2), 0, "one of the two may be that of the call that failed");
    let at_another = History { asked: history, failover: Some(elsewhere.clone()), ..History::default() };
    assert_eq!(at_another.breaches().len(), 1, "elsewhere");
    for alone in [[(10, 20), (30, 40), (50, 60)], [(110, 120), (130, 140), (150, 160)]] {
        assert_eq!(judged(&handmade(&alone), 0), 1, "each master keeps the limit");
    }
    for under_way in [(90, 110), (102, 110)] {
        assert_eq!(judged(&handmade(&[(10, 20), (30, 40), under_way]), 2), 0, "it may be lost");
    }
}

/// A change of agent 1's key, and a verification.
fn changed(start: u64, end: u64, key: Option<u64>, done: bool) -> Changed {
    Changed { span: Span { start, end }, agent: 1, key, done }
}

fn verified(start: u64, end: u64, key: u64, passed: bool) -> Verified {
    Verified { span: Span { start, end }, key, passed: Some(passed) }
}

/// Key 7 is made, then another change begins at 30 and has answered at 40.
fn judged(second: Changed, verified: &[Verified], killed: Option<(u64, u64)>) -> Vec<Breach> {
    let failover = |(start, end)| Failover { killed: Span { start, end }, received: HashMap::new() };
    History {
        changed: vec![changed(10, 20, Some(7), true), second],
        verified: verified.to_vec(),
        failover: killed.map(failover),
        ..History::default()
    }
    .breaches()
}

#[test]
fn a_key_that_passes_after_its_change_was_answered_is_found() {
    let late = verified(41, 50, 7, true);
    for replacement in [None, Some(8)] {
        let done = changed(30, 40, replacement, true);
        assert_eq!(judged(done, &[late], None), [Breach::AfterChange(7)]);
        assert_eq!(
            judged(done, &[late], Some((45, 46))),
            [Breach::AfterChange(7)],
            "a failover is no excuse"
        );
        assert_eq!(
            judged(Changed { done: false, ..done }, &[late], None),
            [],
            "nobody said that it was done"
        );
        assert_eq!(judged(done, &[verified(40, 50, 7, true)], None), [], "asked before the answer");
        assert_eq!(judged(done, &[verified(41, 50, 7, false)], None), []);
        assert_eq!(judged(done, &[verified(41, 50, 8, true)], None), []);
        assert_eq!(judged(Changed { agent: 2, ..done }, &[late], None), [], "of another agent");
    }
    assert_eq!(judged(changed(5, 20, None, true), &[late], None), [], "it may come before the key is made");
}

#[test]
fn a_key_that_passes_after_it_was_refused_is_found() {
    let failed = changed(30, 40, None, false);
    let judged = |refused, passed, killed| judged(failed, &[refused, passed], killed);
    let (refused, passed) = (verified(35, 45, 7, false), verified(46, 50, 7, true));
    assert_eq!(judged(refused, passed, None), [Breach::AfterRefusal(7)]);
    assert_eq!(judged(refused, verified(45, 50, 7, true), None), [], "asked before the refusal");
    assert_eq!(judged(Verified { passed: None, ..refused }, passed, None), [], "a fault is no refusal");
    assert_eq!(judged(verified(35, 45, 8, false), passed, None), [], "of another key");
    // The master that refused it is gone with a revocation that nobody acknowledged. Two calls to one master agree.
    for (killed, found) in
        [((33, 34), 1), ((34, 36), 0), ((40, 41), 0), ((46, 48), 0), ((49, 52), 0), ((51, 52), 1)]
    {
        assert_eq!(judged(refused, passed, Some(killed)).len(), found, "{killed:?}");
    }
}
