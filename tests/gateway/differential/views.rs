//! What an upstream and a client see of an exchange.

use std::{io, net::Shutdown};

use crate::differential::plan::{Dice, Plan, Reads};
use crate::rig::framing::{self, Body};
use crate::rig::stage::{ACME, public_path};
use crate::rig::upstream::{Incoming, Then};
use crate::rig::{scripts::script, site::Site};
use crate::support::wire::{Request, Wire};

/// The interim answer for which a client may wait.
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// The longest text that is shown of a body.
const SHOWN_MAX: usize = 200;

type Lines = Vec<(String, String)>;

/// Both sides of one exchange.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// What the upstream got; nothing where no request came.
    pub(crate) upstream: Option<Got>,
    /// How many requests came to it.
    pub(crate) times: usize,
    /// What the client got; nothing where no answer came.
    pub(crate) client: Option<Got>,
    /// The status lines of interim answers.
    pub(crate) interims: Vec<String>,
    /// Whether the next request on the connection was answered; nothing where none may follow.
    pub(crate) next: Option<bool>,
}

/// One message.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Got {
    /// Method and target, or the status line.
    pub(crate) line: String,
    /// Names in small letters, sorted by name; lines of one name in their order.
    pub(crate) headers: Lines,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Lines,
    pub(crate) is_whole: bool,
}

impl Got {
    fn new(line: String, headers: &Lines, body: &[u8], trailers: &Lines, is_whole: bool) -> Self {
        let sorted = |lines: &Lines| {
            let small = lines.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
            let mut small: Vec<_> = small.collect();
            small.sort_by(|(one, _), (other, _)| one.cmp(other));
            small
        };
        Self { line, headers: sorted(headers), body: body.to_vec(), trailers: sorted(trailers), is_whole }
    }

    pub(crate) fn without(&mut self, names: &[&str]) {
        self.headers.retain(|(name, _)| !names.contains(&name.as_str()));
    }
}

impl View {
    /// Every part that is different, as the relay and then the library showed it.
    pub(crate) fn beside(&self, library: &Self) -> String {
        let pairs = self.parts().into_iter().zip(library.parts());
        let different = pairs.filter(|((_, relay), (_, library))| relay != library);
        let lines =
            different.map(|((part, relay), (_, library))| format!("  {part}: {relay}\n    but {library}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn parts(&self) -> Vec<(&'static str, String)> {
        let Self { upstream, times, client, interims, next } = self;
        let of =
            |got: &Option<Got>, part: fn(&Got) -> String| got.as_ref().map_or("nothing".to_owned(), part);
        let [line, headers, body, end]: [fn(&Got) -> String; 4] = [
            |got| got.line.clone(),
            |got| format!("{:?}", got.headers),
            |got| format!("{} bytes: {}", got.body.len(), short(&got.body)),
            |got| format!("{:?}, {}", got.trailers, if got.is_whole { "whole" } else { "cut off" }),
        ];
        vec![
            ("request", of(upstream, line)),
            ("its headers", of(upstream, headers)),
            ("its body", of(upstream, body)),
            ("its end", of(upstream, end)),
            ("times", times.to_string()),
            ("interim answers", format!("{interims:?}")),
            ("answer", of(client, line)),
            ("its headers", of(client, headers)),
            ("its body", of(client, body)),
            ("its end", of(client, end)),
            ("the next request", format!("{next:?}")),
        ]
    }
}

impl Plan {
    pub(crate) fn shown(&self) -> String {
        let Self { head, body, answer, sent, reads, then, .. } = self;
        let (sent_body, answer) = (short(body), short(answer));
        format!(
            "{head:?} + {sent} of {} {sent_body}\nreads {reads:?}, answers {answer}, {then:?}",
            body.len()
        )
    }
}

fn short(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]))
}

/// Sends an exchange through a gateway.
pub(crate) fn through(site: &Site, plan: &Plan, path: &str, mut dice: Dice) -> View {
    let paths = [path.to_owned(), path.replace("public", "agents")];
    for path in &paths {
        let (reads, then) = (plan.reads, plan.then);
        let at = if reads == Reads::AllAfterContinue { CONTINUE.len() } else { 0 };
        let pieces: Vec<Vec<u8>> = dice.pieces(&plan.answer[at..]).into_iter().map(<[u8]>::to_vec).collect();
        site.upstream.on(
            path,
            script(move |exchange| {
                if reads == Reads::AllAfterContinue {
                    exchange.write(CONTINUE.as_bytes())?;
                }
                if reads != Reads::Head {
                    exchange.read_body()?;
                }
                pieces.iter().try_for_each(|piece| exchange.write(piece))?;
                if reads == Reads::Head && then == Then::Closes {
                    // To close with bytes unread is a reset, which takes back what was not sent yet.
                    exchange.socket()?.0.shutdown(Shutdown::Write)?;
                    exchange.until_closed();
                }
                Ok(then)
            }),
        );
    }
    let mut wire = site.gateway.connect();
    let mut incoming = Incoming::over(wire.socket());
    let mut interims = Vec::new();
    let client = converse(&mut wire, &mut incoming, plan, &mut dice, &mut interims);
    let seen = site.upstream.seen_that(|seen| paths.iter().any(|path| seen.path() == path));
    let upstream = seen.first().map(|seen| {
        let line = format!("{} {}", seen.method, seen.target);
        // Of an upload that is answered early something may have come.
        let body = if plan.reads == Reads::Head { &[][..] } else { &seen.body };
        Got::new(line, &seen.headers, body, &seen.trailers, seen.whole)
    });
    let next = client.as_ref().filter(|client| client.is_whole && goes_on(plan, client)).map(|_| {
        let next = public_path();
        let _ = wire.write(&Request::get(ACME, &next).bytes());
        let answer = answer_of(&mut incoming, "GET", &mut Vec::new());
        let is_own = |answer: &Got| String::from_utf8_lossy(&answer.body).contains(&next);
        if let Some(other) = answer.as_ref().filter(|answer| !is_own(answer)) {
            panic!("behind {}: {} {}", plan.shown(), other.line, short(&other.body));
        }
        answer.is_some()
    });
    View { upstream, times: seen.len(), client, interims, next }
}

/// Whether the next request may follow on the connection.
fn goes_on(plan: &Plan, answer: &Got) -> bool {
    let says = answer.headers.iter().any(|(name, value)| name == "connection" && value == "close");
    let closes = says || answer.line.starts_with("HTTP/1.0");
    let asked = plan.head.contains("Connection: close") || plan.is_http_1_0;
    !closes && !asked && plan.reads != Reads::Head
}

fn converse(
    wire: &mut Wire,
    incoming: &mut Incoming,
    plan: &Plan,
    dice: &mut Dice,
    interims: &mut Vec<String>,
) -> Option<Got> {
    let body = &plan.body[..plan.sent];
    // A gateway that refuses the request may close before it was sent.
    let mut send = |bytes: &[u8]| dice.pieces(bytes).into_iter().try_for_each(|piece| wire.write(piece));
    if plan.reads != Reads::AllAfterContinue {
        let _ = send(&[plan.head.as_bytes(), body].concat());
        return answer_of(incoming, plan.method, interims);
    }
    let _ = send(plan.head.as_bytes());
    let (line, headers) = head_of(incoming)?;
    if !is_interim(&line) {
        return Some(body_of(incoming, plan.method, line, &headers));
    }
    interims.push(line);
    let _ = send(body);
    answer_of(incoming, plan.method, interims)
}

fn is_interim(line: &str) -> bool {
    line[9..].starts_with('1') && !line[9..].starts_with("101")
}

/// The final answer that a client reads, as far as it comes.
fn answer_of(incoming: &mut Incoming, method: &str, interims: &mut Vec<String>) -> Option<Got> {
    loop {
        let (line, headers) = head_of(incoming)?;
        if !is_interim(&line) {
            return Some(body_of(incoming, method, line, &headers));
        }
        interims.push(line);
    }
}

fn head_of(incoming: &mut Incoming) -> Option<(String, Lines)> {
    let status = String::from_utf8(incoming.line().ok()?).unwrap();
    let version = status.get(..9).filter(|version| ["HTTP/1.1 ", "HTTP/1.0 "].contains(version));
    assert!(version.is_some(), "no answer: {status:?}");
    Some((status, framing::read_fields(incoming).ok()?))
}

fn body_of(incoming: &mut Incoming, method: &str, line: String, headers: &Lines) -> Got {
    let value = |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let (mut body, mut trailers) = (Vec::new(), Vec::new());
    let has_none = method == "HEAD" || ["101", "204", "304"].contains(&&line[9..12]);
    let framed = match (value("content-length"), value("transfer-encoding")) {
        _ if has_none => Some(Body::Length(0)),
        (Some((_, length)), _) => Some(Body::Length(length.parse().unwrap())),
        (None, Some(_)) => Some(Body::Chunks),
        (None, None) => None,
    };
    let end = match framed {
        Some(mut framed) => loop {
            match framing::read_piece(&mut framed, incoming, &mut body, &mut trailers) {
                Ok(true) => {}
                end => break end.is_ok(),
            }
        },
        None => loop {
            match incoming.some(usize::MAX) {
                Ok(piece) => body.extend(piece),
                Err(end) => break end.kind() == io::ErrorKind::UnexpectedEof,
            }
        },
    };
    Got::new(line, headers, &body, &trailers, end)
}
