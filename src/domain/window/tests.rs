//! Promises of the sliding window over random arrivals and limits. `exhaustive` holds them in every small state.

use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{Verdict, Window};
use crate::domain::window::{MINUTE_MICROS, Quota};

mod exhaustive;
pub(crate) mod model;

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

}
