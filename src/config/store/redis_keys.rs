//! The keys of `[store]` for Redis: where it is, how to log in at servers and Sentinels, and how long to wait.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::duration::DurationBounds;
use crate::config::files::{key_pair, noted_file};
use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::config::store::differs;
use crate::domain::redis_url::{NotARedisUrl, RedisLayout, RedisUrl};
use crate::domain::rpc_url::public_part;
use crate::domain::secret::Secret;
use crate::domain::tenant::KeyPair;

/// What stands where a key is left out.
const URL: &str = "redis://127.0.0.1:6379";
const TIME: &str = "250ms";

/// How long one request to Redis may take, and its replicas to acknowledge a write.
const UP_TO_FIVE_SECONDS: DurationBounds = DurationBounds {
    min: Duration::from_millis(1),
    max: Duration::from_secs(5),
    allowed: "of at least 1ms and at most 5s",
};

/// Where Redis is, how to log in, and how long to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Where it is; may hold a user and a password.
    pub url: RedisUrl,
    /// The password that is not in the URL.
    pub password: Option<RedisPassword>,
    /// As whom to log in at Sentinels; nothing: as their default user.
    pub sentinel_username: Option<String>,
    /// The password for Sentinels; nothing: they ask for none.
    pub sentinel_password: Option<RedisPassword>,
    /// Whose certificates are believed, and nobody else's; nothing: the system's authorities.
    pub ca: Option<PathBuf>,
    /// What is shown to servers and Sentinels.
    pub identity: Option<KeyPair>,
    /// For how long one request may take; 1 ms to 5 s.
    pub timeout: Duration,
    /// How many replicas must acknowledge keys and nonces; 0 to 16.
    pub wait_replicas: u32,
    /// For how long their word is waited for; 1 ms to 5 s.
    pub wait_timeout: Duration,
}

/// A password, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisPassword {
    /// The password itself.
    Text(Secret),
    /// A file that holds it and nothing else; a line end behind it does not count.
    File(PathBuf),
}

/// What was read, before it is known whether it is used. `None` is left out or a problem.
pub(super) struct RedisKeys {
    url: Option<RedisUrl>,
    password: PasswordKeys,
    sentinel_username: Option<String>,
    sentinel_password: PasswordKeys,
    ca: Option<PathBuf>,
    ca_is_given: bool,
    identity: Option<Option<KeyPair>>,
    timeout: Option<Duration>,
    wait_replicas: Option<u32>,
    wait_timeout: Option<Duration>,
}

/// One password under two keys, of which one may be written.
struct PasswordKeys {
    paths: [&'static str; 2],
    /// Right or wrong.
    given: [bool; 2],
    text: Option<Secret>,
    file: Option<PathBuf>,
}

impl RedisKeys {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            url: reader.text("store.url", URL, redis_url),
            password: PasswordKeys::read(reader, ["store.password", "store.password_file"]),
            sentinel_username: reader.optional_text("store.sentinel_username", user),
            sentinel_password: PasswordKeys::read(
                reader,
                ["store.sentinel_password", "store.sentinel_password_file"],
            ),
            ca_is_given: reader.is_given("store.ca"),
            ca: noted_file(reader, "store.ca", Content::Authorities),
            identity: key_pair(reader, "store.cert", "store.key"),
            timeout: reader.duration("store.timeout", TIME, &UP_TO_FIVE_SECONDS),
            wait_replicas: reader.integer("store.wait_replicas", 0, &(0..=16)),
            wait_timeout: reader.duration("store.wait_timeout", TIME, &UP_TO_FIVE_SECONDS),
        }
    }

    /// Every key, and whether it says anything but its default.
    pub(super) fn written(&self) -> Vec<(&'static str, bool)> {
        let has_identity = self.identity.as_ref().is_some_and(Option::is_some);
        let time = || UP_TO_FIVE_SECONDS.parse(TIME);
        let mut written = vec![("store.url", differs(self.url.as_ref(), redis_url(URL)))];
        written.extend(self.password.written());
        written.extend(self.of_sentinels());
        written.extend([
            ("store.ca", self.ca.is_some()),
            ("store.cert", has_identity),
            ("store.key", has_identity),
            ("store.timeout", differs(self.timeout.as_ref(), time())),
            ("store.wait_replicas", differs(self.wait_replicas.as_ref(), Ok(0))),
            ("store.wait_timeout", differs(self.wait_timeout.as_ref(), time())),
        ]);
        written
    }

    /// What is used, if it goes together.
    pub(super) fn check(self, reader: &mut Reader) -> Option<RedisSettings> {
        if let Some(url) = &self.url {
            self.check_login(reader, url);
            self.check_sentinels(reader, url);
            self.check_tls(reader, url);
        }
        Some(RedisSettings {
            url: self.url?,
            password: self.password.either(),
            sentinel_username: self.sentinel_username,
            sentinel_password: self.sentinel_password.either(),
            ca: self.ca,
            identity: self.identity?,
            timeout: self.timeout?,
            wait_replicas: self.wait_replicas?,
            wait_timeout: self.wait_timeout?,
        })
    }

    fn check_login(&self, reader: &mut Reader, url: &RedisUrl) {
        let passwords = self.password.count() + usize::from(url.password().is_some());
        if passwords > 1 {
            let phrase = "is one of several passwords; write it in the URL, in password or in password_file";
            reader.report(&self.password.paths, phrase);
        }
        if url.user().is_some() && passwords == 0 {
            reader.report(
                &["store.url"],
                format!("is {url} with a user and no password; write both or neither"),
            );
        }
    }

    fn check_sentinels(&self, reader: &mut Reader, url: &RedisUrl) {
        if !matches!(url.layout(), RedisLayout::Sentinel { .. }) {
            for (path, _) in self.of_sentinels().filter(|(_, is_written)| *is_written) {
                let phrase = format!("{path} is for Sentinels, and url is {url}; leave it out");
                reader.report(&[path, "store.url"], phrase);
            }
            return;
        }
        if self.sentinel_password.count() > 1 {
            let phrase = "is one of two passwords; write sentinel_password or sentinel_password_file";
            reader.report(&self.sentinel_password.paths, phrase);
        }
        if self.sentinel_username.is_some() && self.sentinel_password.count() == 0 {
            let phrase = "has no password; write sentinel_password or sentinel_password_file too";
            reader.report(&["store.sentinel_username"], phrase);
        }
    }

    fn check_tls(&self, reader: &mut Reader, url: &RedisUrl) {
        let has_identity = self.identity.as_ref().is_some_and(Option::is_some);
        if !url.tls() && (self.ca_is_given || has_identity) {
            let phrase = format!(
                "is {url}, which has no TLS; write rediss://, rediss-sentinel:// or rediss+cluster://, or no ca, cert \
                 and key"
            );
            reader.report(&["store.url"], phrase);
        }
    }

    fn of_sentinels(&self) -> impl Iterator<Item = (&'static str, bool)> + use<> {
        let user = ("store.sentinel_username", self.sentinel_username.is_some());
        [user].into_iter().chain(self.sentinel_password.written())
    }
}

impl PasswordKeys {
    fn read(reader: &mut Reader, paths: [&'static str; 2]) -> Self {
        let [text, file_path] = paths;
        Self {
            paths,
            given: paths.map(|path| reader.is_given(path)),
            text: reader.optional_text(text, password),
            file: noted_file(reader, file_path, Content::Password),
        }
    }

    fn count(&self) -> usize {
        self.given.into_iter().filter(|given| *given).count()
    }

    fn written(&self) -> [(&'static str, bool); 2] {
        let [text, file] = self.paths;
        [(text, self.text.is_some()), (file, self.file.is_some())]
    }

    fn either(self) -> Option<RedisPassword> {
        self.text.map(RedisPassword::Text).or(self.file.map(RedisPassword::File))
    }
}

/// What is wrong shows scheme and host at most.
fn redis_url(text: &str) -> Result<RedisUrl, String> {
    RedisUrl::parse(text).map_err(|error| match error {
        NotARedisUrl::Malformed => {
            let shown = public_part(text).unwrap_or_else(|| "not such a URL".to_owned());
            format!(
                "is {shown}; write redis://HOST:PORT/DB, redis-sentinel://HOST,HOST/SERVICE/DB, \
                 redis+cluster://HOST,HOST, or one of them with rediss for TLS; a user and password percent-encoded"
            )
        }
        NotARedisUrl::SentinelTwice(host) => {
            format!("names the Sentinel {host} twice; name each once, since each has one vote")
        }
    })
}

/// What is wrong shows nothing of it: somebody may take the one key for the other.
fn user(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("is empty; leave it out".to_owned()) } else { Ok(text.to_owned()) }
}

/// What is wrong shows nothing of it.
fn password(text: &str) -> Result<Secret, String> {
    if text.is_empty() { Err("is empty; leave it out".to_owned()) } else { Ok(Secret::new(text)) }
}
