//! What the first bytes of a redb file say, read before redb may touch the file.
//!
//! redb keeps the roots of its last two commits in two slots with checksums, and one byte without a checksum that says
//! which of them counts. Every commit of ours is a two-phase one, and redb never falls back from such a commit: if its
//! pages don't verify, the file is refused. That one byte is what is left to doubt, so it is looked at here
//! (redb's `docs/design.md`, "Database super-header").

/// How many bytes at the start of the file [`examine`] reads.
pub(super) const HEADER_BYTES: usize = 320;

/// Where the byte stands that says which slot counts.
pub(super) const STATE_BYTE_AT: u64 = 9;

const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
const SECOND_SLOT_COUNTS: u8 = 1;
const UNCLEAN: u8 = 2;
const TWO_PHASE: u8 = 4;

/// Where the two slots keep the number of their commit.
const COMMIT_NUMBERS_AT: [usize; 2] = [64 + 104, 192 + 104];

/// What the header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// The slot that counts holds the newest commit: redb will verify it, and refuse it if it does not verify.
    Settled,
    /// A process died between the two phases of a commit that nobody was told of, or while redb repaired the file. With
    /// this value in that byte redb takes the newer commit if all its pages verify, and otherwise the older one, if it
    /// was repaired to that.
    Unsettled {
        /// The byte for [`STATE_BYTE_AT`].
        state_byte: u8,
    },
}

/// Judges a header.
///
/// # Errors
///
/// Says what is wrong with it.
pub(super) fn examine(header: &[u8; HEADER_BYTES]) -> Result<Finding, &'static str> {
    let state = match header.split_at_checked(MAGIC.len()) {
        Some((magic, [state, ..])) if magic == MAGIC => *state,
        _ => return Err("it does not begin as a store does"),
    };
    if state & !(SECOND_SLOT_COUNTS | UNCLEAN | TWO_PHASE) != 0 {
        return Err("its header holds flags that do not exist");
    }
    let [first, second] = COMMIT_NUMBERS_AT.map(|at| number(header, at));
    let newer_beside = if state & SECOND_SLOT_COUNTS == 0 { second > first } else { first > second };
    match (state & UNCLEAN != 0, newer_beside, state & TWO_PHASE != 0) {
        (false, true, true) => Err("it was closed properly, yet its header points at an old commit"),
        // The process died between the two phases of a commit, or the byte that says which slot counts is wrong. Or it
        // died while redb repaired just that: redb calls the file closed before it makes a commit of its own.
        (true, true, _) | (false, true, false) => {
            Ok(Finding::Unsettled { state_byte: (state | UNCLEAN) & !TWO_PHASE })
        }
        // The same, when the newer commit had verified.
        (false, false, false) => Ok(Finding::Unsettled { state_byte: state | TWO_PHASE }),
        (true, false, _) | (false, false, true) => Ok(Finding::Settled),
    }
}

fn number(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    header.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::{COMMIT_NUMBERS_AT, Finding, HEADER_BYTES, MAGIC, examine};

    fn header(state: u8, first: u64, second: u64) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[MAGIC.len()] = state;
        for (at, number) in COMMIT_NUMBERS_AT.into_iter().zip([first, second]) {
            header[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        header
    }

    #[test]
    fn a_closed_file_must_point_at_its_newest_two_phase_commit() {
        assert_eq!(examine(&header(0b100, 8, 7)), Ok(Finding::Settled));
        assert_eq!(examine(&header(0b101, 7, 8)), Ok(Finding::Settled));
        for state in [0b101, 0b1100] {
            assert!(examine(&header(state, 8, 7)).is_err(), "{state:03b}");
        }
    }

    #[test]
    fn in_a_file_that_was_not_closed_the_newer_commit_gets_its_chance() {
        assert_eq!(examine(&header(0b110, 8, 7)), Ok(Finding::Settled));
        assert_eq!(examine(&header(0b110, 7, 8)), Ok(Finding::Unsettled { state_byte: 0b010 }));
        assert_eq!(examine(&header(0b011, 8, 7)), Ok(Finding::Unsettled { state_byte: 0b011 }));
    }

    #[test]
    fn a_file_whose_repair_did_not_end_is_repaired_again_to_the_same() {
        assert_eq!(examine(&header(0b000, 7, 8)), Ok(Finding::Unsettled { state_byte: 0b010 }));
        assert_eq!(examine(&header(0b001, 7, 8)), Ok(Finding::Unsettled { state_byte: 0b101 }));
    }

    #[test]
    fn another_beginning_is_no_store() {
        let mut other = header(0b100, 8, 7);
        other[0] = b'R';
        assert!(examine(&other).is_err());
    }
}
