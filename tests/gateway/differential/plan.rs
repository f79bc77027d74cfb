//! Exchanges made up by dice: what a client sends, and how its upstream answers.

use fastrand::Rng;

use crate::rig::upstream::Then;

/// Numbers that a seed determines.
pub(crate) struct Dice(Rng);

impl Dice {
    /// The dice of one exchange of a run.
    pub(crate) fn of(seed: u64, exchange: u64) -> Self {
        Self(Rng::with_seed(Rng::with_seed(seed).u64(..) ^ exchange))
    }

    /// From 0 to below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn some(&mut self, of: &[&str], most: usize) -> String {
        (0..self.below(most + 1)).map(|_| format!("{}\r\n", self.one(of))).collect()
    }

    /// Mostly a few bytes, sometimes more than a buffer takes.
    fn body(&mut self) -> Vec<u8> {
        let length = match self.below(8) {
            0 => 0,
            1..=4 => self.below(40),
            5 => self.below(4_000),
            6 => 8_192,
            _ => self.below(100_000),
        };
        (0..length).map(|_| b"abc\r\n0:H"[self.below(8)]).collect()
    }

    /// Where a text is cut into pieces.
    pub(crate) fn pieces<'a>(&mut self, text: &'a [u8]) -> Vec<&'a [u8]> {
        let mut ends: Vec<usize> = (0..self.below(5)).map(|_| self.below(text.len() + 1)).collect();
        // Heads and ends of chunks stand at the beginning and the end.
        ends.extend((0..self.below(4)).map(|_| self.below(200.min(text.len() + 1))));
        ends.extend((0..self.below(3)).map(|_| text.len() - self.below(12.min(text.len() + 1))));
        ends.push(text.len());
        ends.sort_unstable();
        let mut begin = 0;
        ends.into_iter().map(|end| &text[std::mem::replace(&mut begin, end)..end]).collect()
    }
}

/// How far an upstream reads before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The whole request.
    All,
    /// The head. The client holds the end of its body back.
    Head,
    /// Everything, and the client waits for an interim answer before it sends its body.
    AllAfterContinue,
}

/// An exchange to be.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) method: &'static str,
    pub(crate) is_http_1_0: bool,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// How much of the body's bytes are sent.
    pub(crate) sent: usize,
    /// Whether the body can be read to its end.
    pub(crate) is_sound: bool,
    pub(crate) reads: Reads,
    pub(crate) answer: Vec<u8>,
    /// Whether that is no answer.
    pub(crate) is_garbage: bool,
    pub(crate) then: Then,
}

const METHODS: &[&str] =
    &["GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "FETCH"];

const REQUEST_LINES: &[&str] = &[
    "User-Agent: x/1 (y)",
    "aCCept: */*",
    "Accept-Encoding: gzip, br",
    "Cookie: a=1",
    "cookie: b=2",
    "Content-Type: text/plain",
    "X-Empty:",
    "X-Blanks: \t  a  b \t ",
    "X-One: 1",
    "x-one: 2",
    "X_ONE: 3",
    "X-Agent-Id: 1",
    "x_agent_tier: 4",
    "X-Agent-Signature: 0x",
    "X-Forwarded-For: 1.2.3.4",
    "Forwarded: for=1.2.3.4",
    "X-Request-Id: mine",
    "X_Request_Id: mine",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: X-Hop, x-one",
    "X-Hop: 1",
    "Keep-Alive: timeout=1",
    "Proxy-Connection: keep-alive",
    "Proxy-Authorization: x",
    "TE: trailers",
    "Trailer: X-Sum",
    "Upgrade: h2c",
    "HTTP2-Settings: x",
    "Authorization: Basic x",
    "Range: bytes=0-1",
    "If-None-Match: \"x\"",
    "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT",
    "Via: 1.1 x",
    "Date: today",
    "Max-Forwards: 0",
];

const ANSWER_LINES: &[&str] = &[
    "Server: x",
    "Content-Type: text/plain",
    "content-encoding: gzip",
    "Set-Cookie: a=1",
    "set-cookie: b=2",
    "ETag: \"x\"",
    "Date: Thu, 01 Jan 1970 00:00:00 GMT",
    "X-Empty:",
    "X-Blanks: \t  a  b \t ",
    "X_ODD: 1",
    "X-RateLimit-Limit: 1",
    "x-rate-limit-reset: 1",
    "RateLimit-Policy: x",
    "X-Request-Id: theirs",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: X-Hop",
    "X-Hop: 1",
    "Keep-Alive: timeout=1",
    "Proxy-Connection: x",
    "Trailer: X-Sum",
    "Upgrade: h2c",
    "Via: 1.1 x",
    "Vary: *",
    "Retry-After: 1",
    "Accept-Ranges: bytes",
    "Cache-Control: no-transform",
    "WWW-Authenticate: Basic",
    "Location: /x",
    "Alt-Svc: h2=\":1\"",
    "Age: 1",
];

const TRAILERS: &[&str] = &[
    "X-Sum: 1",
    "x-sum:2",
    "X-Agent-Id: 1",
    "X-RateLimit-Limit: 1",
    "Content-Length: 1",
    "Authorization: x",
    "Host: other.test",
];

/// Answers that are none.
const GARBAGE: &[&str] = &[
    "",
    "ok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
    "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX : 1\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
];

impl Plan {
    /// The exchange that the dice make up, for this host and path.
    pub(crate) fn of(dice: &mut Dice, host: &str, path: &str, key: &str) -> Self {
        let method = dice.one(METHODS);
        let is_http_1_0 = dice.once_in(8);
        let (framing, body, is_sound) = request_body(dice, is_http_1_0);
        let length = body.len();
        let reads = match dice.below(8) {
            // The library waits for the rest of an upload of HTTP/1.0 for 30 s.
            0 if length > 20 && is_sound && !is_http_1_0 => Reads::Head,
            1 if length > 0 && is_sound && !is_http_1_0 => Reads::AllAfterContinue,
            _ => Reads::All,
        };
        let sent = if reads == Reads::Head { dice.below(length - 10) } else { length };
        let host = if dice.once_in(20) { "nobody.test" } else { host };
        let key = if dice.once_in(4) { format!("X-API-Key: {key}\r\n") } else { String::new() };
        let path = if key.is_empty() && !dice.once_in(20) {
            path.to_owned()
        } else {
            path.replace("public", "agents")
        };
        let expect = if reads == Reads::AllAfterContinue { "Expect: 100-continue\r\n" } else { "" };
        let version = if is_http_1_0 { "1.0" } else { "1.1" };
        let lines = [dice.some(REQUEST_LINES, 4), dice.some(REQUEST_LINES, 4)];
        let query = dice.one(&["", "?", "?a=b&c=%20", "?//x"]);
        let head = format!(
            "{method} {path}{query} HTTP/{version}\r\n{}Host: {host}\r\n{key}{expect}{framing}{}\r\n",
            lines[0], lines[1]
        );
        let (answer, then, is_garbage) = answer(dice, method, reads);
        Self { method, is_http_1_0, head, body, sent, is_sound, reads, answer, is_garbage, then }
    }
}

/// A body's header, its bytes, and whether they can be read.
fn request_body(dice: &mut Dice, is_http_1_0: bool) -> (String, Vec<u8>, bool) {
    let body = dice.body();
    match dice.below(8) {
        0..=2 => (String::new(), Vec::new(), true),
        3..=4 => (format!("Content-Length: {}\r\n", body.len()), body, true),
        _ if is_http_1_0 => (format!("content-length: {}\r\n", body.len()), body, true),
        kind => {
            let is_sound = kind != 5 || dice.once_in(2);
            let mut chunks = in_chunks(dice, &body);
            if !is_sound {
                let at = chunks.len();
                chunks.truncate(at - 2);
                chunks.extend_from_slice(dice.one(&[&b"x\n"[..], b" y: z\r\n\r\n", b"\nz"]));
            }
            (String::from("Transfer-Encoding: chunked\r\n"), chunks, is_sound)
        }
    }
}

fn in_chunks(dice: &mut Dice, body: &[u8]) -> Vec<u8> {
    let mut chunks = Vec::new();
    for piece in dice.pieces(body).into_iter().filter(|piece| !piece.is_empty()) {
        let size = match dice.below(4) {
            0 => format!("{:X}", piece.len()),
            1 => format!("00{:x}", piece.len()),
            2 => format!("{:x};a=\"b\"", piece.len()),
            _ => format!("{:x}", piece.len()),
        };
        chunks.extend([size.as_bytes(), b"\r\n", piece, b"\r\n"].concat());
    }
    chunks.extend_from_slice(dice.one(&["0\r\n", "0;x\r\n", "000\r\n"]).as_bytes());
    if dice.once_in(3) {
        chunks.extend_from_slice(dice.some(TRAILERS, 3).as_bytes());
    }
    chunks.extend_from_slice(b"\r\n");
    chunks
}

fn answer(dice: &mut Dice, method: &str, reads: Reads) -> (Vec<u8>, Then, bool) {
    let mut all = String::new();
    if reads == Reads::AllAfterContinue {
        all.push_str("HTTP/1.1 100 Continue\r\n\r\n");
    }
    if dice.once_in(12) {
        all.push_str(
            dice.one(&["HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 102 Processing\r\n\r\n"]),
        );
    }
    if dice.once_in(12) {
        return ([all.as_bytes(), dice.one(GARBAGE).as_bytes()].concat(), Then::Closes, true);
    }
    let status = dice.one(&[
        "200 OK",
        "200 OK",
        "200 ",
        "201 Made So",
        "204 No Content",
        "304 Not Modified",
        "404 No",
        "500 Oh",
        "503 Busy",
        "599",
    ]);
    let (lines, body) = (dice.some(ANSWER_LINES, 6), dice.body());
    let has_no_body = method == "HEAD" || status.starts_with("204") || status.starts_with("304");
    let is_old = dice.once_in(8);
    let version = if is_old { "1.0" } else { "1.1" };
    let (mut framing, mut body, mut then) = match dice.below(6) {
        0..=2 => (format!("Content-Length: {}\r\n", body.len()), body, Then::Goes),
        3..=4 if !is_old => ("Transfer-Encoding: chunked\r\n".to_owned(), in_chunks(dice, &body), Then::Goes),
        _ if has_no_body => (String::new(), Vec::new(), Then::Goes),
        _ => (String::new(), body, Then::Closes),
    };
    if has_no_body {
        body.clear();
    } else if !body.is_empty() && dice.once_in(10) {
        body.truncate(dice.below(body.len()));
        then = Then::Closes;
    }
    if dice.once_in(10) {
        // An upstream that does not say so may be sent the next exchange's request at that moment.
        framing.push_str("Connection: close\r\n");
        then = Then::Closes;
    } else if then == Then::Goes && dice.once_in(15) {
        body.extend_from_slice(b"HTTP/1.1 200 Forged\r\nContent-Length: 0\r\n\r\n");
    }
    let head = format!("{all}HTTP/{version} {status}\r\n{framing}{lines}\r\n");
    ([head.into_bytes(), body].concat(), then, false)
}
