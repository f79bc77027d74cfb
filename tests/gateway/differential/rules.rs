//! All differences between the relay and the library that are allowed. `docs/gateway.md` has those that users meet.

use crate::differential::plan::{Plan, Reads};
use crate::differential::views::{Got, View};

/// One difference.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// Takes the difference away from both views.
    pub(crate) levels: fn(&Plan, &mut View, &mut View),
    /// Whether each run of the usual length shows it.
    pub(crate) is_certain: bool,
}

const fn rule(name: &'static str, levels: fn(&Plan, &mut View, &mut View)) -> Rule {
    Rule { name, levels, is_certain: true }
}

pub(crate) const RULES: &[Rule] = &[
    rule("each gateway has ids, agents and a clock of its own", own),
    rule("the library says keep-alive where HTTP/1.1 goes on anyway", keep_alive),
    rule("the library passes the version HTTP/1.0 on to clients, and closes then", version),
    rule("the library frames a body where an answer has none", no_framing),
    rule("the library drops all trailers of requests", request_trailers),
    rule("the library drops all trailers of answers", answer_trailers),
    rule("the library passes interim answers on to HTTP/1.0", interims),
    rule("the library reads the first line of Connection alone", first_connection),
    rule("the library closes behind an answer to Expect: 100-continue", expects),
    rule("the library forwards some answers that may be read in two ways, and the relay none", garbage),
    Rule {
        name: "the relay sends a bodyless request again where a used connection was closed without a word",
        levels: repeated,
        is_certain: false,
    },
    Rule {
        name: "how much of an answer arrives before it breaks off is a matter of timing",
        levels: cut_off,
        is_certain: false,
    },
    rule("the relay says 400 to a body that can't be read, where the library may just close", broken),
];

/// Both upstreams' and both clients' messages.
fn each(relay: &mut View, library: &mut View, change: impl Fn(&mut Got)) {
    for view in [relay, library] {
        view.upstream.iter_mut().chain(&mut view.client).for_each(&change);
    }
}

fn own(_: &Plan, relay: &mut View, library: &mut View) {
    each(relay, library, |got| {
        got.without(&["x-agent-id", "x-ratelimit-remaining", "ratelimit", "x-request-id", "date"]);
        let text = String::from_utf8_lossy(&got.body).into_owned();
        if let Some((before, rest)) = text.split_once("\"timestamp\":") {
            let behind = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            got.body = format!("{before}{behind}").into_bytes();
        }
    });
}

fn keep_alive(_: &Plan, _: &mut View, library: &mut View) {
    if let Some(client) = &mut library.client {
        client.headers.retain(|(name, value)| name != "connection" || value != "keep-alive");
    }
}

fn version(_: &Plan, relay: &mut View, library: &mut View) {
    let Some(client) = library.client.as_mut().filter(|client| client.line.starts_with("HTTP/1.0")) else {
        return;
    };
    client.line.replace_range(..8, "HTTP/1.1");
    (relay.next, library.next) = (None, None);
}

fn no_framing(plan: &Plan, _: &mut View, library: &mut View) {
    let Some(client) = &mut library.client else { return };
    let status = &client.line[9..12];
    if plan.method == "HEAD" || ["204", "304"].contains(&status) {
        let is_204 = status == "204";
        client.without(&["transfer-encoding"]);
        client.without(if is_204 { &["content-length"] } else { &[] });
    }
}

fn request_trailers(_: &Plan, relay: &mut View, library: &mut View) {
    if let (Some(relay), Some(library)) = (&mut relay.upstream, &library.upstream)
        && library.trailers.is_empty()
    {
        relay.trailers.retain(|(name, _)| !["x-sum", "x-ratelimit-limit"].contains(&name.as_str()));
    }
}

fn answer_trailers(_: &Plan, relay: &mut View, library: &mut View) {
    if let (Some(relay), Some(library)) = (&mut relay.client, &library.client)
        && library.trailers.is_empty()
    {
        relay.trailers.retain(|(name, _)| name != "x-sum");
    }
}

fn interims(plan: &Plan, _: &mut View, library: &mut View) {
    if plan.is_http_1_0 {
        library.interims.clear();
    }
}

fn first_connection(plan: &Plan, relay: &mut View, library: &mut View) {
    let lines = || plan.head.lines().filter(|line| line.starts_with("Connection: "));
    if lines().count() > 1 {
        for view in [&mut *relay, &mut *library] {
            view.client.iter_mut().for_each(|client| client.without(&["connection"]));
        }
        (relay.next, library.next) = (None, None);
    }
}

fn expects(plan: &Plan, relay: &mut View, library: &mut View) {
    if plan.reads == Reads::AllAfterContinue {
        let closes = |(name, value): &(String, String)| name == "connection" && value == "close";
        for view in [&mut *relay, &mut *library] {
            view.client.iter_mut().for_each(|client| client.headers.retain(|line| !closes(line)));
        }
        (relay.next, library.next) = (None, None);
    }
}

fn garbage(plan: &Plan, relay: &mut View, library: &mut View) {
    let is_refused = relay.client.as_ref().is_some_and(|client| client.line.starts_with("HTTP/1.1 502 "));
    if plan.is_garbage && is_refused {
        (library.client, library.next) = (relay.client.clone(), relay.next);
        // Interim answers before it are lost where they came together.
        (relay.interims, library.interims) = (Vec::new(), Vec::new());
    }
}

fn repeated(plan: &Plan, relay: &mut View, library: &mut View) {
    let is_repeatable = plan.body.is_empty() && ["GET", "HEAD", "OPTIONS"].contains(&plan.method);
    if is_repeatable && plan.answer.is_empty() && (relay.times, library.times) == (2, 1) {
        relay.times = 1;
    }
}

fn cut_off(_: &Plan, relay: &mut View, library: &mut View) {
    let is_502 = |client: &Got| client.line.starts_with("HTTP/1.1 502 ");
    let breaks_off = |view: &View| view.client.as_ref().is_none_or(|client| !client.is_whole);
    let fails = |view: &View| breaks_off(view) || view.client.as_ref().is_some_and(is_502);
    if fails(relay) && fails(library) && (breaks_off(relay) || breaks_off(library)) {
        (library.client, library.next) = (relay.client.clone(), relay.next);
        (relay.interims, library.interims) = (Vec::new(), Vec::new());
    }
}

fn broken(plan: &Plan, relay: &mut View, library: &mut View) {
    if plan.is_sound {
        return;
    }
    for view in [relay, library] {
        if view.client.as_ref().is_some_and(|client| client.line.starts_with("HTTP/1.1 400 ")) {
            view.client = None;
        }
        // Its head may have gone upstream before.
        if view.upstream.as_ref().is_some_and(|upstream| !upstream.is_whole) {
            (view.upstream, view.times) = (None, 0);
        }
    }
}
