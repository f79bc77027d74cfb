//! Connecting: finds the server, logs in, sees that it is a master, and makes sure that no nonce was lost unnoticed.

use std::fmt;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
    Value,
};

use crate::domain::redis_url::{RedisHost, RedisLayout};
use crate::store::redis::acknowledged::Acknowledged;
use crate::store::redis::findings;
use crate::store::redis::house;
use crate::store::redis::link::Line;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::nearby::Nearby;
use crate::store::redis::options::{Options, Shared};
use crate::store::redis::sentinels::{Lease, master};
use crate::store::redis::trouble::Trouble;

/// Where a server is.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// Here.
    Fixed(RedisHost),
    /// Wherever most of the Sentinels say that the master is.
    Sentinel {
        /// The Sentinels.
        sentinels: Vec<RedisHost>,
        /// Their name for the master.
        service: String,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(host) => write!(out, "{host}"),
            Self::Sentinel { service, .. } => write!(out, "master {service:?}"),
        }
    }
}

/// Makes a connection that may serve: to a master, whose epochs are its own.
pub(super) async fn dial(shared: &Arc<Shared>, address: &Address, shards: &[Shard]) -> Result<Line, Trouble> {
    let (host, lease) = match address {
        Address::Fixed(host) => (host.clone(), Lease::endless()),
        Address::Sentinel { sentinels, service } => {
            let lease = Lease::of_look(shared.clock.monotonic_micros(), shared.options.timeout);
            (master(shared, sentinels, service).await?, lease)
        }
    };
    let mut plain = connect(shared, &host, Login::Server).await?;
    let info = house::info(&mut plain).await?;
    let identity = info.identity()?;
    for script in shared.scripts.all() {
        script.load().exec_async(&mut plain).await.map_err(|error| Trouble::of(&error))?;
    }
    for begun in begin_epochs(shared, &mut plain, &identity, shards).await? {
        passes(shared, begun)?;
    }
    findings::complain(&mut plain, &host, &info, shared).await;
    let acknowledged = match shared.options.wait_replicas {
        0 => None,
        _ => Some(Acknowledged::new(connect_again(shared, &host, &identity).await?)),
    };
    let promotion = info.promotion();
    Ok(Line { plain, acknowledged, identity, promotion, host, nearby: Nearby::default(), lease })
}

/// Makes another connection to a server: to the same process in the same life, or not at all.
pub(super) async fn connect_again(
    shared: &Shared,
    host: &RedisHost,
    identity: &str,
) -> Result<MultiplexedConnection, Trouble> {
    let mut connection = connect(shared, host, Login::Server).await?;
    let same = house::info(&mut connection).await?.identity()? == identity;
    if same { Ok(connection) } else { Err(Trouble::Strange) }
}

/// Begins a shard's epoch where there is none of this process. False when the process is another than `identity`.
pub(super) async fn renew(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    identity: &str,
    shard: Shard,
) -> Result<bool, Trouble> {
    if house::info(connection).await?.identity()? != identity {
        return Ok(false);
    }
    for begun in begin_epochs(shared, connection, identity, &[shard]).await? {
        begun?;
    }
    Ok(true)
}

/// Begins the shards' epochs: what the server said to each.
///
/// The script goes in front, on the same connection: a server that was told to forget its scripts still begins them.
async fn begin_epochs(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    identity: &str,
    shards: &[Shard],
) -> Result<Vec<Result<(), Trouble>>, Trouble> {
    let wall_secs = shared.clock.unix_seconds();
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors().add_command(shared.scripts.epoch.load());
    for shard in shards {
        let epoch = shared.scripts.epoch.on(&[names::epoch(*shard)]);
        let epoch = epoch.arg(identity).arg(wall_secs).arg(shared.options.max_ahead_secs);
        let epoch = epoch.arg(shared.options.nonce_retention_secs);
        pipeline.add_command(shared.timed(epoch).packed().clone());
    }
    let answers: Vec<RedisResult<Value>> =
        pipeline.query_async(connection).await.map_err(|error| Trouble::of(&error))?;
    let mut answers = answers.into_iter().map(|answer| answer.map(drop).map_err(|error| Trouble::of(&error)));
    answers.next().ok_or(Trouble::Unreadable)??;
    let begun: Vec<_> = answers.collect();
    if begun.len() == shards.len() { Ok(begun) } else { Err(Trouble::Unreadable) }
}

/// A slot of a cluster that is not wholly with the node keeps nobody from the others. Its epoch is begun when somebody
/// asks for it.
fn passes(shared: &Shared, begun: Result<(), Trouble>) -> Result<(), Trouble> {
    match (begun, shared.options.url.layout()) {
        (Err(trouble), RedisLayout::Cluster { .. }) if trouble.is_elsewhere() => Ok(()),
        (begun, RedisLayout::Single(_) | RedisLayout::Sentinel { .. } | RedisLayout::Cluster { .. }) => begun,
    }
}

/// As whom to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    /// As the URL says, and its password.
    Server,
    /// As Sentinels want it.
    Sentinel,
}

impl Login {
    fn account(self, options: &Options) -> RedisConnectionInfo {
        let account = RedisConnectionInfo::default();
        let (account, user, password) = match self {
            Self::Server => (
                account.set_db(i64::from(options.url.database())),
                options.url.user(),
                options.password.as_ref().or(options.url.password()),
            ),
            Self::Sentinel => (account, options.sentinel.user.as_deref(), options.sentinel.password.as_ref()),
        };
        let account = match user {
            Some(user) => account.set_username(user),
            None => account,
        };
        match password {
            Some(password) => account.set_password(password.reveal()),
            None => account,
        }
    }
}

pub(super) async fn connect(
    shared: &Shared,
    host: &RedisHost,
    login: Login,
) -> Result<MultiplexedConnection, Trouble> {
    let options = &shared.options;
    let RedisHost { host, port } = host.clone();
    let address = if options.url.tls() {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let account = login.account(options);
    let info =
        address.into_connection_info().map_err(|error| Trouble::of(&error))?.set_redis_settings(account);
    let client = match &shared.certificates {
        Some(certificates) if options.url.tls() => Client::build_with_tls(info, certificates.clone()),
        _ => Client::open(info),
    };
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let client = client.map_err(|error| Trouble::of(&error))?;
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| Trouble::of(&error))
}
