//! The options of `Connection` (RFC 9110, section 7.6.1): they name headers for one hop.

use crate::http1::fields::{Fields, Problem};
use crate::http1::name::Name;

/// The most options of a head, empty ones too. More would make each header of a head cost more than its bytes.
pub(crate) const OPTIONS_MAX: usize = 9;

const TOO_MANY: Problem = "Connection holds more than 9 options";

/// The options of a head, without the blanks around them. Some may be empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options<'a> {
    list: [&'a [u8]; OPTIONS_MAX],
    count: usize,
}

impl<'a> Options<'a> {
    /// All options of a head.
    pub(crate) fn of(fields: &'a impl Fields) -> Result<Self, Problem> {
        let mut options = Self::default();
        fields.values(Name::Connection).try_for_each(|line| options.add(line))?;
        Ok(options)
    }

    /// Adds the options of one line.
    pub(crate) fn add(&mut self, line: &'a [u8]) -> Result<(), Problem> {
        for option in line.split(|byte| *byte == b',') {
            *self.list.get_mut(self.count).ok_or(TOO_MANY)? = option.trim_ascii();
            self.count += 1;
        }
        Ok(())
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.list.iter().take(self.count).copied()
    }

    /// True if one of them names this header, in any case.
    pub(crate) fn name(&self, header: &[u8]) -> bool {
        self.iter().any(|option| option.eq_ignore_ascii_case(header))
    }
}
