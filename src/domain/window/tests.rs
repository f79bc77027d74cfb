//! What the sliding window promises, over random arrivals, limits and clocks.

use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{Verdict, Window};
use crate::domain::quota::{MINUTE_MICROS, Quota, RetryAfter};

mod exhaustive;
pub(crate) mod model;

/// The contract's limits for tiers 1 to 4.
const LIMITS: [u32; 4] = [1, 16, 166, 2700];

#[test]
fn each_tier_is_admitted_exactly_its_limit_in_a_minute() {
    for limit in LIMITS {
        let mut window = Window::default();
        let quota = Quota::per_minute(limit);
        for request in 0..limit {
            let remaining = limit - request - 1;
            assert_eq!(window.admit(quota, u64::from(request)), Verdict::Admitted { remaining });
        }
        let at = u64::from(limit);
        assert_eq!(window.admit(quota, at), Verdict::Limited { retry_after_micros: MINUTE_MICROS - at });
        assert!(matches!(window.admit(quota, MINUTE_MICROS), Verdict::Admitted { .. }), "the first has left");
        assert!(limit == 1 || matches!(window.admit(quota, MINUTE_MICROS + 1), Verdict::Admitted { .. }));
    }
}

#[test]
fn refused_requests_do_not_push_the_wait_out() {
    let mut window = Window::default();
    let quota = Quota::per_minute(1);
    window.admit(quota, 0);
    for at in 1..59 {
        let now = at * 1_000_000;
        assert_eq!(window.admit(quota, now), Verdict::Limited { retry_after_micros: MINUTE_MICROS - now });
    }
    assert_eq!(window.admit(quota, MINUTE_MICROS), Verdict::Admitted { remaining: 0 });
}

#[test]
fn a_tier_change_is_not_a_fresh_budget() {
    let mut window = Window::default();
    for at in 0..16 {
        window.admit(Quota::per_minute(16), at);
    }
    assert_eq!(
        window.admit(Quota::per_minute(1), 100),
        Verdict::Limited { retry_after_micros: MINUTE_MICROS + 15 - 100 },
        "after a fall the most recent one counts",
    );
    assert_eq!(window.admit(Quota::per_minute(166), 101), Verdict::Admitted { remaining: 166 - 17 });
}

#[test]
fn a_clock_that_steps_back_gives_no_second_budget() {
    let mut window = Window::default();
    let quota = Quota::per_minute(1);
    window.admit(quota, 5 * MINUTE_MICROS);
    assert_eq!(window.admit(quota, 0), Verdict::Limited { retry_after_micros: MINUTE_MICROS });
}

#[test]
fn a_full_tier_4_window_takes_eleven_kibibytes() {
    let mut window = Window::default();
    for at in 0..2700 {
        window.admit(Quota::per_minute(2700), at);
    }
    assert!(window.gaps.capacity() * size_of::<u32>() <= 11 * 1024, "{}", window.gaps.capacity());
}

#[test]
fn an_empty_window_keeps_no_buffer() {
    let mut window = Window::default();
    for at in 0..2700 {
        window.admit(Quota::per_minute(2700), at);
    }
    window.admit(Quota::per_minute(2700), 2 * MINUTE_MICROS);
    assert_eq!(window.gaps.capacity(), 0);
}

/// A request: how long after the last one, and under which limit (a tier change now and then).
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gap = prop_oneof![0..1_000_u64, 0..10_000_000_u64, 50_000_000..70_000_000_u64];
    let limit = prop_oneof![1..4_u32, 1..40_u32];
    vec((gap, limit), 1..300)
}

proptest! {
    #[test]
    fn never_more_than_the_limit_of_the_moment_in_any_minute(arrivals in arrivals()) {
        let mut window = Window::default();
        let mut accepted: Vec<u64> = Vec::new();
        let mut now = 0;
        for (gap, limit) in arrivals {
            now += gap;
            let within = accepted.iter().filter(|time| now - **time < MINUTE_MICROS).count() as u32;
            match window.admit(Quota::per_minute(limit), now) {
                Verdict::Admitted { remaining } => {
                    prop_assert!(within < limit);
                    prop_assert_eq!(remaining, limit - within - 1);
                    accepted.push(now);
                }
                Verdict::Limited { .. } => prop_assert!(within >= limit, "refused with {within} of {limit}"),
            }
        }
    }

    // threat: A limit locks out
    #[test]
    fn whoever_waits_exactly_the_retry_after_is_admitted_and_a_microsecond_earlier_is_not(arrivals in arrivals()) {
        let mut window = Window::default();
        let mut now = 0;
        for (gap, limit) in arrivals {
            now += gap;
            let quota = Quota::per_minute(limit);
            let before = window.clone();
            if let Verdict::Limited { retry_after_micros } = window.admit(quota, now) {
                let mut patient = before.clone();
                let admitted = matches!(patient.admit(quota, now + retry_after_micros), Verdict::Admitted { .. });
                prop_assert!(admitted);
                let mut hasty = before.clone();
                let limited = matches!(hasty.admit(quota, now + retry_after_micros - 1), Verdict::Limited { .. });
                prop_assert!(limited);
                let seconds = RetryAfter::from_micros(retry_after_micros).seconds();
                prop_assert!((1..=60).contains(&seconds));
                prop_assert!(seconds * 1_000_000 >= retry_after_micros);
            }
        }
    }

    #[test]
    fn a_peek_says_what_an_admission_would_say(arrivals in arrivals()) {
        let mut window = Window::default();
        let mut now = 0;
        for (gap, limit) in arrivals {
            now += gap;
            let quota = Quota::per_minute(limit);
            let foretold = window.peek(quota, now);
            prop_assert_eq!(window.admit(quota, now), foretold);
        }
    }

    #[test]
    fn a_withdrawn_admission_leaves_the_window_as_if_it_had_never_been(arrivals in arrivals(), pick in 0..300_usize) {
        let mut with = Window::default();
        let mut without = Window::default();
        let mut now = 0;
        let pick = pick % arrivals.len();
        for (place, (gap, limit)) in arrivals.into_iter().enumerate() {
            now += gap + 1;
            let quota = Quota::per_minute(limit);
            if place == pick {
                if matches!(with.admit(quota, now), Verdict::Admitted { .. }) {
                    with.withdraw(now);
                }
            } else {
                prop_assert_eq!(with.admit(quota, now), without.admit(quota, now));
            }
        }
    }
}
