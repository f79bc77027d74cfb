//! Why Redis gave no answer that can be used. For the log; clients never see it.

use std::time::Duration;

use redis::RedisError;

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
    /// What an error says, without anything that was sent.
    pub(super) fn said(error: &RedisError) -> String {
        match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => error.to_string(),
        }
    }
}
