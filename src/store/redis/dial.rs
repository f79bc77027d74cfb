//! Connecting: finds the server, logs in, sees that it is a master, and makes sure that no nonce was lost unnoticed.

use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError, Value,
};

use crate::domain::redis_url::RedisHost;
use crate::store::redis::house;
use crate::store::redis::link::Line;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::options::Shared;
use crate::store::redis::trouble::Trouble;

/// Where a server is.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// Here.
    Fixed(RedisHost),
    /// Wherever the Sentinels say that the master is.
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
pub(super) async fn dial(shared: &Shared, address: &Address, shards: &[Shard]) -> Result<Line, Trouble> {
    let host = match address {
        Address::Fixed(host) => host.clone(),
        Address::Sentinel { sentinels, service } => master(shared, sentinels, service).await?,
    };
    let mut plain = connect(shared, &host, Login::Server).await?;
    let info = house::info(&mut plain).await?;
    let identity = info.identity()?;
    for script in shared.scripts.all() {
        script.load().exec_async(&mut plain).await.map_err(|error| broken(&error))?;
    }
    begin_epochs(shared, &mut plain, &identity, shards).await?;
    house::complain(&mut plain, &info, shared.options.wait_replicas).await;
    let acknowledged = match shared.options.wait_replicas {
        0 => None,
        _ => Some(connect(shared, &host, Login::Server).await?),
    };
    Ok(Line { plain, acknowledged, identity, host })
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
    begin_epochs(shared, connection, identity, &[shard]).await?;
    Ok(true)
}

/// True when most of the Sentinels name another master than the one at `host`.
pub(super) async fn is_elsewhere(shared: &Shared, address: &Address, host: &RedisHost) -> bool {
    let Address::Sentinel { sentinels, service } = address else { return false };
    let mut others = 0;
    for sentinel in sentinels {
        let named = ask_sentinel(shared, sentinel, service).await;
        others += usize::from(named.is_ok_and(|named| named != *host));
    }
    others * 2 > sentinels.len()
}

async fn begin_epochs(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    identity: &str,
    shards: &[Shard],
) -> Result<(), Trouble> {
    let wall_secs = shared.clock.unix_seconds();
    let mut pipeline = redis::pipe();
    for shard in shards {
        let epoch = shared.scripts.epoch.on(&[names::epoch(*shard)]);
        let epoch = epoch.arg(identity).arg(wall_secs).arg(shared.options.max_ahead_secs);
        pipeline.add_command(shared.timed(epoch).packed().clone());
    }
    let answers: Vec<Value> = pipeline.query_async(connection).await.map_err(|error| broken(&error))?;
    if answers.len() == shards.len() { Ok(()) } else { Err(Trouble::Unreadable) }
}

/// As whom to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    /// As the URL says.
    Server,
    /// Not at all.
    Nobody,
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
    let mut account = RedisConnectionInfo::default();
    if login == Login::Server {
        account = account.set_db(i64::from(options.url.database()));
        if let Some(user) = options.url.user() {
            account = account.set_username(user);
        }
        if let Some(password) = options.password.as_ref().or(options.url.password()) {
            account = account.set_password(password.reveal());
        }
    }
    let info = address.into_connection_info().map_err(|error| broken(&error))?.set_redis_settings(account);
    let client = match &shared.certificates {
        Some(certificates) if options.url.tls() => Client::build_with_tls(info, certificates.clone()),
        _ => Client::open(info),
    };
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let client = client.map_err(|error| broken(&error))?;
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| broken(&error))
}

/// Where the Sentinels say that the master is: the first that knows.
async fn master(shared: &Shared, sentinels: &[RedisHost], service: &str) -> Result<RedisHost, Trouble> {
    let mut last = Trouble::Down("no Sentinel is named".to_owned());
    for sentinel in sentinels {
        match ask_sentinel(shared, sentinel, service).await {
            Ok(host) => return Ok(host),
            Err(trouble) => last = trouble,
        }
    }
    Err(last)
}

async fn ask_sentinel(shared: &Shared, sentinel: &RedisHost, service: &str) -> Result<RedisHost, Trouble> {
    let asked = async {
        let mut connection = connect(shared, sentinel, Login::Nobody).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        let answer: Option<(String, u16)> =
            command.query_async(&mut connection).await.map_err(|error| broken(&error))?;
        let (host, port) =
            answer.ok_or_else(|| Trouble::Refused(format!("a Sentinel knows no master {service:?}")))?;
        Ok(RedisHost { host, port })
    };
    let time_max = shared.options.timeout;
    tokio::time::timeout(time_max, asked).await.unwrap_or(Err(Trouble::Silent(time_max)))
}

pub(super) fn broken(error: &RedisError) -> Trouble {
    Trouble::Broken(Trouble::said(error))
}
