//! Outcomes of many requests: clients that leave are no fault of an upstream, and a flood of one failure is not a flood of
//! lines.

use std::time::Duration;

use crate::rig::case::{Case, cases};
use crate::rig::frames::{SETTINGS, WINDOW_UPDATE, frame};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::{gateway::Gateway, refusals::is_upstream_error, tenants::Tenant, upstream::Upstream};
use crate::rig::{h2c::H2Upstream, messages::Signing};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::{metrics::Samples, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    clients_that_leave_do_not_take_an_upstream_out,
    a_client_that_leaves_breaks_no_row_of_failures_of_an_upstream_that_has_not_answered,
    an_upstream_of_http_2_that_stops_in_a_large_request_ends_it_and_is_to_blame,
    a_flood_of_failures_is_a_few_lines_counted_in_full_and_hides_no_other_tenant,
];

/// The tenant's requests, by outcome.
fn counts(gateway: &Gateway) -> [f64; 4] {
    let samples = Samples::parse(&gateway.service.metrics());
    ["forwarded", "refused", "failed", "abandoned"].map(|outcome| {
        let pieces = ["tenant=\"t\"", &format!("outcome=\"{outcome}\"")];
        samples.sum("tiergate_gateway_requests_total", &pieces)
    })
}

/// A request is counted when it is over, which may be a moment after its client has its answer.
fn until_counted(gateway: &Gateway, expected: [f64; 4]) {
    until("every request is counted", SOON, || {
        (counts(gateway) == expected).then_some(()).or_else(|| {
            assert!(counts(gateway).iter().sum::<f64>() <= expected.iter().sum(), "{:?}", counts(gateway));
            None
        })
    });
}

/// So many upstreams, neither checked nor tried elsewhere, that are forgiven no failure.
fn site(stage: &Stage, upstreams: usize) -> SiteBuilder<'_> {
    Site::of(stage).upstreams(upstreams).tenant(|tenant| {
        let tenant = tenant.set("connect_retries", 0).set("health.interval", "0s");
        tenant.set("health.eject_after", 1).set("health.eject_for", "1h")
    })
}

/// Begins an upload at one of these upstreams, and leaves in the middle of it.
pub(crate) fn leave_an_upload(gateway: &Gateway, upstreams: &[&Upstream]) {
    let path = public_path();
    let mut wire = gateway.connect();
    wire.send(format!("POST {path} HTTP/1.1\r\nHost: {ACME}\r\nContent-Length: 10\r\n\r\nhalf").as_bytes());
    until("the upload has reached an upstream", SOON, || {
        upstreams.iter().any(|upstream| upstream.count_at(&path) > 0).then_some(())
    });
}

fn clients_that_leave_do_not_take_an_upstream_out(stage: &Stage) {
    let site = site(stage, 2).start();
    let upstreams = site.upstreams();
    for round in 1..=6 {
        leave_an_upload(&site.gateway, &upstreams);
        until_counted(&site.gateway, [0.0, 0.0, 0.0, f64::from(round)]);
    }
    for _ in 0..20 {
        let path = format!("/public/counted-{}", unique());
        assert_eq!(site.gateway.ask(&Request::get(ACME, &path)).status, 200);
    }
    let served = |upstream: &Upstream| upstream.count(|seen| seen.target.contains("/public/counted"));
    let [one, other] = upstreams;
    assert_eq!([served(one), served(other)], [10, 10], "both are in");
}

fn a_client_that_leaves_breaks_no_row_of_failures_of_an_upstream_that_has_not_answered(stage: &Stage) {
    let upstream = H2Upstream::silent();
    let site = site(stage, 1)
        .h2c(&upstream)
        .tenant(|tenant| tenant.set("health.eject_after", 2).set("timeouts.read", "5s"));
    let site = site.start();
    let request = Request::get(ACME, &public_path());
    assert_eq!(site.gateway.ask(&request).status, 504);
    let mut wire = site.gateway.connect();
    wire.send(&request.bytes());
    until("it is under way", SOON, || {
        let samples = Samples::parse(&site.gateway.service.metrics());
        (samples.sum("tiergate_gateway_requests_in_flight", &[]) == 1.0).then_some(())
    });
    drop(wire);
    until_counted(&site.gateway, [0.0, 0.0, 1.0, 1.0]);
    assert_eq!(site.gateway.ask(&request).status, 504);
    site.gateway.service.await_log(&["takes no requests for a while"]);
}

// threat: A frozen upstream of HTTP/2 swallows requests
fn an_upstream_of_http_2_that_stops_in_a_large_request_ends_it_and_is_to_blame(stage: &Stage) {
    // It takes a MiB (RFC 9113, sections 6.5.2 and 6.9).
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0x10, 0, 0]);
    let takes_all = [settings, frame(WINDOW_UPDATE, 0, 0, &[0, 0x10, 0, 0])].concat();
    let holds = |tenant: Tenant| {
        let tenant = tenant.set("credentials", vec!["erc8128"]).set("digest", "before");
        tenant.set("max_body_bytes", 200_000).impatient()
    };
    let agent = stage.world().agent(4);
    for (is_held, upstream) in [(true, H2Upstream::that_first_says(takes_all)), (false, H2Upstream::silent())]
    {
        let site = site(stage, 1).h2c(&upstream).tenant(holds).start();
        let request = if is_held {
            let signing = Signing::get(&agent, stage.world().chain().contracts.chain_id, &agents_path());
            signing.post(&[7; 100_000]).request()
        } else {
            Request::new("POST", ACME, &public_path()).body(&[7; 200_000])
        };
        let (mut wire, watch) = (site.gateway.connect(), Stopwatch::start());
        let _ = wire.write(&request.bytes());
        assert_eq!(wire.rest(), b"");
        assert!((Duration::from_secs(1)..SOON).contains(&watch.elapsed()), "{:?}", watch.elapsed());
        until_counted(&site.gateway, [0.0, 0.0, 1.0, 0.0]);
    }
}

// threat: A tenant takes what is another's or shared
fn a_flood_of_failures_is_a_few_lines_counted_in_full_and_hides_no_other_tenant(stage: &Stage) {
    let other = |upstream| Tenant::new("other", "other.test", upstream).public();
    let site = site(stage, 1).also(other).each(|tenant| tenant.set("health.eject_after", 0)).start();
    site.upstream.greet(Some(drop));
    let (failures, watch) = (300_u16, Stopwatch::start());
    for _ in 0..failures {
        is_upstream_error(&site.gateway.ask(&Request::get(ACME, &public_path())));
    }
    // Within the second after a line of the first one's.
    is_upstream_error(&site.gateway.ask(&Request::get("other.test", &public_path())));
    until_counted(&site.gateway, [0.0, 0.0, f64::from(failures), 0.0]);
    let of = |tenant: &str| {
        let line = format!("a request of tenant {tenant} failed at");
        site.gateway.service.log().lines().filter(|text| text.contains(&line)).count()
    };
    until("the other has a line", SOON, || (of("other") == 1).then_some(()));
    // One in each second that it took, of which there must be few for that to say something.
    let seconds = usize::try_from(watch.elapsed().as_secs()).unwrap();
    assert!(seconds + 2 < usize::from(failures), "{failures} failures took {seconds} s");
    assert!((1..=seconds + 2).contains(&of("t")), "{} lines of {failures} failures", of("t"));
}
