//! The scripts that Redis runs, one for each verb. What several of them need stands in front of each.

use std::sync::Arc;

use redis::{Cmd, ToRedisArgs, Value};

use crate::store::redis::names::{Name, Prefixed, Shard};

const ANSWERS: &str = include_str!("scripts/answers.lua");
const CLOCK: &str = include_str!("scripts/clock.lua");
const WINDOW: &str = include_str!("scripts/window.lua");
const KEYS: &str = include_str!("scripts/keys.lua");
const NONCES: &str = include_str!("scripts/nonces.lua");

/// How many arguments the longest command has, its name included.
const ARGUMENTS: usize = 26;

/// How many bytes a command has that the longest names and numbers are in.
const COMMAND_BYTES: usize = 512;

/// One script and what Redis knows it by.
#[derive(Debug)]
pub(super) struct Script {
    code: String,
    hash: String,
    prefix: Arc<str>,
}

impl Script {
    fn new((clock, prefix): (&str, &Arc<str>), parts: &[&str]) -> Self {
        let code = [&[ANSWERS, clock], parts].concat().concat();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash, prefix: Arc::clone(prefix) }
    }

    /// A call of it on these keys; arguments follow.
    pub(super) fn on(&self, keys: &[Name<'_>]) -> Request<'_> {
        let shard = keys.first().map_or(Shard::FIRST, Name::shard);
        let request = Request { script: Some(self), ..Request::command("EVALSHA", shard) };
        let request = request.arg(&self.hash).arg(keys.len());
        keys.iter().fold(request, |request, name| request.arg(Prefixed(&self.prefix, *name)))
    }

    /// Makes it known to a server.
    pub(super) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.code);
        command
    }
}

/// A command, or a call of a script that the server may have forgotten.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) command: Cmd,
    /// The server that has this shard is asked.
    pub(super) shard: Shard,
    pub(super) script: Option<&'a Script>,
    /// Finds a write in the answer that `store.redis.wait_replicas` replicas must acknowledge.
    pub(super) is_write: Option<fn(&Value) -> bool>,
}

impl Request<'_> {
    pub(super) fn command(name: &str, shard: Shard) -> Self {
        let mut command = Cmd::with_capacity(ARGUMENTS, COMMAND_BYTES);
        command.arg(name);
        Self { command, shard, script: None, is_write: None }
    }

    #[must_use]
    pub(super) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }
}

/// The scripts.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) admit_by_key: Script,
    pub(super) admit_by_nonce: Script,
    pub(super) change_key: Script,
    pub(super) hit: Script,
    pub(super) left: Script,
    pub(super) list: Script,
    pub(super) claim: Script,
}

impl Scripts {
    /// They take the time from Redis. Their keys' names begin with the prefix.
    pub(super) fn new(prefix: &str) -> Self {
        Self::with_clock(CLOCK, prefix)
    }

    fn with_clock(clock: &str, prefix: &str) -> Self {
        let prefix = Arc::from(prefix);
        let script = |parts: &[&str]| Script::new((clock, &prefix), parts);
        Self {
            admit_by_key: script(&[WINDOW, KEYS, include_str!("scripts/admit_by_key.lua")]),
            admit_by_nonce: script(&[WINDOW, NONCES, include_str!("scripts/admit_by_nonce.lua")]),
            change_key: script(&[NONCES, KEYS, include_str!("scripts/change_key.lua")]),
            hit: script(&[WINDOW, include_str!("scripts/hit.lua")]),
            left: script(&[WINDOW, KEYS, include_str!("scripts/left.lua")]),
            list: script(&[KEYS, include_str!("scripts/list.lua")]),
            claim: script(&[NONCES, include_str!("scripts/claim.lua")]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scripts;

    impl Scripts {
        /// They take the time from the caller, as the last argument of each call.
        pub(in crate::store::redis) fn simulated(prefix: &str) -> Self {
            Self::with_clock(include_str!("scripts/clock_simulated.lua"), prefix)
        }

        /// The code of all of them.
        pub(in crate::store::redis) fn code(&self) -> String {
            let Self { admit_by_key, admit_by_nonce, change_key, hit, left, list, claim } = self;
            [admit_by_key, admit_by_nonce, change_key, hit, left, list, claim]
                .map(|script| script.code.as_str())
                .concat()
        }
    }
}
