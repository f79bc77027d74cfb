//! Claims the shards of a server: each is bound to one chain, and has an epoch of nonces. What an epoch is stands in
//! `scripts/nonces.lua`.
//!
//! Which chain a shard is for stands in the shard's own slot. Where a release with later names has been, that stands there
//! instead. A session begins with this, so a server that is another chain's is never asked for anything. What a failover
//! or a flush has taken is claimed again.

use std::{sync::Arc, sync::atomic::Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};

use crate::fair_timeout::fair_timeout;
use crate::store::redis::answers::{number, read};
use crate::store::redis::names::{self, LATER, Name, Shard};
use crate::store::redis::server::{Server, Session};
use crate::store::{redis::error::RedisError, redis::options::Shared};

/// How much of a later release's names is shown.
const NAMES_SHOWN_MAX: usize = 40;

/// The advice where a Redis is of another chain.
const INSTEAD: &str = "another store.redis.prefix or database";

impl Server {
    /// Binds the shards of this server that are not bound yet, and begins their epochs where nonces may have been lost:
    /// otherwise each shard's first signature would begin its own, much later.
    ///
    /// Of two deployments that begin at once the one that binds the first shard gets them all, in a cluster too.
    pub(super) async fn claim(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let (shards, shared) = (self.shards.lock().clone(), &self.shared);
        if shared.options.reads_only {
            return check(shared, connection).await;
        }
        let has_first = !shared.is_cluster() || shards.contains(&Shard::FIRST);
        let may_bind = has_first || shared.has_bound_first.load(Ordering::Relaxed);
        let verb = if may_bind { "bind" } else { "look" };
        let mut latest = 0;
        let (first, others) = shards.split_at(shards.len().min(1));
        for shards in [first, others] {
            let mut pipeline = redis::pipe();
            // In front, on the same connection: the server may not know the script.
            pipeline.ignore_errors().add_command(shared.scripts.claim.load()).ignore();
            for shard in shards {
                pipeline.add_command(shared.timed(shared.claim_of(*shard, verb)).command);
            }
            for from in ask(shared, connection, &pipeline).await? {
                latest = latest
                    .max(from.ok_or(RedisError::Unusable("the node of the first slot is bound first"))?);
            }
        }
        shared.has_bound_first.fetch_or(has_first, Ordering::Relaxed);
        self.retire_former(connection, &shards).await?;
        self.accepted_from_secs.store(latest, Ordering::Relaxed);
        *self.claimed.lock() = shards;
        Ok(())
    }

    /// Keeps releases with the former names from serving what was left under them: keys that were revoked since would pass.
    ///
    /// A user without rights on those names is none of such a release. Nor is anything under a prefix.
    async fn retire_former(
        &self,
        connection: &mut MultiplexedConnection,
        shards: &[Shard],
    ) -> Result<(), RedisError> {
        if !self.shared.options.prefix.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for shard in shards {
            let (name, text) = names::former_epoch(*shard);
            pipeline.cmd("SET").arg(name).arg(text);
        }
        send(&self.shared, connection, &pipeline).await.map(drop)
    }

    /// Looks at one shard after the other, and claims all where it is not bound or its epoch is a later one: in another life
    /// of the server, after a flush, for longer settings, or with other shards. Ends the session where somebody else has
    /// bound it. A failure leaves it to the next look.
    pub(super) async fn check_claim(&self, session: &Arc<Session>, turn: usize) -> Result<(), RedisError> {
        let connection = self.connection(session)?;
        let shards = self.shards.lock().clone();
        let shard = turn.checked_rem(shards.len()).and_then(|place| shards.get(place).copied());
        let shard = shard.filter(|_| *self.claimed.lock() == shards);
        let seen = if let Some(shard) = shard {
            let look = self.shared.timed(self.shared.claim_of(shard, "look"));
            accepted_from(&self.shared, &self.ask_on(session, &connection, &look).await?)
        } else {
            Ok(None)
        };
        let claimed = match seen {
            Ok(Some(from)) if from <= self.accepted_from_secs.load(Ordering::Relaxed) => return Ok(()),
            Ok(_) => self.claim(&mut connection.redis.clone()).await,
            Err(error) => Err(error),
        };
        claimed.inspect_err(|error| {
            if matches!(error, RedisError::OtherChain(_) | RedisError::LaterNames(_)) {
                self.end(session, error.to_string());
            }
        })
    }
}

/// Succeeds unless a shard at this server is another chain's. Writes nothing.
pub(super) async fn check(shared: &Shared, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for shard in Shard::all() {
        let binding = shared.command("HMGET", Name::Binding(shard)).arg("chain");
        pipeline.add_command(binding.command);
    }
    ask(shared, connection, &pipeline).await.map(drop)
}

/// Reads an answer of `claim.lua`, or a binding alone: from which timestamp on signatures are taken in the shard, if it is
/// for this chain and says so. It may be for none yet; any other is an error.
fn accepted_from(shared: &Shared, answer: &Value) -> Result<Option<u64>, RedisError> {
    let answer: Vec<Value> = read(answer)?;
    let (known, from) = answer.split_first().ok_or(RedisError::Unreadable)?;
    let Some(known) = read::<Option<Vec<u8>>>(known)? else { return Ok(None) };
    let known = String::from_utf8_lossy(&known);
    if let Some(names) = known.strip_prefix(LATER) {
        return Err(RedisError::LaterNames(names.escape_debug().take(NAMES_SHOWN_MAX).collect()));
    }
    shared.options.binding.check(&known, INSTEAD).map_err(RedisError::OtherChain)?;
    from.first().map(|from| number(read(from)?)).transpose()
}

/// [`accepted_from`] of each shard. The first error of one counts only if none is somebody else's. A shard that is not
/// wholly with this node of a cluster keeps nobody from the others: it is judged where it is, and the next signature there
/// begins its epoch.
async fn ask(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
) -> Result<Vec<Option<u64>>, RedisError> {
    let (mut all, mut failed) = (Vec::new(), None);
    for answer in send(shared, connection, pipeline).await? {
        match answer.map_err(RedisError::from) {
            Ok(answer) => all.push(accepted_from(shared, &answer)?),
            Err(RedisError::ClusterDown(_)) => {}
            Err(error) if error.is_elsewhere() && shared.is_cluster() => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(all), Err)
}

async fn send(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
) -> Result<Vec<RedisResult<Value>>, RedisError> {
    let time_max = shared.options.connect_timeout();
    let asked = pipeline.query_async(connection);
    Ok(fair_timeout(time_max, asked).await.ok_or(RedisError::Timeout(time_max))??)
}
