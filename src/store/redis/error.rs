//! Why Redis gave no usable answer. For the log; clients never see it.

use std::time::Duration;

use redis::{ErrorKind, ServerErrorKind};

use crate::domain::{OtherChain, RedisHost};

/// One request failed, or no connection can be made.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RedisError {
    #[error("there is no connection to Redis at present: {0}")]
    Down(String),
    /// The request may have taken effect.
    #[error("Redis did not answer within {0:?}")]
    Timeout(Duration),
    #[error("it can't be reached: {0}")]
    Unreached(String),
    /// The request may have taken effect.
    #[error("the connection to Redis broke: {0}")]
    Broken(String),
    /// The request did not take effect.
    #[error("Redis refused: {0}")]
    Refused(String),
    /// The server must not be used as it is.
    #[error("{0}")]
    Unusable(&'static str),
    /// A server with keys of another chain's agents.
    #[error("it {0}")]
    OtherChain(OtherChain),
    /// A later release keeps everything under other names. A key that was revoked there would pass here.
    #[error("a later release has its names, {0}, in it: this release must not use it")]
    LaterNames(String),
    /// The login was refused, or is missing.
    #[error("{0}")]
    Login(String),
    /// Another node of the cluster has the slot. Nothing was done.
    #[error("the slot is at {0}")]
    Moved(RedisHost),
    /// The request did not take effect.
    #[error("the slot is on its way to another node: {0}")]
    Moving(String),
    /// The request did not take effect.
    #[error("the cluster is down: {0}")]
    ClusterDown(String),
    /// Holds the answer of each Sentinel.
    #[error("no majority of the Sentinels names one master: {0}")]
    NoMajority(String),
    #[error("Redis gave an answer that can't be understood")]
    Unreadable,
    /// Written, but too few replicas acknowledged it.
    #[error("{acknowledged} of {wanted} replicas of {server} acknowledged a write in time")]
    Unacknowledged { server: RedisHost, acknowledged: i64, wanted: u32 },
}

impl From<redis::RedisError> for RedisError {
    /// The server's own error, or a broken connection.
    fn from(error: redis::RedisError) -> Self {
        let text = text_of(&error);
        let ErrorKind::Server(kind) = error.kind() else {
            // Errors that the library has no name for, such as those of scripts.
            let is_servers = error.kind() == ErrorKind::Extension;
            return if is_servers { Self::Refused(text) } else { Self::Broken(text) };
        };
        if kind == ServerErrorKind::Moved {
            let named = error.redirect_node().and_then(|(address, _)| RedisHost::parse(address));
            return named.map_or(Self::Moving(text), Self::Moved);
        }
        if kind == ServerErrorKind::ClusterDown {
            return Self::ClusterDown(text);
        }
        let is_moving = [ServerErrorKind::Ask, ServerErrorKind::TryAgain].contains(&kind);
        if is_moving { Self::Moving(text) } else { Self::Refused(text) }
    }
}

impl RedisError {
    /// The same with who asked, where a right is missing.
    pub(super) fn asked_as(self, account: &str) -> Self {
        let Self::Refused(text) = &self else { return self };
        let is_of_account = ["NOAUTH", "NOPERM"].iter().any(|code| text.starts_with(code));
        if is_of_account { Self::Login(format!("Redis refused, asked as {account}: {text}")) } else { self }
    }

    /// The same of a connection that was never there.
    pub(super) fn before_connected(self) -> Self {
        if let Self::Broken(cause) = self { Self::Unreached(cause) } else { self }
    }

    /// True when a node of a cluster only says that it has not, or not all of, the slot.
    pub(super) const fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Moved(_) | Self::Moving(_))
    }
}

/// The error's text, without anything that was sent.
pub(super) fn text_of(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

pub(super) fn is(error: &redis::RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}

/// The server answers, but not as a master.
pub(super) fn is_no_master(error: &redis::RedisError) -> bool {
    [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown, ServerErrorKind::BusyLoading]
        .into_iter()
        .any(|kind| is(error, kind))
}
