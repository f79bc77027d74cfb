//! TLS and logins: whose certificates are believed, and Sentinels and servers that ask everybody who they are.

use std::env;
use std::path::Path;
use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use tempfile::TempDir;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::domain::redis_url::{RedisHost, RedisUrl};
use crate::domain::secret::Secret;
use crate::ports::clock::Clock;
use crate::ports::store::{Admission, KeyChange, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::options::{Options, SentinelLogin, TlsFiles};
use crate::store::redis::tests::real::{open, refused};
use crate::store::redis::tests::server::{RedisServer, own_ip};
use crate::store::redis::tests::{AHEAD_SECS, FAILOVER_TIME_MAX, PATIENCE, options, ready, ready_within};

/// Set where this very test binary was started again, with other authorities for the system's.
const ROLE: &str = "TIERGATE_TEST_SYSTEM_ROOTS";

/// What the user of the product may do on a server; `docs/operations.md` has the same.
const SERVER_RIGHTS: &str = "-@all +auth +hello +select +ping +info +config|get +wait +script|load +evalsha +time \
                             +get +set +del +exists +ttl +pexpire +hget +hset +hmget +lindex +llen +ltrim \
                             +rpush +sadd +smembers +srem +zadd +zrem +zrangebyscore";

/// What it may do at a Sentinel.
const SENTINEL_RIGHTS: &str = "-@all +auth +hello +sentinel|get-master-addr-by-name";

/// An authority, and a certificate of its for servers at these addresses and for clients.
pub(super) fn certificates(folder: &TempDir, ips: &[&str]) -> TlsFiles {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.distinguished_name.push(DnType::CommonName, "authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let ips: Vec<String> = ips.iter().map(|ip| (*ip).to_owned()).collect();
    let mut params = CertificateParams::new(ips).unwrap();
    params.distinguished_name.push(DnType::CommonName, "redis");
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let pair = KeyPair::generate().unwrap();
    let cert = params.signed_by(&pair, &authority).unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        ca: Some(write("ca", authority.pem())),
        identity: Some((write("cert", cert.pem()), write("key", pair.serialize_pem()))),
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The settings that make a server speak TLS alone, on the port that it would have.
fn tls_settings(files: &TlsFiles, port: u16) -> Vec<(&'static str, String)> {
    let (cert, key) = files.identity.as_ref().unwrap();
    vec![
        ("port", "0".to_owned()),
        ("tls-port", port.to_string()),
        ("tls-cert-file", text(cert)),
        ("tls-key-file", text(key)),
        ("tls-ca-cert-file", text(files.ca.as_ref().unwrap())),
    ]
}

fn arguments(settings: &[(&'static str, String)]) -> Vec<String> {
    settings.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Started again by the test below; alone it has nothing to say.
#[tokio::test]
async fn only_the_configured_authority_counts_even_when_the_system_believes_others() {
    pingora::tls::install_default_crypto_provider();
    let name = "store::redis::tests::secured::only_the_configured_authority_counts_even_when_the_system_believes_others";
    let own = tempfile::tempdir().unwrap();
    let ip = own_ip();
    let files = certificates(&own, &[&ip.to_string()]);
    if env::var(ROLE).is_err() {
        let system = files.ca.as_ref().unwrap();
        let folder = system.parent().unwrap();
        let child = Command::new(env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, folder)
            .env("SSL_CERT_FILE", folder.join("system"))
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
        return;
    }
    // The server's certificate stems from an authority that the system believes, and that is not the configured one.
    let system_roots = env::var_os("SSL_CERT_FILE").unwrap();
    std::fs::copy(files.ca.as_ref().unwrap(), &system_roots).unwrap();
    let arguments = [arguments(&tls_settings(&files, 6_379)), vec!["--tls-auth-clients".into(), "no".into()]];
    let Some(server) = RedisServer::start_at(ip, &words(&arguments.concat())) else { return };
    let url = server.url().replace("redis:", "rediss:");
    let with_ca = |ca| Options { tls: TlsFiles { ca, identity: None }, ..options(&url) };

    ready(&open(with_ca(None))).await;
    ready(&open(with_ca(files.ca.clone()))).await;
    let private = tempfile::tempdir().unwrap();
    let other = certificates(&private, &[&ip.to_string()]);
    let store = open(with_ca(other.ca));
    refused(&store).await;
    let fault = format!("{:?}", store.has_key(agent(1)).await.unwrap_err());
    assert!(fault.contains("invalid peer certificate"), "{fault}");
}

/// A master, a replica of it and a Sentinel, each of which speaks TLS alone and wants to know who asks.
struct Guarded {
    master: RedisServer,
    _replica: RedisServer,
    sentinel: RedisServer,
}

impl Guarded {
    fn start(folder: &TempDir) -> Option<(Self, TlsFiles)> {
        let [master_ip, replica_ip, sentinel_ip] = [own_ip(), own_ip(), own_ip()];
        let ips = [master_ip, replica_ip, sentinel_ip].map(|ip| ip.to_string());
        let files = certificates(folder, &ips.each_ref().map(String::as_str));
        let mut settings = arguments(&tls_settings(&files, 6_379));
        settings.extend(["--tls-replication", "yes"].map(str::to_owned));
        settings.extend(["--requirepass", "of-admins", "--masterauth", "of-admins"].map(str::to_owned));
        settings.extend(["--user", "tiergate", "on", ">of-servers", "~tg1:*"].map(str::to_owned));
        settings.extend(SERVER_RIGHTS.split(' ').map(str::to_owned));
        let master = RedisServer::start_at(master_ip, &words(&settings))?;
        settings.extend(["--replicaof", &ips[0], "6379", "--replica-announce-ip", "{ip}"].map(str::to_owned));
        settings.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
        let replica = RedisServer::start_at(replica_ip, &words(&settings)).unwrap();
        let mut lines: Vec<String> =
            tls_settings(&files, 26_379).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        lines.push("tls-replication yes".to_owned());
        lines.push("requirepass of-sentinel-admins".to_owned());
        lines.push(format!("user watcher on >of-sentinels {SENTINEL_RIGHTS}"));
        lines.push("sentinel auth-pass service of-admins".to_owned());
        let lines = lines.join("\n") + "\n";
        let sentinel = RedisServer::start_sentinel_at(sentinel_ip, &master.host, &lines).unwrap();
        Some((Self { master, _replica: replica, sentinel }, files))
    }

    fn options(&self, files: &TlsFiles) -> Options {
        let url = format!("rediss-sentinel://tiergate:of-servers@{}/service", self.sentinel.host);
        Options { tls: files.clone(), sentinel: login("watcher", "of-sentinels"), ..options(&url) }
    }
}

fn login(user: &str, password: &str) -> SentinelLogin {
    SentinelLogin { user: Some(user.to_owned()), password: Some(Secret::new(password)) }
}

/// Asks a server as its administrator, again and again until it says what is wanted.
async fn until_said(
    files: &TlsFiles,
    (host, port): (&str, u16),
    password: &str,
    words: &[&str],
    is_wanted: impl Fn(&[u8]) -> bool,
) {
    let (cert, key) = files.identity.as_ref().unwrap();
    let asked = async {
        loop {
            let mut command = Command::new("redis-cli");
            command.args(["-h", host, "-p", &port.to_string(), "-a", password, "--tls"]);
            command.arg("--cacert").arg(files.ca.as_ref().unwrap()).arg("--cert").arg(cert);
            let output = command.arg("--key").arg(key).args(words).output().unwrap();
            if is_wanted(&output.stdout) {
                return;
            }
            yield_now().await;
        }
    };
    timeout(PATIENCE, asked).await.unwrap();
}

/// Changes the agent's key, again and again until that succeeds and the key is good; gives the key's number.
async fn changed(store: &RunningRedisStore, first: u64) -> u64 {
    let tried = async {
        for number in first.. {
            let signed_at = crate::os::Os::new().unix_seconds() + AHEAD_SECS + 30;
            let change = KeyChange::Rotate(key(number));
            if store.change_key(agent(1), claim(number, signed_at), change).await.is_ok() {
                return number;
            }
            yield_now().await;
        }
        unreachable!("numbers do not end")
    };
    timeout(PATIENCE, tried).await.unwrap()
}

#[tokio::test]
async fn sentinels_and_servers_with_tls_and_logins_are_followed_through_a_failover() {
    pingora::tls::install_default_crypto_provider();
    let folder = tempfile::tempdir().unwrap();
    let Some((mut guarded, files)) = Guarded::start(&folder) else { return };
    let sound = guarded.options(&files);
    let store = open(Options { wait_replicas: 1, ..sound.clone() });
    ready(&store).await;
    // Without it Sentinel could name nobody: of replicas it hears from the master, every ten seconds.
    let RedisHost { host, port } = &guarded.sentinel.host;
    let known = ["SENTINEL", "REPLICAS", "service"];
    until_said(&files, (host, *port), "of-sentinel-admins", &known, |said| said.starts_with(b"name")).await;
    // With a replica's word for it, so that the replica is in sync, and the failover loses nothing.
    let number = changed(&store, 1).await;

    let plain = format!("redis-sentinel://tiergate:of-servers@{}/service", guarded.sentinel.host);
    let no_password = format!("rediss-sentinel://{}/service", guarded.sentinel.host);
    for lacking in [
        Options { sentinel: SentinelLogin::default(), ..sound.clone() },
        Options { sentinel: login("watcher", "of-servers"), ..sound.clone() },
        Options { sentinel: login("tiergate", "of-servers"), ..sound.clone() },
        Options { tls: TlsFiles { ca: None, ..files.clone() }, ..sound.clone() },
        Options { tls: TlsFiles { identity: None, ..files.clone() }, ..sound.clone() },
        Options { url: RedisUrl::parse(&plain).unwrap(), ..sound.clone() },
        Options { url: RedisUrl::parse(&no_password).unwrap(), ..sound.clone() },
    ] {
        let store = open(lacking.clone());
        refused(&store).await;
        let fault = format!("{:?} {lacking:?}", store.has_key(agent(1)).await.unwrap_err());
        assert!(!fault.contains("of-s"), "{fault}");
    }

    guarded.master.kill();
    let after = open(sound);
    ready_within(FAILOVER_TIME_MAX, &after).await;
    assert!(after.has_key(agent(1)).await.unwrap());
    let proof = Proof::Key(digest(number));
    let admitted = after.admit(agent(1), &Scope::Api, MANY, &proof).await.unwrap();
    assert!(matches!(admitted, Admission::Admitted { .. }));
    // The store that was connected to the former master has followed.
    let follows = async {
        while store.admit(agent(1), &Scope::Api, MANY, &proof).await.is_err() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, follows).await.unwrap();
}

#[tokio::test]
async fn a_cluster_with_tls_is_found_and_followed_by_a_user_with_no_more_rights_than_needed() {
    pingora::tls::install_default_crypto_provider();
    let folder = tempfile::tempdir().unwrap();
    let ip = own_ip();
    let files = certificates(&folder, &[&ip.to_string()]);
    let mut settings = arguments(&tls_settings(&files, 6_379));
    settings.extend(["--tls-cluster", "yes", "--cluster-enabled", "yes"].map(str::to_owned));
    settings.extend(["--cluster-announce-ip", "{ip}", "--requirepass", "of-admins"].map(str::to_owned));
    settings.extend(["--user", "tiergate", "on", ">of-servers", "~tg1:*"].map(str::to_owned));
    settings.extend(SERVER_RIGHTS.split(' ').chain(["+cluster|slots"]).map(str::to_owned));
    let Some(_node) = RedisServer::start_at(ip, &words(&settings)) else { return };
    let url = format!("rediss+cluster://tiergate:of-servers@{ip}");
    let store = open(Options { tls: files.clone(), ..options(&url) });
    assert!(store.has_key(agent(1)).await.is_err(), "a cluster without slots serves nothing");
    let assign = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    until_said(&files, (&ip.to_string(), 6_379), "of-admins", &assign, |said| said.starts_with(b"OK")).await;
    ready(&store).await;
    let number = changed(&store, 1).await;
    let proof = Proof::Key(digest(number));
    let admitted = store.admit(agent(1), &Scope::Api, MANY, &proof).await.unwrap();
    assert!(matches!(admitted, Admission::Admitted { .. }));
}
