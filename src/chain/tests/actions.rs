//! What can happen in the worlds of the model, and the rules that can be left out.

/// The bounds of the worlds.
pub(super) const BLOCKS_MAX: usize = 7;
pub(super) const HEIGHT_MAX: u64 = 4;
pub(super) const REORGS_MAX: u8 = 1;
pub(super) const TICKS_MAX: u8 = 1;

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Answers of any age count.
    AnyAge,
    /// Answers one block older than the newest known one count.
    OneBlockOlder,
    /// A read is kept whatever was dropped since it began.
    KeepAfterDrop,
    /// A read is kept although the follower began anew since.
    KeepAcrossRestart,
    /// Logs come from a back end that does not show that it has the head.
    LogsWithoutProof,
    /// Logs of the new blocks alone are asked for.
    NoOverlap,
    /// Logs drop nothing.
    NoDrops,
    /// A read of any fork is kept as one of the followed chain.
    AnyForkIsFollowed,
    /// That a block above the followed one is of its chain is believed.
    ShownIsBelieved,
    /// A block whose logs can't be had drops nobody.
    KeepWhatIsLost,
    /// A node that has less is taken for a rollback.
    LessIsARollback,
    /// A reorganization leaves what was cached.
    KeepInReorganization,
    /// What was read at the followed block serves although the chain is not followed any more.
    KeepOutOfTouch,
}

/// Whom the logs of the world's changes name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// The agent.
    Agent,
    /// The organization that the agent belongs to.
    Organization,
    /// Who holds the agent.
    Holder,
    /// Nobody.
    Nobody,
}

/// One step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Grow {
        changes: bool,
    },
    Reorganize {
        changes: bool,
    },
    /// A back end gets the chain's head, the logs of that block with it or later.
    CatchUp {
        back_end: usize,
        with_logs: bool,
    },
    /// The head comes from one back end, the logs from another.
    Poll {
        head: usize,
        logs: usize,
    },
    /// Head and logs come from one back end, which does not give those of the head.
    PollLosing {
        back_end: usize,
    },
    BeginRead {
        back_end: usize,
    },
    EndRead,
    /// A read while another one is under way.
    ReadBeside {
        back_end: usize,
    },
    LoseTouch,
    Tick,
}
