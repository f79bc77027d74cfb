//! Binds Redis to one chain: in each shard stands which one it is for, in the shard's own slot. Where a release with later
//! names has been, that stands there instead.
//!
//! A session begins with this, so a server that is another chain's is never asked for anything. What a failover or a
//! flush has taken is bound again.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};

use crate::store::redis::answers::{array, bytes};
use crate::store::redis::error::RedisError;
use crate::store::redis::names::{self, LATER, Shard};
use crate::store::redis::options::Shared;
use crate::store::redis::scripts::Request;
use crate::store::redis::server::Server;
use crate::store::redis::session::Session;
use crate::within::within;

/// How much of a later release's names is shown.
const NAMES_SHOWN_MAX: usize = 40;

/// What to write for a Redis of another chain.
const INSTEAD: &str = "another store.redis.prefix or database";

impl Server {
    /// Binds the shards of this server that are not bound yet. Of two deployments that begin at once the one that binds the
    /// first shard gets them all.
    pub(super) async fn bind(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let (shards, shared) = (self.shards.lock().all.clone(), &self.shared);
        let [first, others @ ..] = shards.as_slice() else { return Ok(()) };
        for shards in [std::slice::from_ref(first), others] {
            let mut pipeline = redis::pipe();
            // In front, on the same connection: the server may not know the script.
            pipeline.ignore_errors().add_command(shared.scripts.bind.load()).ignore();
            for shard in shards {
                let bind = shared.scripts.bind.on(&[names::binding(*shard)]);
                let bind = shared.timed(bind.arg(shared.options.binding.as_str()));
                pipeline.add_command(bind.packed().clone());
            }
            check(shared, connection, &pipeline).await?;
        }
        self.retire_former(connection, &shards).await
    }

    /// Keeps releases with the former names from serving what was left under them: keys that were revoked since would pass.
    ///
    /// A user without rights on those names is none of such a release. Nor is anything under a prefix.
    async fn retire_former(
        &self,
        connection: &mut MultiplexedConnection,
        shards: &[Shard],
    ) -> Result<(), RedisError> {
        let options = &self.shared.options;
        if !options.prefix.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for shard in shards {
            let (name, text) = names::former_epoch(*shard);
            pipeline.cmd("SET").arg(name).arg(text);
        }
        let time_max = options.connect_timeout();
        let asked = pipeline.query_async::<Vec<RedisResult<Value>>>(connection);
        within(time_max, asked).await.ok_or(RedisError::Timeout(time_max))??;
        Ok(())
    }

    /// Looks at what one shard is for, and binds all where it is for nothing, as after a flush, and where some came from
    /// elsewhere. Ends the session where somebody else was first.
    pub(super) async fn look_at_binding(&self, session: &Arc<Session>) -> Result<(), RedisError> {
        let connection = self.connection(session)?;
        let known = self.ask_on(session, &connection, &binding_of(&self.shared, self.first_shard())).await?;
        let bound = match is_bound(&self.shared, &known) {
            Ok(true) if self.shards.lock().begun => return Ok(()),
            Ok(_) => self.bind(&mut connection.redis.clone()).await,
            Err(error) => Err(error),
        };
        bound.inspect_err(|error| {
            if matches!(error, RedisError::OtherChain(_) | RedisError::LaterNames(_)) {
                self.end(session, error.to_string());
            }
        })
    }
}

/// Succeeds unless a shard at this server is another chain's. Writes nothing.
pub(super) async fn look(shared: &Shared, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for shard in Shard::all() {
        pipeline.add_command(binding_of(shared, shard).packed().clone());
    }
    check(shared, connection, &pipeline).await
}

/// Asks what a shard is for.
fn binding_of(shared: &Shared, shard: Shard) -> Request<'static> {
    shared.command("HMGET", names::binding(shard)).arg("chain")
}

/// Judges what a shard is for: this chain, or nothing yet. The command answers with a list of one, the script with its item.
fn is_bound(shared: &Shared, known: &Value) -> Result<bool, RedisError> {
    let known = array(known).ok().and_then(<[Value]>::first).unwrap_or(known);
    if *known == Value::Nil {
        return Ok(false);
    }
    let known = String::from_utf8_lossy(bytes(known)?);
    if let Some(names) = known.strip_prefix(LATER) {
        return Err(RedisError::LaterNames(names.escape_debug().take(NAMES_SHOWN_MAX).collect()));
    }
    shared.options.binding.check(&known, INSTEAD).map_err(RedisError::OtherChain)?;
    Ok(true)
}

/// In a cluster a shard that another node has, or that is on its way, keeps nobody from the others: it is judged there.
async fn check(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
) -> Result<(), RedisError> {
    let time_max = shared.options.connect_timeout();
    let asked = pipeline.query_async::<Vec<RedisResult<Value>>>(connection);
    for known in within(time_max, asked).await.ok_or(RedisError::Timeout(time_max))?? {
        match known.map_err(RedisError::from) {
            Ok(known) => drop(is_bound(shared, &known)?),
            Err(RedisError::ClusterDown(_)) => {}
            Err(error) if error.is_elsewhere() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
