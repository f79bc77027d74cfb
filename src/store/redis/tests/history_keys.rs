//! The judge of histories of revocation: a change of a key that was answered before a verification was asked makes it
//! refused, and a key that was refused never passes again.
//!
//! A change and a verification that overlap may go either way, and so may two verifications that do.

use std::collections::HashMap;

use crate::store::redis::tests::history::Span;

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

/// A verification that passed and must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breach {
    /// It was asked for after a change of the key had been answered.
    AfterChange(u64),
    /// It was asked for after the key had been refused.
    AfterRefusal(u64),
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) changed: Vec<Changed>,
    pub(super) verified: Vec<Verified>,
    /// When a master was killed whose replica took its place. It may have refused a key on account of a change that was
    /// never answered and that the replica had not received.
    pub(super) killed: Option<Span>,
}

impl History {
    pub(super) fn breaches(&self) -> Vec<Breach> {
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
                let is_one = move |span: &Span| {
                    self.killed.is_some_and(|killed| span.start > killed.end) == after_kill
                };
                let refused = verified.iter().filter(|verified| verified.passed == Some(false));
                refused.map(|verified| verified.span).filter(is_one).map(|span| span.end).min()
            };
            let (refused_before, refused_after) = (refused(false), refused(true));
            for Verified { span, .. } in verified.iter().filter(|verified| verified.passed == Some(true)) {
                let is_after = |end: Option<u64>| end.is_some_and(|end| span.start > end);
                let same_master = self.killed.is_none_or(|killed| span.end < killed.start);
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
    faults: usize,
    changed: usize,
    verified: usize,
    passed: usize,
    refused: usize,
}

impl Figures {
    /// Judges a history in which the servers failed so often.
    #[track_caller]
    pub(super) fn add(&mut self, faults: usize, history: &History) {
        assert_eq!(history.breaches(), vec![]);
        let answered =
            |passed| history.verified.iter().filter(|verified| verified.passed == Some(passed)).count();
        self.runs += 1;
        self.faults += faults;
        self.changed += history.changed.iter().filter(|change| change.done).count();
        self.verified += history.verified.len();
        self.passed += answered(true);
        self.refused += answered(false);
        assert!(answered(true) > 0 && answered(false) > 0);
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
    let changed = vec![changed(10, 20, Some(7), true), second];
    let killed = killed.map(|(start, end)| Span { start, end });
    History { changed, verified: verified.to_vec(), killed }.breaches()
}

#[test]
fn a_key_that_passes_after_its_change_was_answered_is_found() {
    let late = [verified(41, 50, 7, true)];
    for replacement in [None, Some(8)] {
        let change = |done| changed(30, 40, replacement, done);
        assert_eq!(judged(change(true), &late, None), [Breach::AfterChange(7)]);
        assert_eq!(
            judged(change(true), &late, Some((45, 46))),
            [Breach::AfterChange(7)],
            "a failover is no excuse"
        );
        assert_eq!(judged(change(false), &late, None), [], "nobody said that it was done");
        assert_eq!(judged(change(true), &[verified(40, 50, 7, true)], None), [], "asked before the answer");
        assert_eq!(judged(change(true), &[verified(41, 50, 7, false)], None), []);
        assert_eq!(judged(change(true), &[verified(41, 50, 8, true)], None), []);
        assert_eq!(judged(Changed { agent: 2, ..change(true) }, &late, None), [], "of another agent");
    }
    let earlier = changed(5, 20, None, true);
    assert_eq!(judged(earlier, &late, None), [], "it may have come before the key was made");
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
