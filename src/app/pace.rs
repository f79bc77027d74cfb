//! At which look the files are read again. Looks come once a second.

/// For how many looks in a row files that keep changing are waited for.
const UNSETTLED_LOOKS_MAX: u32 = 5;

/// After how many looks a refused file is tried again, at most: some four minutes.
const RETRY_LOOKS_MAX: u32 = 256;

/// The memory of earlier looks.
#[derive(Debug)]
pub(super) struct Pace<T> {
    /// How the files were before they were last read.
    loaded: T,
    /// How they were at the last look.
    last: T,
    /// At how many looks they have differed from those that were read.
    unsettled: u32,
    /// For how many looks a refused file rests before it is tried again; 0: none is refused.
    pause: u32,
    /// How many of these are left.
    rest: u32,
}

/// Why the files are to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// They have changed.
    Changed,
    /// One was refused before. An error of reading may have passed without a trace at the file.
    Retry,
}

impl<T: Copy + PartialEq> Pace<T> {
    /// The files were read when they looked like this; `is_refused`: one of them could not be used.
    pub(super) fn begin(loaded: T, is_refused: bool) -> Self {
        let pause = is_refused.into();
        Self { loaded, last: loaded, unsettled: 0, pause, rest: pause }
    }

    /// The same again.
    pub(super) fn read(&mut self, loaded: T, is_refused: bool) {
        let pause = match (is_refused, loaded == self.loaded) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => (self.pause * 2).clamp(1, RETRY_LOOKS_MAX),
        };
        *self = Self { loaded, last: loaded, unsettled: 0, pause, rest: pause };
    }

    /// A look. Whoever writes several files is given the time to finish, but not for ever.
    pub(super) fn look(&mut self, now: T) -> Option<Due> {
        let is_still = std::mem::replace(&mut self.last, now) == now;
        if now != self.loaded {
            self.unsettled += 1;
            return (is_still || self.unsettled >= UNSETTLED_LOOKS_MAX).then_some(Due::Changed);
        }
        self.unsettled = 0;
        self.rest = self.rest.saturating_sub(1);
        (self.pause > 0 && self.rest == 0).then_some(Due::Retry)
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, Pace, RETRY_LOOKS_MAX, UNSETTLED_LOOKS_MAX};

    #[test]
    fn files_that_are_still_for_a_look_are_read_and_those_that_are_as_they_were_are_not() {
        let mut pace = Pace::begin(0, false);
        assert_eq!([0, 1, 1].map(|now| pace.look(now)), [None, None, Some(Due::Changed)]);
        pace.read(1, false);
        assert_eq!([1, 2, 1, 1].map(|now| pace.look(now)), [None; 4], "they are as they were read");
    }

    #[test]
    fn files_that_never_stand_still_are_read_after_a_few_looks_again_and_again() {
        let mut pace = Pace::begin(0, false);
        let mut now = 0;
        for _ in 0..10 {
            for look in 1..=UNSETTLED_LOOKS_MAX {
                now += 1;
                let due = pace.look(now);
                assert_eq!(due, (look == UNSETTLED_LOOKS_MAX).then_some(Due::Changed), "{look}");
            }
            pace.read(now, false);
        }
    }

    #[test]
    fn a_refused_file_is_tried_again_less_and_less_often_until_it_is_applied() {
        let mut pace = Pace::begin(0, true);
        for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256] {
            for look in 1..=wait {
                assert_eq!(pace.look(0), (look == wait).then_some(Due::Retry), "{look} of {wait}");
            }
            pace.read(0, true);
        }
        // A change is another beginning.
        assert_eq!([1, 1].map(|now| pace.look(now)), [None, Some(Due::Changed)]);
        pace.read(1, true);
        assert_eq!(pace.look(1), Some(Due::Retry));
        pace.read(1, false);
        assert!((0..=RETRY_LOOKS_MAX).all(|_| pace.look(1).is_none()));
    }
}
