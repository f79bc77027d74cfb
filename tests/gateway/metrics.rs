//! `GET /metrics` after traffic: OpenTelemetry's histogram, the gateway's own time, upstreams, bytes and certificates; and
//! that strangers choose no label.

use std::process::{Command, Stdio};
use std::{collections::BTreeSet, io::Write, path::Path, sync::Arc};

use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::frames::{GOAWAY, REFUSED, RST_STREAM, frame};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::scripts::{self, Cue, script};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::{Script, Then};
use crate::rig::{listeners::ListenerTls, site::Site, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};
use crate::support::{metrics::Samples, skip::skip};
use crate::upgrades::{open_socket, talks, websocket_echo};

pub(crate) const CASES: &[Case] = cases![
    requests_of_either_way_are_measured_by_route_method_and_status,
    the_time_to_the_final_answer_is_the_upstreams_and_not_the_gateways_own,
    the_bytes_of_a_websocket_are_counted_both_ways,
    requests_under_way_and_connections_are_shown_while_they_last,
    retries_ejections_and_upstreams_are_shown,
    the_expiry_of_each_certificate_is_shown,
    strangers_choose_no_label,
    promtool_is_content_after_traffic,
];

const HTTP_COUNT: &str = "http_server_request_duration_seconds_count";

fn http_series(method: &str, status: &str, route: &str, tenant: &str) -> String {
    format!(
        "{HTTP_COUNT}{{http_request_method=\"{method}\",http_response_status_code=\"{status}\",\
         http_route=\"{route}\",tenant=\"{tenant}\"}}"
    )
}

/// A request is counted when it is over, which its client may know before.
fn until_shown(site: &Site, series: &str, value: f64) {
    until(&format!("{series} is {value}"), SOON, || {
        let text = site.gateway.service.metrics();
        text.lines().any(|line| line == format!("{series} {value}")).then_some(())
    });
}

fn requests_of_either_way_are_measured_by_route_method_and_status(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = Site::of(stage).way(way).start();
        let post = Request::new("POST", ACME, &public_path()).body(b"12345");
        assert_eq!(site.gateway.ask(&post).status, 200);
        let missing = public_path();
        site.upstream.on(&missing, scripts::bytes(scripts::answer("404 No", &[], b"123"), Then::Goes));
        assert_eq!(site.gateway.ask(&Request::get(ACME, &missing)).status, 404);
        assert_eq!(site.gateway.ask(&Request::get(ACME, "/elsewhere")).status, 401);
        assert_eq!(site.gateway.ask(&Request::get("stranger.test", "/")).status, 404);
        for (method, status, route, tenant) in [
            ("POST", "200", "/public/*", "t"),
            ("GET", "404", "/public/*", "t"),
            ("GET", "401", "", "t"),
            ("GET", "404", "", "(none)"),
        ] {
            until_shown(&site, &http_series(method, status, route, tenant), 1.0);
        }
        let message = Message::request(Method::GET, ACME, &public_path());
        assert_eq!(h2c::ask(site.gateway.address, &message).unwrap().status, 200);
        until_shown(&site, &http_series("GET", "200", "/public/*", "t"), 1.0);
        // Of the three that an upstream answered.
        until_shown(&site, "tiergate_gateway_overhead_seconds_count", 3.0);
        until_shown(&site, "tiergate_upstream_first_byte_seconds_count{tenant=\"t\"}", 3.0);
        let received = "tiergate_gateway_body_bytes_total{direction=\"received\",tenant=\"t\"}";
        until_shown(&site, received, 5.0);
        let sent = "tiergate_gateway_body_bytes_total{direction=\"sent\",tenant=\"t\"}";
        assert!(site.gateway.service.samples().get(sent) > 3.0, "{way}");
        let buckets = site.gateway.service.metrics();
        for bucket in ["0.005", "0.075", "0.75", "7.5", "10"] {
            assert!(buckets.contains(&format!("le=\"{bucket}\"")), "{bucket}");
        }
    }
}

fn the_time_to_the_final_answer_is_the_upstreams_and_not_the_gateways_own(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = Site::of(stage).way(way).start();
        assert_eq!(site.status(), 200);
        until_shown(&site, "tiergate_gateway_overhead_seconds_count", 1.0);
        let sums = || {
            let samples = site.gateway.service.samples();
            let sum = |name: &str| samples.sum(&format!("{name}_sum"), &[]);
            [sum("tiergate_gateway_overhead_seconds"), sum("tiergate_upstream_first_byte_seconds")]
        };
        let (path, cue) = (public_path(), Cue::new());
        site.upstream.on(&path, held_after(b"HTTP/1.1 103 Early Hints\r\n\r\n", &cue));
        let before = sums();
        let mut wire = site.gateway.connect();
        wire.send(&Request::get(ACME, &path).bytes());
        until("the upstream has it", SOON, || (site.upstream.count_at(&path) == 1).then_some(()));
        let since = Stopwatch::start();
        // Long, beside what the gateway needs.
        until("it has held it for a while", SOON, || (since.elapsed().as_millis() > 1_500).then_some(()));
        cue.give();
        assert_eq!(wire.answer().status, 200);
        until_shown(&site, "tiergate_gateway_overhead_seconds_count", 2.0);
        let after = sums();
        let [own, upstreams] = [0, 1].map(|at| after[at] - before[at]);
        assert!(upstreams >= 1.5 && own < upstreams, "{way}: {own} s here, {upstreams} s there");
    }
}

/// Answers when it is told to.
fn held(cue: &Arc<Cue>) -> Script {
    held_after(b"", cue)
}

/// Sends an interim answer at once, and the final one when it is told to.
fn held_after(interim: &'static [u8], cue: &Arc<Cue>) -> Script {
    let cue = Arc::clone(cue);
    script(move |exchange| {
        exchange.write(interim)?;
        cue.wait()?;
        exchange.write(&scripts::answer("200 OK", &[], b"ok"))?;
        Ok(Then::Goes)
    })
}

fn the_bytes_of_a_websocket_are_counted_both_ways(stage: &Stage) {
    let open = |tenant: Tenant| tenant.route("/socket", "access = \"public\"\nupgrades = true");
    let site = Site::of(stage).tenant(open).start();
    site.upstream.on("/socket", websocket_echo());
    let mut wire = site.gateway.connect();
    talks(&mut open_socket(&mut wire, &Request::get(ACME, "/socket")));
    drop(wire);
    until_shown(&site, &http_series("GET", "101", "/socket", "t"), 1.0);
    let samples = site.gateway.service.samples();
    for direction in ["received", "sent"] {
        let bytes = samples.sum("tiergate_gateway_body_bytes_total", &[direction]);
        assert!((800_000.0..900_000.0).contains(&bytes), "{direction}: {bytes}");
    }
}

fn requests_under_way_and_connections_are_shown_while_they_last(stage: &Stage) {
    let site = Site::start(stage);
    let (path, cue) = (public_path(), Cue::new());
    site.upstream.on(&path, held(&cue));
    let mut held: Vec<Wire> = (0..3).map(|_| site.gateway.connect()).collect();
    held.iter_mut().take(2).for_each(|wire| wire.send(&Request::get(ACME, &path).bytes()));
    until_shown(&site, "tiergate_gateway_requests_in_flight{tenant=\"t\"}", 2.0);
    until_shown(&site, "tiergate_connections{listener=\"gateway\"}", 3.0);
    assert!(site.gateway.service.samples().get("tiergate_connections{listener=\"admin\"}") >= 1.0);
    cue.give();
    assert!(held.iter_mut().take(2).all(|wire| wire.answer().status == 200));
    until_shown(&site, "tiergate_gateway_requests_in_flight{tenant=\"t\"}", 0.0);
    drop(held);
    until_shown(&site, "tiergate_connections{listener=\"gateway\"}", 0.0);
    until_shown(&site, "tiergate_api_requests_in_flight", 0.0);
}

fn retries_ejections_and_upstreams_are_shown(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = Site::of(stage);
        let scheme = if way == "library" { "h2c" } else { "http" };
        let gone = format!("{scheme}://{}", free_port(own_ip()));
        let all = vec![gone, site.upstream().address.to_string()];
        let site = site.tenant(|tenant| {
            let tenant = tenant.set("upstreams", all).set("connect_retries", 1).set("health.interval", "0s");
            tenant.set("health.eject_after", 1).set("health.eject_for", "1h")
        });
        let site = site.start();
        let healthy = "tiergate_upstreams_healthy{tenant=\"t\"}";
        until_shown(&site, healthy, 2.0);
        (0..4).for_each(|_| assert_eq!(site.status(), 200));
        until_shown(&site, healthy, 1.0);
        for (series, value) in [
            ("tiergate_upstreams{tenant=\"t\"}", 2.0),
            ("tiergate_upstream_ejections_total{tenant=\"t\"}", 1.0),
            ("tiergate_upstream_retries_total{reason=\"unreachable\",tenant=\"t\"}", 1.0),
        ] {
            assert_eq!(site.gateway.service.samples().get(series), value, "{way}: {series}");
        }
    }
    let refused = [frame(RST_STREAM, 0, 1, &REFUSED.to_be_bytes()), frame(GOAWAY, 0, 0, &[0; 8])].concat();
    let upstream = H2Upstream::that_first_says(refused);
    let site = Site::of(stage).h2c(&upstream).tenant(|tenant| tenant.set("connect_retries", 1)).start();
    assert_eq!(site.status(), 200);
    until_shown(&site, "tiergate_upstream_retries_total{reason=\"unprocessed\",tenant=\"t\"}", 1.0);
}

fn the_expiry_of_each_certificate_is_shown(stage: &Stage) {
    /// The first days of 2100 and 2040 in Unix seconds.
    const YEARS: [f64; 2] = [4_102_444_800.0, 2_208_988_800.0];
    let tls = ListenerTls::new();
    let [issued, client] = [2040, 2100].map(|year| tls.authority.issue_within("a.test", 2020, year));
    let [cert, key] = tls.files.put_pair("a", &issued);
    let [client_cert, client_key] = tls.files.put_pair("client", &client);
    let own = |tenant: Tenant| {
        let tenant = tenant.set("tls.cert", cert).set("tls.key", key).set("hosts", vec!["a.test"]);
        tenant.set("upstream_tls.cert", client_cert).set("upstream_tls.key", client_key)
    };
    let plain = |upstream| Tenant::new("plain", "plain.test", upstream);
    let site = Site::of(stage).tenant(own).also(plain).tls(tls).start();
    let expiry = |kind: &str, tenant: &str| {
        format!("tiergate_certificate_expiry_timestamp_seconds{{kind=\"{kind}\",tenant=\"{tenant}\"}}")
    };
    let samples = site.gateway.service.samples();
    let shown = [expiry("listener", "(none)"), expiry("listener", "t"), expiry("upstream", "t")];
    assert_eq!(shown.each_ref().map(|series| samples.get(series)), [YEARS[0], YEARS[1], YEARS[0]]);
    let all = samples.series().filter(|series| series.contains("certificate_expiry"));
    assert_eq!(all.count(), 3, "a tenant without a certificate has none");
    let secure = site.tls();
    let renewed = secure.authority.issue("a.test");
    secure.files.put_pair("a", &renewed);
    secure.until_shown("a.test", &renewed);
    until("its time is shown", SOON, || {
        (site.gateway.service.samples().get(&shown[1]) == YEARS[0]).then_some(())
    });
}

/// The labels of every series that is shown, with their values.
fn labels(samples: &Samples) -> BTreeSet<(String, String)> {
    let labels = |series: &str| -> Vec<(String, String)> {
        let Some((_, labels)) = series.trim_end_matches('}').split_once('{') else { return Vec::new() };
        let pairs = labels.split("\",").map(|pair| pair.split_once("=\"").unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned())).collect()
    };
    samples.series().flat_map(labels).collect()
}

// threat: Credentials upstream, in logs, metrics or traces
fn strangers_choose_no_label(stage: &Stage) {
    let site = Site::of(stage).agent(4).unlimited().start();
    let ask = |request: Request| {
        // From an address that nothing else has.
        let mut wire = Wire::open_from(own_ip(), site.gateway.address);
        let from = wire.own_address().ip().to_string();
        let forwarded = request.with("X-Forwarded-For", "203.0.113.77").with("X-Request-Id", "strange-id");
        wire.send(&forwarded.bytes());
        // Its connection shows more than its head.
        let _ = wire.head();
        from
    };
    let mut from = BTreeSet::new();
    // Those of the configuration come first.
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"] {
        from.insert(ask(Request::new(method, ACME, "/public/strange")));
    }
    for method in ["STRANGE", "get", "GETSTRANGE", "!#$%&'*+.^_`|~", "STRANGE\"}", "\u{e9}"] {
        for (host, path) in [
            (ACME, "/public/strange"),
            (ACME, "/strange/314159265"),
            (ACME, "/public/%2e%2e/strange\"}"),
            ("strange.test", "/strange"),
            ("strange\"}\n.test", "/"),
            ("203.0.113.77", "/"),
        ] {
            from.insert(ask(Request::new(method, host, path).key(site.key())));
        }
    }
    let strange = Method::from_bytes(b"STRANGE").unwrap();
    for host in [ACME, "strange.test"] {
        let _ = h2c::ask(site.gateway.address, &Message::request(strange.clone(), host, "/strange"));
    }
    let odd = public_path();
    for (at, status) in ["299 Strange", "599 Strange", "999 Strange"].into_iter().enumerate() {
        let path = format!("{odd}/{at}");
        site.upstream.on(&path, scripts::bytes(scripts::answer(status, &[], b""), Then::Goes));
        ask(Request::get(ACME, &path));
    }
    for (method, path) in
        [("STRANGE", "/verify"), ("POST", "/strange/314159265"), ("GET", "/keys/status?x=strange")]
    {
        let _ = site.gateway.service.request(method, path, &[], None);
    }
    // By then those before it are counted.
    assert_eq!(site.gateway.ask(&Request::new("PATCH", ACME, &public_path())).status, 200);
    until_shown(&site, &http_series("PATCH", "200", "/public/*", "t"), 2.0);
    let counted = http_series("_OTHER", "404", "", "(none)");
    until("all are counted", SOON, || {
        (site.gateway.service.samples().sum(HTTP_COUNT, &["_OTHER", "(none)"]) > 0.0).then_some(())
    });
    let samples = site.gateway.service.samples();
    assert!(samples.series().any(|series| series == counted), "{counted}");
    let known = |name: &str| -> Option<Vec<String>> {
        let words = |words: &str| Some(words.split(' ').map(str::to_owned).collect());
        match name {
            "tenant" => Some(["", "(none)", "t"].map(str::to_owned).to_vec()),
            "http_request_method" => words("GET HEAD POST PUT PATCH DELETE OPTIONS CONNECT TRACE _OTHER"),
            "http_response_status_code" => {
                let used = "200 201 400 401 403 404 405 413 417 429 431 500 502 503 504 508 4xx 5xx _OTHER";
                let mut used: Vec<String> = words(used)?;
                used.push(String::new());
                Some(used)
            }
            "http_route" => {
                let api = "/livez /readyz /verify /verify/signature /profile /keys/generate /keys/rotate /keys /keys/status";
                let mut all: Vec<String> = words(api)?;
                all.extend(
                    ["/console", "/openapi.json", "/docs", "/.well-known/tiergate", "", "/public/*"]
                        .map(str::to_owned),
                );
                Some(all)
            }
            _ => None,
        }
    };
    let all = labels(&samples);
    assert!(all.len() > 100, "{all:?}");
    for (name, value) in &all {
        assert!(known(name).is_none_or(|known| known.contains(value)), "{name}: {value}");
        let words = ["strange", "203.0.113.77", "314159265", &site.key()[12..28]];
        for word in words.into_iter().chain(from.iter().map(String::as_str)) {
            // The nodes are the operator's.
            let is_node = name == "endpoint" && value.starts_with("http");
            assert!(is_node || !value.to_lowercase().contains(word), "{name}: {value}");
        }
    }
}

fn promtool_is_content_after_traffic(stage: &Stage) {
    let site = Site::of(stage).agent(4).tls(ListenerTls::new()).upstreams(2).start();
    assert_eq!(site.gateway.ask(&site.by_key()).status, 200);
    assert_eq!(site.status(), 200);
    let text = site.gateway.service.metrics();
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/servers/promtool/promtool");
    let program = if installed.exists() { installed } else { "promtool".into() };
    let mut command = Command::new(program);
    let piped = command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    match piped.stdout(Stdio::piped()).spawn() {
        Ok(mut promtool) => {
            promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            let output = promtool.wait_with_output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
            assert_eq!(String::from_utf8_lossy(&said), "");
        }
        Err(_) => skip("promtool"),
    }
}
