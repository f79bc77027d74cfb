//! TLS and logins: whose certificates are believed, and Sentinels and servers that ask everybody who they are.

use std::{env, path::Path, process::Command};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use tempfile::TempDir;

use crate::domain::{RedisUrl, Secret};
use crate::ports::{Clock, KeyChange, Store};
use crate::store::contract::{agent, claim, key, until};
use crate::store::redis::options::{Options, SentinelLogin, TlsFiles};
use crate::store::redis::tests::server::{Admin, RedisServer, own_ip, say};
use crate::store::redis::tests::{by_key, fitting, is_admitted, options, ready, refused};
use crate::store::{
    redis::RedisStore, redis::tests::real::open, redis::tests::rights::documented,
    redis::tests::sentinel::fail_over,
};

/// Set where this very test binary was started again, with other authorities for the system's: the server's URL and the
/// file with its authority.
const ROLE: &str = "TG_TEST_SYSTEM_ROOTS";

/// The rights of the product's user at a Sentinel; `docs/redis.md` names the same.
const SENTINEL_RIGHTS: &str = "-@all +auth +sentinel|get-master-addr-by-name";

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
pub(super) fn tls_settings(files: &TlsFiles, port: u16) -> Vec<(&'static str, String)> {
    let (cert, key) = files.identity.as_ref().unwrap();
    vec![
        ("port", "0".to_owned()),
        ("tls-port", port.to_string()),
        ("tls-cert-file", text(cert)),
        ("tls-key-file", text(key)),
        ("tls-ca-cert-file", text(files.ca.as_ref().unwrap())),
    ]
}

pub(super) fn arguments(settings: &[(&'static str, String)]) -> Vec<String> {
    settings.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}

pub(super) fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn only_the_configured_authority_counts_even_when_the_system_believes_others() {
    pingora::tls::install_default_crypto_provider();
    let name = "store::redis::tests::secured::only_the_configured_authority_counts_even_when_the_system_believes_others";
    let (folder, ip) = (tempfile::tempdir().unwrap(), own_ip());
    if let Ok(role) = env::var(ROLE) {
        // The server's certificate stems from an authority that the system believes, and that is not the configured one.
        let (url, ca) = role.split_once(' ').unwrap();
        let with_ca = |ca| Options { tls: TlsFiles { ca, identity: None }, ..options(url) };
        ready(&open(with_ca(None))).await;
        ready(&open(with_ca(Some(ca.into())))).await;
        let store = open(with_ca(certificates(&folder, &[&ip.to_string()]).ca));
        // Between two tries it says that a connection is being made.
        until("it says why it has no connection", async || {
            let fault = format!("{:?}", store.has_key(agent(1)).await.unwrap_err());
            fault.contains("invalid peer certificate").then_some(())
        })
        .await;
        return;
    }
    let files = certificates(&folder, &[&ip.to_string()]);
    let settings = [arguments(&tls_settings(&files, 6_379)), vec!["--tls-auth-clients".into(), "no".into()]];
    let admin = Admin { tls: files.clone(), password: None };
    let Some(server) = RedisServer::start_at(ip, &words(&settings.concat()), admin).await else { return };
    let ca = text(files.ca.as_ref().unwrap());
    let child = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{} {ca}", server.url().replace("redis:", "rediss:")))
        .env("SSL_CERT_FILE", &ca)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
}

/// A master, a replica of it and a Sentinel, each of which speaks TLS alone and wants to know who asks.
struct Guarded {
    master: RedisServer,
    _replica: RedisServer,
    sentinel: RedisServer,
}

impl Guarded {
    async fn start(folder: &TempDir) -> Option<(Self, TlsFiles)> {
        let [master_ip, replica_ip, sentinel_ip] = [own_ip(), own_ip(), own_ip()];
        let ips = [master_ip, replica_ip, sentinel_ip].map(|ip| ip.to_string());
        let files = certificates(folder, &ips.each_ref().map(String::as_str));
        let admin = |password| Admin { tls: files.clone(), password: Some(password) };
        let mut settings = arguments(&tls_settings(&files, 6_379));
        settings.extend(["--tls-replication", "yes"].map(str::to_owned));
        settings.extend(["--requirepass", "of-admins", "--masterauth", "of-admins"].map(str::to_owned));
        settings.extend(["--user", "tiergate", "on", ">of-servers", "~tg2:*"].map(str::to_owned));
        settings.extend(documented().into_iter().map(str::to_owned));
        let master = RedisServer::start_at(master_ip, &words(&settings), admin("of-admins")).await?;
        settings.extend(["--replicaof", &ips[0], "6379", "--replica-announce-ip", "{ip}"].map(str::to_owned));
        let replica = RedisServer::start_at(replica_ip, &words(&settings), admin("of-admins")).await?;
        master.replicated().await;
        let mut lines: Vec<String> =
            tls_settings(&files, 26_379).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        lines.push("tls-replication yes".to_owned());
        lines.push("requirepass of-sentinel-admins".to_owned());
        lines.push(format!("user watcher on >of-sentinels {SENTINEL_RIGHTS}"));
        lines.push("sentinel auth-pass service of-admins".to_owned());
        let (lines, admin) = (lines.join("\n") + "\n", admin("of-sentinel-admins"));
        let sentinel = RedisServer::start_sentinel_at(sentinel_ip, &master.host, &lines, admin).await?;
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

/// Gives agent 1 its first key, which is good.
async fn issue(store: &RedisStore) {
    let signed_at = crate::os::Os::new().unix_seconds() + 3_600;
    store.changed(agent(1), claim(1, signed_at), KeyChange::Issue(key(fitting(1, 1)))).await.unwrap();
    assert!(is_admitted(by_key(store, fitting(1, 1)).await));
}

#[tokio::test]
async fn sentinels_and_servers_with_tls_and_logins_are_followed_through_a_failover() {
    pingora::tls::install_default_crypto_provider();
    let folder = tempfile::tempdir().unwrap();
    let Some((mut guarded, files)) = Guarded::start(&folder).await else { return };
    let complete = guarded.options(&files);
    let store = open(Options { wait_replicas: 1, ..complete.clone() });
    ready(&store).await;
    issue(&store).await;

    let plain = format!("redis-sentinel://tiergate:of-servers@{}/service", guarded.sentinel.host);
    let no_password = format!("rediss-sentinel://{}/service", guarded.sentinel.host);
    let sentinel = format!("{}: ", guarded.sentinel.host);
    for (number, lacking) in [
        Options { sentinel: SentinelLogin::default(), ..complete.clone() },
        Options { sentinel: login("watcher", "of-servers"), ..complete.clone() },
        Options { sentinel: login("tiergate", "of-servers"), ..complete.clone() },
        Options { tls: TlsFiles { ca: None, ..files.clone() }, ..complete.clone() },
        Options { tls: TlsFiles { identity: None, ..files.clone() }, ..complete.clone() },
        Options { url: RedisUrl::parse(&plain).unwrap(), ..complete.clone() },
        Options { url: RedisUrl::parse(&no_password).unwrap(), ..complete.clone() },
    ]
    .into_iter()
    .enumerate()
    {
        let store = open(lacking.clone());
        refused(&store).await;
        let fault = format!("{:?} {lacking:?}", store.has_key(agent(1)).await.unwrap_err());
        assert!(!fault.contains("of-s"), "{fault}");
        if number < 3 {
            until("the Sentinel and its login are named", async || {
                let fault = format!("{:?}", store.has_key(agent(1)).await.unwrap_err());
                (fault.contains(&sentinel) && fault.contains("store.redis.sentinel_")).then_some(())
            })
            .await;
        }
    }

    fail_over(&guarded.sentinel, &mut guarded.master).await;
    let after = open(complete);
    ready(&after).await;
    assert!(after.has_key(agent(1)).await.unwrap());
    assert!(is_admitted(by_key(&after, fitting(1, 1)).await));
    // The store that was connected to the former master has followed.
    until("it follows", async || is_admitted(by_key(&store, fitting(1, 1)).await).then_some(())).await;
}

#[tokio::test]
async fn a_cluster_with_tls_is_found_and_followed_by_a_user_with_no_more_rights_than_needed() {
    pingora::tls::install_default_crypto_provider();
    let (folder, ip) = (tempfile::tempdir().unwrap(), own_ip());
    let files = certificates(&folder, &[&ip.to_string()]);
    let mut settings = arguments(&tls_settings(&files, 6_379));
    settings.extend(["--tls-cluster", "yes", "--cluster-enabled", "yes"].map(str::to_owned));
    settings.extend(["--cluster-announce-ip", "{ip}", "--requirepass", "of-admins"].map(str::to_owned));
    settings.extend(["--user", "tiergate", "on", ">of-servers", "~tg2:*"].map(str::to_owned));
    settings.extend(documented().into_iter().chain(["+cluster|slots"]).map(str::to_owned));
    let admin = Admin { tls: files.clone(), password: Some("of-admins") };
    let Some(node) = RedisServer::start_at(ip, &words(&settings), admin).await else { return };
    let url = format!("rediss+cluster://tiergate:of-servers@{ip}");
    let store = open(Options { tls: files.clone(), ..options(&url) });
    assert!(store.has_key(agent(1)).await.is_err(), "a cluster without slots serves nothing");
    say(&mut node.connected().await, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    ready(&store).await;
    issue(&store).await;
}
