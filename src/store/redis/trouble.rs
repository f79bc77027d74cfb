//! Why Redis gave no answer that can be used. For the log; clients never see it.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::domain::redis_url::RedisHost;

/// What went wrong with one request.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Trouble {
    /// There is no connection, so nothing was asked.
    #[error("there is no connection to Redis at present: {0}")]
    Down(String),
    /// No answer in time. Whether it took effect is unknown.
    #[error("Redis did not answer within {0:?}")]
    Silent(Duration),
    /// The connection broke. Whether the request took effect is unknown.
    #[error("the connection to Redis broke: {0}")]
    Broken(String),
    /// Redis said no, and nothing was done.
    #[error("Redis refused: {0}")]
    Refused(String),
    /// This node of the cluster has the slot, and nothing was done.
    #[error("the slot is at {0}")]
    Moved(RedisHost),
    /// The slot is between two nodes of the cluster, and nothing was done.
    #[error("the slot is on its way to another node: {0}")]
    Moving(String),
    /// Sentinels name several masters, and none by most of them.
    #[error("the Sentinels name different masters: {0}")]
    Divided(String),
    /// Not more than half of the Sentinels name a master.
    #[error("only {named} of {sentinels} Sentinels names a master, and more than half must: {why}")]
    TooFew {
        /// How many do.
        named: usize,
        /// How many there are.
        sentinels: usize,
        /// What one of the others said.
        why: String,
    },
    /// An answer that no script of ours gives.
    #[error("Redis gave an answer that can't be understood")]
    Unreadable,
    /// Written, but not by as many replicas as were asked for.
    #[error("{acknowledged} of {wanted} replicas acknowledged a write in time")]
    Unacknowledged {
        /// How many did.
        acknowledged: u32,
        /// How many should.
        wanted: u32,
    },
    /// The nonces of this process of Redis are not yet known to be complete.
    #[error("Redis is another process than a moment ago")]
    Strange,
}

impl Trouble {
    /// What an error means: something that the server said, or that the connection broke.
    pub(super) fn of(error: &RedisError) -> Self {
        let said = Self::said(error);
        let ErrorKind::Server(kind) = error.kind() else {
            // Words that the library has no name for, such as those of scripts.
            let is_said = error.kind() == ErrorKind::Extension;
            return if is_said { Self::Refused(said) } else { Self::Broken(said) };
        };
        if kind == ServerErrorKind::Moved {
            let named = error.redirect_node().and_then(|(address, _)| RedisHost::parse(address));
            return named.map_or(Self::Refused(said), Self::Moved);
        }
        let is_moving = [ServerErrorKind::Ask, ServerErrorKind::TryAgain].contains(&kind);
        if is_moving { Self::Moving(said) } else { Self::Refused(said) }
    }

    /// Whether a node of a cluster only says that the slot is not, or not wholly, with it.
    pub(super) const fn is_elsewhere(&self) -> bool {
        match self {
            Self::Moved(_) | Self::Moving(_) => true,
            Self::Down(_)
            | Self::Silent(_)
            | Self::Broken(_)
            | Self::Refused(_)
            | Self::Divided(_)
            | Self::TooFew { .. }
            | Self::Unreadable
            | Self::Unacknowledged { .. }
            | Self::Strange => false,
        }
    }

    /// What an error says, without anything that was sent.
    pub(super) fn said(error: &RedisError) -> String {
        match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => error.to_string(),
        }
    }
}
