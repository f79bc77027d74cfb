//! How much of a case runs. What is done over and over to meet a rare fault is done less often at each change.

/// Set to 1 by `make test-all`, before a release.
const VARIABLE: &str = "TG_WHOLE";

/// How often to do a thing.
pub(crate) fn times([at_each_change, before_a_release]: [usize; 2]) -> usize {
    let is_whole = std::env::var(VARIABLE).is_ok_and(|value| value == "1");
    if is_whole { before_a_release } else { at_each_change }
}

/// How many reloads there are. `TG_RELOADS` is another number.
pub(crate) fn reloads(counts: [usize; 2]) -> usize {
    std::env::var("TG_RELOADS").map_or_else(|_| times(counts), |count| count.parse().unwrap())
}
