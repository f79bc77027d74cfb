//! The way on for those who are refused: what a 401 says of it, the documents at a tenant's hosts, and what they never say.

use http::Method;
use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::scripts::{self, script};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, TRUSTED, agents_path, unique};
use crate::rig::{tenants::Tenant, upstream::Then};
use crate::support::agents::{LIMITS, unknown_key};
use crate::support::client::Answer;
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_401_leads_to_the_metadata_of_the_resource_and_to_the_rules,
    an_address_names_no_host_that_the_configuration_does_not_name,
    the_scheme_is_that_of_the_listener_or_of_a_trusted_proxy_that_sets_it,
    the_rules_at_the_gateway_are_the_tenants,
    documents_are_kept_by_no_shared_cache_and_are_read_by_pages_of_the_tenant,
    routes_for_everybody_or_nobody_come_before_the_documents,
    a_route_that_takes_the_request_comes_before_the_answer_that_there_is_no_login,
    without_discovery_nothing_changes,
    an_upstreams_own_401_passes_untouched,
];

const RULES: &str = "/.well-known/tiergate";
const METADATA: &str = "/.well-known/oauth-protected-resource";
const HELP: &str = "</.well-known/tiergate>; rel=\"help\"";

/// The same request by the relay, over HTTP/2, and by the library.
struct Ways {
    relay: Site,
    library: Site,
}

impl Ways {
    fn start(stage: &Stage, change: impl Fn(SiteBuilder<'_>) -> SiteBuilder<'_>) -> Self {
        let relay = change(Site::of(stage)).start();
        let library = change(Site::of(stage)).way("library").start();
        Self { relay, library }
    }

    fn ask(&self, method: &str, host: &str, path: &str, headers: &[(&str, &str)]) -> [Answer; 3] {
        let with =
            |request: Request| headers.iter().fold(request, |all, (name, value)| all.with(name, value));
        let request = with(Request::new(method, host, path));
        let message = Message::request(method.parse().unwrap(), host, path);
        let message = headers.iter().fold(message, |all, (name, value)| all.with(name, value));
        [
            self.relay.gateway.ask(&request),
            answer_of(h2c::ask(self.relay.gateway.address, &message).unwrap()),
            self.library.gateway.ask(&request),
        ]
    }
}

fn answer_of(message: Message) -> Answer {
    let headers = message.headers.iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    Answer { status: message.status, headers: headers.collect(), body: message.body.clone() }
}

fn challenge(url: &str) -> String {
    format!("Bearer realm=\"agents\", resource_metadata=\"{url}\"")
}

const BARE: &str = "Bearer realm=\"agents\"";

fn a_401_leads_to_the_metadata_of_the_resource_and_to_the_rules(stage: &Stage) {
    let ways = Ways::start(stage, |site| site);
    let unknown = unknown_key(60);
    for (host, path, metadata, resource) in [
        (ACME, "/mcp", format!("http://{ACME}{METADATA}/mcp"), format!("http://{ACME}/mcp")),
        (ACME, "/", format!("http://{ACME}{METADATA}"), format!("http://{ACME}")),
        ("ACME.test.:80", "/x?secret=1", format!("http://{ACME}{METADATA}/x"), format!("http://{ACME}/x")),
        ("acme.test:8443", "/x", format!("http://{ACME}:8443{METADATA}/x"), format!("http://{ACME}:8443/x")),
    ] {
        for (method, headers) in
            [("GET", vec![]), ("DELETE", vec![("X-API-Key", &*unknown), ("X-API-Key", &*unknown)])]
        {
            for answer in ways.ask(method, host, path, &headers) {
                assert_eq!(answer.status, 401, "{method} {path}");
                assert_eq!(
                    answer.header("www-authenticate"),
                    Some(&*challenge(&metadata)),
                    "{method} {path}"
                );
                assert_eq!(answer.header("link"), Some(HELP));
                assert_eq!(answer.header("cache-control"), Some("no-store"));
            }
        }
        // Where the 401 leads.
        let path = &metadata[metadata.find(METADATA).unwrap()..];
        for answer in ways.ask("GET", host, path, &[]) {
            assert_eq!(answer.success(200)["resource"], json!(resource));
        }
    }
    let call = Message::request(Method::POST, ACME, "/mcp").with("content-type", "application/grpc");
    let answer = h2c::ask(ways.relay.gateway.address, &call).unwrap();
    let expected = challenge(&format!("http://{ACME}{METADATA}/mcp"));
    let headers = ["grpc-status", "www-authenticate", "link"].map(|name| answer.header(name));
    assert_eq!(headers, [Some("16"), Some(&*expected), Some(HELP)], "clients of gRPC are shown it too");
    for answer in ways.ask("GET", ACME, RULES, &[]) {
        let tiergate = answer.success(200);
        assert_eq!(tiergate["gatewayUrl"], json!(format!("http://{ACME}")));
        for answer in ways.ask("GET", ACME, METADATA, &[]) {
            let metadata = answer.success(200);
            assert_eq!(metadata["tiergate"], tiergate, "both say the same");
            assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
            assert_eq!(metadata.get("authorization_servers"), None, "no client begins OAuth for a key");
        }
    }
}

fn an_address_names_no_host_that_the_configuration_does_not_name(stage: &Stage) {
    let hosts = |tenant: Tenant| tenant.set("hosts", vec![ACME, "*.wild.test", "*"]);
    let ways = Ways::start(stage, |site| site.tenant(hosts));
    let forged = [
        ("X-Forwarded-Host", "evil.test"),
        ("Forwarded", "host=evil.test;proto=https"),
        ("X-Original-Host", "evil.test"),
        ("X-Forwarded-Port", "6666"),
    ];
    for host in ["evil.test", "a.wild.test", "x.acme.test", "127.0.0.1", "[::1]:9"] {
        for answer in ways.ask("GET", host, "/mcp", &forged) {
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some(BARE)), "{host}");
            assert_eq!(answer.header("link"), Some(HELP), "a relative link needs no host");
        }
        for answer in ways.ask("GET", host, RULES, &forged) {
            assert_eq!(answer.success(200)["gatewayUrl"], Value::Null, "{host}");
        }
        for answer in ways.ask("GET", host, METADATA, &forged) {
            assert_eq!(answer.status, 401, "a resource without a name has no metadata");
        }
    }
    for answer in ways.ask("GET", ACME, "/mcp", &forged) {
        let expected = challenge(&format!("http://{ACME}{METADATA}/mcp"));
        assert_eq!(answer.header("www-authenticate"), Some(&*expected));
    }
}

fn the_scheme_is_that_of_the_listener_or_of_a_trusted_proxy_that_sets_it(stage: &Stage) {
    let challenged = |answer: &Answer| {
        assert_eq!(answer.status, 401);
        answer.header("www-authenticate").unwrap().to_owned()
    };
    let https = challenge(&format!("https://{ACME}{METADATA}/x"));
    let forged = Request::get(ACME, "/x").with("X-Forwarded-Proto", "https");
    let proxied = Site::of(stage).set("listen.trusted_proxies", vec![TRUSTED]);
    let proxied = proxied.set("listen.trusted_headers", vec!["X-Forwarded-For", "X-Forwarded-Proto"]).start();
    let trusted = TRUSTED.split('/').next().unwrap().parse().unwrap();
    let from = |request: &Request| request.ask_on(&mut Wire::open_from(trusted, proxied.gateway.address));
    assert_eq!(challenged(&from(&forged)), https);
    assert_eq!(challenged(&from(&Request::get(ACME, "/x"))), BARE, "the proxy may have ended TLS");
    let http = challenge(&format!("http://{ACME}{METADATA}/x"));
    assert_eq!(challenged(&proxied.gateway.ask(&forged)), http, "a stranger's word");

    let secure = stage.secure().tls();
    let request = Request::get(ACME, "/x").with("X-Forwarded-Proto", "http");
    assert_eq!(challenged(&request.ask(secure.http_1.address)), https);
    let message = Message::request(Method::GET, ACME, "/x");
    assert_eq!(challenged(&answer_of(h2c::ask(secure.http_2.address, &message).unwrap())), https);
}

fn the_rules_at_the_gateway_are_the_tenants(stage: &Stage) {
    let token = "0x5FbDB2315678afecb367f032d93F642f64180aa3";
    let site = Site::of(stage)
        .set("keys.public_url", "https://keys.test/")
        .set("console.enabled", true)
        .set("tiers.token", token)
        .also(|upstream| {
            Tenant::new("own", "own.test", upstream)
                .set("requests_per_minute", vec![1, 2, 3, 4])
                .set("min_tier", 2)
                .set("credentials", vec!["signature"])
        })
        .start();
    let usual = site.gateway.ask(&Request::get(ACME, RULES)).success(200);
    let contracts = stage.world().chain().contracts;
    assert_eq!(usual["contracts"]["identity"], json!(contracts.identity.to_checksum(None)));
    assert_eq!(usual["contracts"]["stakeVault"], json!(contracts.stake_vault.to_checksum(None)));
    assert_eq!(usual["token"], json!(token));
    assert_eq!(usual["keysUrl"], json!("https://keys.test"));
    assert_eq!(usual["consoleUrl"], json!("https://keys.test/console"));
    assert_eq!(usual["minTier"], json!(1));
    assert!(usual["chainId"].is_u64());
    let limits = |document: &Value| {
        let tiers = document["tiers"].as_array().unwrap();
        tiers.iter().skip(1).map(|tier| tier["requestsPerMinute"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(limits(&usual), LIMITS.map(u64::from));
    let key = json!({ "headers": ["Authorization", "X-API-Key"], "prefix": "svc_live_v1_" });
    assert_eq!(usual["credentials"]["apiKey"], key);

    let own = site.gateway.ask(&Request::get("own.test", METADATA)).success(200);
    assert_eq!(own["bearer_methods_supported"], json!([]), "no key is taken here");
    assert_eq!(own["resource_documentation"], json!("https://keys.test/console"));
    let own = &own["tiergate"];
    assert_eq!((limits(own), &own["minTier"]), (vec![1, 2, 3, 4], &json!(2)));
    assert_eq!(own["credentials"]["apiKey"], Value::Null);
    assert_eq!(own["credentials"]["signature"]["headers"].as_array().unwrap().len(), 4);

    // Beside what is the tenant's, the API says the same.
    let mut api = site.gateway.service.get(RULES).success(200);
    let mut gateway = usual;
    assert_eq!(api["gatewayUrl"], Value::Null);
    for document in [&mut api, &mut gateway] {
        for field in ["gatewayUrl", "minTier", "credentials"] {
            document.as_object_mut().unwrap().remove(field);
        }
    }
    assert_eq!(api, gateway);
    assert_eq!(site.upstream.seen().len(), 0);
}

fn documents_are_kept_by_no_shared_cache_and_are_read_by_pages_of_the_tenant(stage: &Stage) {
    let origin = "https://app.test";
    let ways = Ways::start(stage, |site| site.tenant(|tenant| tenant.set("cors.origins", vec![origin])));
    for path in [RULES, METADATA] {
        let [whole, head] = ["GET", "HEAD"].map(|method| ways.ask(method, ACME, path, &[("Origin", origin)]));
        for (whole, head) in whole.iter().zip(&head) {
            assert_eq!((whole.status, head.status), (200, 200));
            for name in ["content-type", "content-length", "cache-control", "access-control-allow-origin"] {
                assert_eq!(whole.header(name), head.header(name), "{name}");
            }
            assert_eq!(head.body, b"");
            assert_eq!(whole.header("content-type"), Some("application/json"));
            assert_eq!(whole.header("cache-control"), Some("private, max-age=300"));
            assert_eq!(whole.header("access-control-allow-origin"), Some(origin));
            assert_eq!(whole.header("vary"), Some("Origin"));
        }
    }
    for answer in ways.ask("GET", ACME, "/x", &[("Origin", origin)]) {
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("Link") && exposed.contains("WWW-Authenticate"), "{exposed}");
    }
}

fn routes_for_everybody_or_nobody_come_before_the_documents(stage: &Stage) {
    let public = |tenant: Tenant| tenant.route("/.well-known/*", "access = \"public\"");
    let denied = |upstream| {
        Tenant::new("denied", "denied.test", upstream).route("/.well-known/*", "access = \"deny\"")
    };
    let ways = Ways::start(stage, |site| site.tenant(public).also(denied));
    for path in [RULES, METADATA] {
        for answer in ways.ask("GET", ACME, path, &[]) {
            assert_eq!(answer.json()["target"], json!(path), "the upstream answers");
        }
        for answer in ways.ask("GET", "denied.test", path, &[]) {
            answer.error(403, "FORBIDDEN");
        }
    }
    for host in [ACME, "denied.test"] {
        for answer in ways.ask("GET", host, "/x", &[]) {
            let headers = (answer.header("www-authenticate"), answer.header("link"));
            assert_eq!(headers, (Some(BARE), None), "what the upstream says there is its own affair");
        }
    }
}

const LOGINS: [&str; 4] = [
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
];

fn a_route_that_takes_the_request_comes_before_the_answer_that_there_is_no_login(stage: &Stage) {
    let routes = [
        ("public", "access = \"public\"", 200),
        ("deny", "access = \"deny\"", 403),
        ("tier", "min_tier = 2", 401),
    ];
    let ways = Ways::start(stage, |site| {
        routes.iter().fold(site, |site, (id, rest, _)| {
            site.also(|upstream| Tenant::new(id, &format!("{id}.test"), upstream).route("/", rest))
        })
    });
    for (id, _, wanted) in routes {
        for (method, path) in [("GET", LOGINS[0]), ("GET", LOGINS[2]), ("POST", "/register")] {
            for answer in ways.ask(method, &format!("{id}.test"), path, &[]) {
                assert_eq!(answer.status, wanted, "{id}: {method} {path}");
            }
        }
    }
}

fn without_discovery_nothing_changes(stage: &Stage) {
    let silent = |tenant: Tenant| tenant.set("discovery", false);
    let ways = Ways::start(stage, |site| site.agent(4).tenant(silent));
    let all = [RULES, METADATA, "/x"].into_iter().chain(LOGINS).map(|path| ("GET", path));
    for (method, path) in all.chain([("POST", "/register")]) {
        for answer in ways.ask(method, ACME, path, &[]) {
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some(BARE)), "{path}");
            assert_eq!(answer.header("link"), None);
        }
    }
    let request = Request::get(ACME, RULES).key(ways.relay.key());
    assert_eq!(ways.relay.gateway.ask(&request).json()["target"], json!(RULES));
}

fn an_upstreams_own_401_passes_untouched(stage: &Stage) {
    let own = [("WWW-Authenticate", "Custom x"), ("Link", "</own>; rel=\"help\"")];
    let ways = Ways::start(stage, |site| site.agent(4));
    for site in [&ways.relay, &ways.library] {
        for path in [format!("/public/{}", unique()), agents_path()] {
            let refuses = script(move |exchange| {
                exchange.read_body()?;
                exchange.write(&scripts::answer("401 Unauthorized", &own, b"mine"))?;
                Ok(Then::Goes)
            });
            site.upstream.on(&path, refuses);
            let answer = site.gateway.ask(&Request::get(ACME, &path).key(site.key()));
            assert_eq!((answer.status, answer.text().as_str()), (401, "mine"));
            for (name, value) in own {
                let all = answer.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
                assert_eq!(all.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), [value]);
            }
        }
    }
}
