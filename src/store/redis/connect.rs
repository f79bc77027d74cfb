//! Connecting to a server or a Sentinel: TCP, TLS and the login.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
};
use tokio::time::timeout;

use crate::domain::{RedisHost, Secret};
use crate::store::redis::error::RedisError;
use crate::store::redis::options::{Options, Shared};

/// After how many times `store.redis.timeout` the kernel ends a connection whose peer acknowledges nothing.
const UNACKNOWLEDGED_TIMEOUTS: u32 = 4;

/// The account to log in with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Login {
    /// That of the URL, and its password.
    Server,
    /// That of `store.redis.sentinel_username`.
    Sentinel,
}

impl Login {
    /// The user and the password.
    fn credentials(self, options: &Options) -> (Option<&str>, Option<&Secret>) {
        match self {
            Self::Server => {
                (options.url.user.as_deref(), options.password.as_ref().or(options.url.password.as_ref()))
            }
            Self::Sentinel => (options.sentinel.user.as_deref(), options.sentinel.password.as_ref()),
        }
    }

    /// The account in words. A password is easily written as a user for Sentinels, so that one is not shown.
    pub(super) fn words(self, options: &Options) -> String {
        let words = match (self, self.credentials(options)) {
            (Self::Server, (Some(user), _)) => return format!("user {user:?}"),
            (Self::Server, (None, Some(_))) => "the default user (store.redis.url names none)",
            (Self::Server, (None, None)) => "nobody (there is no password)",
            (Self::Sentinel, (Some(_), _)) => "the user of store.redis.sentinel_username",
            (Self::Sentinel, (None, Some(_))) => {
                "the default user (there is no store.redis.sentinel_username)"
            }
            (Self::Sentinel, (None, None)) => "nobody (there is no store.redis.sentinel_password)",
        };
        words.to_owned()
    }

    /// The error of a request, with the account if it is about the account.
    pub(super) fn error(self, error: redis::RedisError, options: &Options) -> RedisError {
        if error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("WRONGPASS") {
            let account = self.words(options);
            return RedisError::Login(format!(
                "the login as {account} is refused: user or password is wrong"
            ));
        }
        RedisError::from(error).asked_as(&self.words(options))
    }

    fn account(self, options: &Options) -> RedisConnectionInfo {
        let (user, password) = self.credentials(options);
        let mut account = RedisConnectionInfo::default();
        if let Self::Server = self {
            account = account.set_db(options.url.database.into());
        }
        if let Some(user) = user {
            account = account.set_username(user);
        }
        if let Some(password) = password {
            account = account.set_password(password.reveal());
        }
        account
    }
}

/// Connects, and returns once the login is accepted. The caller limits the time.
pub(super) async fn connect(
    shared: &Shared,
    host: &RedisHost,
    login: Login,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let client = client(shared, host, login)?;
    let connected = client.get_multiplexed_async_connection_with_config(&config).await;
    connected.map_err(|error| login.error(error, &shared.options).before_connected())
}

/// Small requests leave at once, and a peer that is gone is noticed however quiet the connection is.
pub(super) fn client(shared: &Shared, host: &RedisHost, login: Login) -> Result<Client, RedisError> {
    let options = &shared.options;
    let RedisHost { host, port } = host.clone();
    let address = if options.url.tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let tcp = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(options.timeout.saturating_mul(UNACKNOWLEDGED_TIMEOUTS));
    let info =
        address.into_connection_info()?.set_redis_settings(login.account(options)).set_tcp_settings(tcp);
    Ok(match &shared.certificates {
        Some(certificates) if options.url.tls => Client::build_with_tls(info, certificates.clone())?,
        _ => Client::open(info)?,
    })
}

/// Limits the time of a future.
pub(super) async fn in_time<T>(
    time_max: Duration,
    future: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    timeout(time_max, future).await.unwrap_or(Err(RedisError::Timeout(time_max)))
}
