//! Shared caches in front of the gateway, nginx and Varnish as their documents set them up: no agent sees another's answer, and
//! nobody sees one without a credential.

use std::{net::SocketAddr, path::Path};

use tempfile::TempDir;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{H2Upstream, Message};
use crate::rig::scripts::{self, script};
use crate::rig::stage::{ACME, Stage, unique};
use crate::rig::{
    credentials::signed, refusals::is_unauthenticated, site::Site, tenants::Tenant, upstream::Then,
};
use crate::support::process::{Process, free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{client::Answer, skip::skip, wire::Request};

pub(crate) const CASES: &[Case] = cases![no_cache_in_front_gives_an_agents_answer_to_anybody_else];

/// What upstreams say of their answers, under a name for the path.
const SAID: [(&str, &[(&str, &str)]); 6] = [
    ("nothing", &[]),
    ("old", &[("Last-Modified", "Mon, 01 Jan 2001 00:00:00 GMT"), ("ETag", "\"1\"")]),
    ("max-age", &[("Cache-Control", "max-age=60")]),
    ("expires", &[("Expires", "Fri, 01 Jan 2100 00:00:00 GMT")]),
    ("public", &[("Cache-Control", "public, max-age=60"), ("Vary", "Accept")]),
    ("s-maxage", &[("Cache-Control", "max-age=1"), ("Cache-Control", "s-maxage=60")]),
];

/// The host whose requests leave by the library.
const LIBRARY: &str = "h2c.test";

fn said_at(path: &str) -> &'static [(&'static str, &'static str)] {
    SAID.iter().find(|(name, _)| path.split('/').nth(2) == Some(*name)).map_or(&[], |(_, said)| *said)
}

fn by_http_2(request: &Message) -> Message {
    let agent = request.header("x-agent-id").unwrap_or("nobody").to_owned();
    let answer = Message { status: 200, ..Message::default() }.body(agent.as_bytes());
    said_at(request.uri.path()).iter().fold(answer, |answer, (name, value)| answer.with(name, value))
}

/// A gateway whose upstreams answer with the agent that they are told of.
fn site(stage: &Stage) -> (Site, H2Upstream) {
    let h2 = H2Upstream::start(by_http_2);
    let urls = vec![format!("h2c://{}", h2.address)];
    let library = |upstream| Tenant::new("h2c", LIBRARY, upstream).public().set("upstreams", urls);
    (Site::of(stage).unlimited().also(library).agent(4).start(), h2)
}

/// A path at the host whose upstream says this.
fn path(site: &Site, access: &str, name: &str) -> String {
    let path = format!("/{access}/{name}/{}", unique());
    let agent = script(move |exchange| {
        exchange.read_body()?;
        let agent = exchange.seen.header("x-agent-id").unwrap_or("nobody").to_owned();
        exchange.write(&scripts::answer("200 OK", said_at(exchange.seen.path()), agent.as_bytes()))?;
        Ok(Then::Goes)
    });
    site.upstream.on(&path, agent);
    path
}

/// A running cache.
struct SharedCache {
    name: &'static str,
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl SharedCache {
    /// A cache in front of this; none if it is not installed.
    fn start(name: &'static str, server: SocketAddr) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let address = free_port(own_ip());
        let (program, arguments) = match name {
            "nginx" => ("nginx", nginx(folder.path(), address, server)),
            _ => ("varnishd", varnish(folder.path(), address, server)),
        };
        let found = std::process::Command::new(program).arg("-V").output().is_ok();
        if !found {
            skip(program);
            return None;
        }
        let process = Process::start(Path::new(program), &arguments, &folder.path().join("log"), "");
        until("the cache listens", SOON, || {
            assert_eq!(process.exit_code(), None, "{}", process.log());
            std::net::TcpStream::connect(address).ok()
        });
        Some(Self { name, address, _process: process, _folder: folder })
    }

    #[track_caller]
    fn ask(&self, request: &Request) -> Answer {
        request.ask(self.address)
    }
}

/// Caches whatever may be cached, and what says nothing of that for a minute.
fn nginx(folder: &Path, address: SocketAddr, server: SocketAddr) -> Vec<String> {
    let at = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};"))
        .join(" ");
    let text = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr; events {{}}
         http {{
           access_log off; {temporary}
           proxy_cache_path {at}/cache keys_zone=all:1m;
           server {{
             listen {address};
             location / {{
               proxy_pass http://{server};
               proxy_http_version 1.1;
               proxy_set_header Host $http_host;
               proxy_cache all;
               proxy_cache_valid 1m;
             }}
           }}
         }}"
    );
    std::fs::write(folder.join("nginx.conf"), text).unwrap();
    ["-p", &at.to_string(), "-c", &format!("{at}/nginx.conf"), "-e", "stderr"].map(str::to_owned).to_vec()
}

fn varnish(folder: &Path, address: SocketAddr, server: SocketAddr) -> Vec<String> {
    let (address, server, at) =
        (address.to_string(), server.to_string(), folder.join("varnish").display().to_string());
    let words =
        ["-F", "-j", "none", "-T", "none", "-a", &address, "-b", &server, "-n", &at, "-s", "malloc,8m"];
    words.map(str::to_owned).to_vec()
}

// threat: Shared caches
fn no_cache_in_front_gives_an_agents_answer_to_anybody_else(stage: &Stage) {
    let (site, h2) = site(stage);
    let other = stage.world().agent(4);
    let other_key = other.generate(&site.gateway.service);
    for name in ["nginx", "Varnish"] {
        let Some(cache) = SharedCache::start(name, site.gateway.address) else { continue };
        for (said, host) in SAID.into_iter().flat_map(|(said, _)| [(said, ACME), (said, LIBRARY)]) {
            let path = path(&site, "agents", said);
            let request = || Request::get(host, &path);
            let about = format!("{} {said} {host}", cache.name);
            is_unauthenticated(&cache.ask(&request()));
            for _ in 0..2 {
                for (agent, key) in [(site.agent(), site.key()), (&other, &*other_key)] {
                    let bearer = request().with("Authorization", &format!("Bearer {key}"));
                    let signature = request().with_all(&signed(&agent.draft()));
                    for request in [request().key(key), signature, bearer] {
                        let answer = cache.ask(&request);
                        assert_eq!((answer.status, answer.text()), (200, agent.text()), "{about}");
                    }
                }
                is_unauthenticated(&cache.ask(&request()));
            }
        }
        // It is a cache, and what is public is shared as the upstream says.
        for host in [ACME, LIBRARY] {
            let path = path(&site, "public", "max-age");
            for _ in 0..3 {
                assert_eq!(cache.ask(&Request::get(host, &path)).text(), "nobody");
            }
            let by_library = h2.seen().iter().filter(|seen| seen.uri.path() == path).count();
            assert_eq!(site.upstream.count_at(&path) + by_library, 1, "{} {host}", cache.name);
        }
    }
    for (host, (said, lines)) in [ACME, LIBRARY].into_iter().flat_map(|host| SAID.map(|said| (host, said))) {
        let answer = site.gateway.ask(&Request::get(host, &path(&site, "public", said)));
        for name in ["Cache-Control", "Vary"] {
            let all = answer.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
            let expected = lines.iter().filter(|(line, _)| *line == name);
            assert_eq!(all.count(), expected.count(), "{said} {host} {name}");
        }
    }
}
