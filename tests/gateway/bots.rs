//! Bots that prove their domain (Web Bot Auth) on public routes: by the keys that it publishes, with a limit of its own from
//! everywhere, and never by another's.

use base64::Engine;
use std::net::{IpAddr, Ipv4Addr};

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::Method;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::access_log::line_of;
use crate::rig::authz::{Asked, DIALECTS, Original};
use crate::rig::case::{Case, cases};
use crate::rig::certificates::{Authority, Files};
use crate::rig::h2c::{self, Message};
use crate::rig::scripts::{answer, bytes, hang};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, TRUSTED, unique};
use crate::rig::upstream::{Script, Then, Upstream};
use crate::rig::{tenants::Tenant, tunnels::Terminator};
use crate::signed_requests::{NAMED, naming};
use crate::support::client::Answer;
use crate::support::time::{SOON, Stopwatch, unix_seconds, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_directory_that_is_not_as_it_has_to_be_proves_nothing_and_holds_nobody_up,
    a_bots_proof_counts_for_a_host_that_its_tenant_names_at_every_seat,
    where_no_domain_is_listed_or_no_limit_set_there_are_no_bots,
];

pub(crate) const STORED: &[Case] = cases![a_bot_has_the_limit_of_its_domain_from_everywhere];

/// The limits of the route: for a bot, and for a client network.
const BOT_LIMIT: u32 = 7;
const LIMIT: u32 = 10_000;

const DIRECTORY: &str = "/.well-known/http-message-signatures-directory";

/// Who is believed, and the bots of domains at loopback addresses.
pub(crate) struct Bots {
    authority: Authority,
    /// Kept until it ends.
    _files: Files,
    /// What the gateway's process is started under.
    pub(crate) environment: String,
}

/// A bot, and the server of its directory.
pub(crate) struct Bot {
    key: Ed25519KeyPair,
    server: Upstream,
    terminator: Terminator,
}

impl Bots {
    pub(crate) fn new() -> Self {
        let (authority, files) = (Authority::new("the bots' authority"), Files::new());
        let environment = format!("export SSL_CERT_FILE={}", files.put("ca.crt", &authority.pem()));
        Self { authority, _files: files, environment }
    }

    /// A bot whose directory is answered like this.
    fn bot_with(&self, name: &str, directory: impl FnOnce(&Ed25519KeyPair) -> Script) -> Bot {
        let seed: [u8; 32] = Sha256::digest(unique()).into();
        let (key, server) = (Ed25519KeyPair::from_seed_unchecked(&seed).unwrap(), Upstream::start());
        server.on(DIRECTORY, directory(&key));
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let terminator = Terminator::start_at(ip, server.address, &self.authority.issue(name), None, &[]);
        Bot { key, server, terminator }
    }

    pub(crate) fn bot(&self) -> Bot {
        self.bot_with("localhost", |key| published(&[key]))
    }

    /// A site where these bots' domains are listed.
    fn site<'a>(&'a self, stage: &'a Stage, bots: &[&Bot]) -> SiteBuilder<'a> {
        let domains: Vec<String> = bots.iter().map(|bot| bot.domain()).collect();
        let site = Site::of(stage).set("listen.trusted_proxies", vec![TRUSTED]);
        let site = site.set("web_bot_auth.private_domains", domains).under(&self.environment);
        let limits = format!("requests_per_minute = {LIMIT}\nbot_requests_per_minute = {BOT_LIMIT}");
        site.tenant(|tenant| tenant.route("/bots/*", &format!("access = \"public\"\n{limits}")))
    }
}

impl Bot {
    pub(crate) fn domain(&self) -> String {
        format!("localhost:{}", self.terminator.address.port())
    }

    /// What signs a request to [`ACME`].
    pub(crate) fn signs(&self) -> Vec<(String, String)> {
        self.signs_for(ACME)
    }

    /// The same for this host.
    pub(crate) fn signs_for(&self, host: &str) -> Vec<(String, String)> {
        Signing { host: host.into(), ..Signing::of(self) }.headers()
    }
}

/// What a bot signs, by the text of the draft and RFC 9421, written independently of the product.
struct Signing<'a> {
    key: &'a Ed25519KeyPair,
    host: String,
    agent: String,
    created: u64,
    lasts: u64,
}

impl<'a> Signing<'a> {
    fn of(bot: &'a Bot) -> Self {
        let agent = format!("https://{}", bot.domain());
        Self { key: &bot.key, host: ACME.into(), agent, created: unix_seconds(), lasts: 60 }
    }

    fn headers(&self) -> Vec<(String, String)> {
        let Self { key, host, agent, created, lasts } = self;
        let (expires, id) = (created + lasts, thumbprint(key));
        let parameters = format!(
            "(\"@authority\" \"signature-agent\";key=\"bot\");created={created};expires={expires};\
             keyid=\"{id}\";alg=\"ed25519\";tag=\"web-bot-auth\""
        );
        let base = format!(
            "\"@authority\": {host}\n\"signature-agent\";key=\"bot\": \"{agent}\"\n\"@signature-params\": {parameters}"
        );
        let signature = BASE64_STANDARD.encode(key.sign(base.as_bytes()));
        [
            ("Signature-Agent", format!("bot=\"{agent}\"")),
            ("Signature-Input", format!("bot={parameters}")),
            ("Signature", format!("bot=:{signature}:")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

fn jwk(key: &Ed25519KeyPair) -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "x": BASE64_URL_SAFE_NO_PAD.encode(key.public_key()), "use": "sig"})
}

fn thumbprint(key: &Ed25519KeyPair) -> String {
    let x = BASE64_URL_SAFE_NO_PAD.encode(key.public_key());
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#)))
}

/// A directory with these keys.
fn published(keys: &[&Ed25519KeyPair]) -> Script {
    let keys = json!({"keys": keys.iter().map(|key| jwk(key)).collect::<Vec<_>>()}).to_string();
    let head = [("Content-Type", "application/http-message-signatures-directory+json")];
    bytes(answer("200 OK", &head, keys.as_bytes()), Then::Closes)
}

/// The answer to a request from this client with these headers, and the domain that its upstream is told.
#[track_caller]
fn ask(site: &Site, client: &str, headers: &[(String, String)]) -> (Answer, Option<String>) {
    let path = format!("/bots/{}", unique());
    let request = Request::get(ACME, &path).with_all(headers).with("X-Forwarded-For", client);
    let mut wire = Wire::open_from("127.0.0.2".parse().unwrap(), site.gateway.address);
    let answer = request.ask_on(&mut wire);
    let domain = site.upstream.seen_at(&path).first().and_then(|seen| {
        let all: Vec<_> =
            seen.headers.iter().filter(|(name, _)| name.to_lowercase().contains("domain")).collect();
        assert!(all.len() <= 1 && all.iter().all(|(name, _)| name == "X-Agent-Domain"), "{seen:?}");
        all.first().map(|(_, value)| value.clone())
    });
    (answer, domain)
}

/// Asks until the bot is known: the first answer to it, which is charged to its domain. A read that failed is tried again
/// after a minute.
#[track_caller]
fn known(site: &Site, bot: &Bot) -> Answer {
    until("the bot is known", 2 * SOON, || {
        let (answer, domain) = ask(site, "192.0.2.99", &bot.signs());
        assert_eq!(answer.status, 200, "nobody waits for a directory");
        domain.map(|domain| {
            assert_eq!(domain, bot.domain());
            answer
        })
    })
}

/// A request of a stranger, which its network's limit counts.
#[track_caller]
fn is_strangers(asked: &(Answer, Option<String>)) {
    let (answer, domain) = asked;
    assert_eq!((answer.status, answer.allowance().0, domain), (200, LIMIT, &None), "{answer:?}");
    assert_eq!(["cache-control", "vary"].map(|name| answer.header(name)), [None; 2], "{answer:?}");
}

// threat: Somebody poses as a bot, or has its directory be an inner address
fn a_bot_has_the_limit_of_its_domain_from_everywhere(stage: &Stage) {
    let bots = Bots::new();
    let (one, other) = (bots.bot(), bots.bot());
    let site = bots.site(stage, &[&one, &other]);
    let site = site.set("log.access", true).set("log.format", "json").start();
    let first = known(&site, &one);
    assert_eq!(first.allowance(), (BOT_LIMIT, BOT_LIMIT - 1));
    let kept = [Some("private"), Some("Origin, Signature, Signature-Agent, Signature-Input")];
    assert_eq!(["cache-control", "vary"].map(|name| first.header(name)), kept, "no cache gives it to others");
    for left in (0..BOT_LIMIT - 1).rev() {
        let (answer, domain) = ask(&site, &format!("192.0.2.{left}"), &one.signs());
        assert_eq!((answer.status, answer.allowance()), (200, (BOT_LIMIT, left)));
        assert_eq!(domain, Some(one.domain()));
    }
    for client in ["192.0.2.1", "198.51.100.1"] {
        let (answer, domain) = ask(&site, client, &one.signs());
        answer.is_limited(Value::Null, Value::Null, BOT_LIMIT);
        assert_eq!(domain, None);
        // The network has its own.
        is_strangers(&ask(&site, client, &[]));
    }
    assert_eq!(known(&site, &other).allowance(), (BOT_LIMIT, BOT_LIMIT - 1), "another domain has its own");
    assert_eq!(one.server.count_at(DIRECTORY), 1, "a directory is read once");
    // Over HTTP/2, and by the usual name of the directory.
    let signing = Signing { agent: format!("https://{}{DIRECTORY}", other.domain()), ..Signing::of(&other) };
    let path = format!("/bots/{}", unique());
    let headers = signing.headers();
    let request =
        headers.iter().fold(Message::request(Method::GET, ACME, &path), |request, (name, value)| {
            request.with(&name.to_lowercase(), value)
        });
    let answer = h2c::ask(site.gateway.address, &request.with("x-agent-domain", "forged.test")).unwrap();
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("7")));
    assert_eq!(site.upstream.only(&path).all("x-agent-domain"), [other.domain()]);
    assert_eq!(["cache-control", "vary"].map(|name| answer.header(name)), kept);
    assert_eq!(line_of(&site.gateway, "path", &path)["domain"], other.domain());
}

// threat: Somebody poses as a bot, or has its directory be an inner address
fn a_directory_that_is_not_as_it_has_to_be_proves_nothing_and_holds_nobody_up(stage: &Stage) {
    let bots = Bots::new();
    let good = bots.bot();
    let redirect =
        answer("302 Found", &[("Location", &format!("https://{}{DIRECTORY}", good.domain()))], b"");
    let set = |key: &Ed25519KeyPair| json!({"keys": [jwk(key)]}).to_string();
    let long = |key: &Ed25519KeyPair| {
        let keys = json!({"keys": [jwk(key)], "x": "x".repeat(64 * 1024)}).to_string();
        bytes(answer("200 OK", &[], keys.as_bytes()), Then::Closes)
    };
    let bad = [
        bots.bot_with("localhost", |_| bytes(redirect, Then::Closes)),
        bots.bot_with("localhost", |key| bytes(answer("203 Other", &[], set(key).as_bytes()), Then::Closes)),
        bots.bot_with("localhost", |key| {
            bytes(answer("404 Not Found", &[], set(key).as_bytes()), Then::Closes)
        }),
        bots.bot_with("localhost", long),
        bots.bot_with("localhost", |key| published(&[key; 65])),
        bots.bot_with("localhost", |_| bytes(answer("200 OK", &[], b"{}"), Then::Closes)),
        bots.bot_with("localhost", |_| bytes(&b"nonsense\r\n\r\n"[..], Then::Closes)),
        bots.bot_with("localhost", |_| hang(&b"HTTP/1.1 200 OK\r\n"[..])),
        // The certificate is of another name, or of an authority that nobody believes.
        bots.bot_with("elsewhere.test", |key| published(&[key])),
        Bots { authority: Authority::new("a stranger"), _files: Files::new(), environment: String::new() }
            .bot(),
    ];
    let others = bots.bot_with("localhost", |_| published(&[&good.key]));
    let listed: Vec<&Bot> = bad.iter().chain([&good, &others]).collect();
    let site = bots.site(stage, &listed).start();
    let watch = Stopwatch::start();
    for (number, bot) in bad.iter().enumerate() {
        is_strangers(&ask(&site, &format!("192.0.2.{number}"), &bot.signs()));
    }
    let reads = |result: &str| {
        site.gateway
            .service
            .samples()
            .get(&format!("tiergate_bot_directory_reads_total{{result=\"{result}\"}}"))
    };
    known(&site, &good);
    is_strangers(&ask(&site, "192.0.2.98", &others.signs()));
    until("all reads are over", SOON, || (reads("failed") + reads("taken") == 12.0).then_some(()));
    assert_eq!((reads("failed"), reads("taken")), (10.0, 2.0));
    for bot in bad.iter().chain([&others]) {
        is_strangers(&ask(&site, "192.0.2.97", &bot.signs()));
    }
    assert_eq!(good.server.count_at(DIRECTORY), 1, "no redirect is followed");
    let is_alone = reads("failed") + reads("taken") == 12.0;
    assert!(is_alone || watch.elapsed() > SOON, "what failed is not tried again for a minute");
    let proofs = |result: &str| {
        site.gateway.service.samples().get(&format!("tiergate_bot_proofs_total{{result=\"{result}\"}}"))
    };
    assert!(proofs("proven") >= 1.0 && proofs("unknown") >= 22.0);
}

// threat: What is signed for another service is sent on to us
// threat: Somebody poses as a bot, or has its directory be an inner address
fn a_bots_proof_counts_for_a_host_that_its_tenant_names_at_every_seat(stage: &Stage) {
    let bots = Bots::new();
    let bot = bots.bot();
    let site = bots.site(stage, &[&bot]).unlimited();
    let route = "access = \"public\"\nrequests_per_minute = 1000\nbot_requests_per_minute = 1000";
    let tenants = naming(&site.upstream().address.to_string()).map(|tenant| tenant.route("/bots/*", route));
    let first = Tenant::new("t", ACME, site.upstream().address).route("/bots/*", route);
    let asked = Asked::start(site.only([&[first][..], &tenants].concat()));
    known(&asked.site, &bot);
    for (tenant, signed, written, counts) in NAMED {
        let headers = Signing { host: signed.into(), ..Signing::of(&bot) }.headers();
        let proven = |domain: Option<&str>| domain == counts.then_some(&bot.domain());
        for dialect in DIALECTS {
            let original =
                Original::get(written, "/bots/x").of_tenant(tenant).with("X-Agent-Domain", "forged.test");
            let decision = asked.ask(dialect, &original.with_all(&headers));
            let domain = decision.passes().identity.first().map(|(_, domain)| domain.as_str());
            assert!(proven(domain), "{dialect:?} {tenant} {written}: {domain:?}");
        }
        if tenant == "asked" || (tenant == "own" && !counts) {
            continue;
        }
        let gateway = &asked.site.gateway;
        let path = format!("/bots/{}", unique());
        assert_eq!(gateway.ask(&Request::get(written, &path).with_all(&headers)).status, 200);
        let request = Message::request(Method::GET, written, &path);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.with(&name.to_lowercase(), value));
        assert_eq!(h2c::ask(gateway.address, &request).unwrap().status, 200);
        let seen = asked.site.upstream.seen_at(&path);
        assert_eq!(seen.len(), 2);
        for seen in seen {
            let all = seen.all("x-agent-domain");
            assert!(proven(all.first().map(AsRef::as_ref)), "{tenant} {written}: {all:?}");
        }
    }
}

// threat: Somebody poses as a bot, or has its directory be an inner address
fn where_no_domain_is_listed_or_no_limit_set_there_are_no_bots(stage: &Stage) {
    let bots = Bots::new();
    let bot = bots.bot();
    let forged =
        |path: &str| Request::get(ACME, path).with_all(&bot.signs()).with("X-Agent-Domain", &bot.domain());
    let site = bots.site(stage, &[]).start();
    let path = format!("/bots/{}", unique());
    let answer = site.gateway.ask(&forged(&path));
    assert_eq!((answer.status, answer.allowance()), (200, (LIMIT, LIMIT - 1)));
    assert_eq!(site.upstream.only(&path).all("x-agent-domain"), [""; 0]);
    let site = bots.site(stage, &[&bot]).start();
    let path = format!("/public/{}", unique());
    assert_eq!(site.gateway.ask(&forged(&path)).status, 200);
    assert_eq!(site.upstream.only(&path).all("x-agent-domain"), [""; 0]);
    assert_eq!(bot.server.count_at(DIRECTORY), 0, "no directory is read");
    let proofs = site.gateway.service.samples().sum("tiergate_bot_proofs_total", &[]);
    assert_eq!(proofs, 0.0, "nor will one be");
}
