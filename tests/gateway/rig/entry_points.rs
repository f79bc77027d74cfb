//! Where an agent shows its credential: our API, our gateway over each protocol, and other gateways that ask in each dialect. One table
//! of cases is asked of all, and each verdict is read in full.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{fmt, time::Duration};

use http::Method;
use serde_json::{Value, json};

use crate::rig::authz::{Asked, Decision, Dialect, Original, Verdict};
use crate::rig::h2c::{self, Message};
use crate::rig::{checks::Check, credentials::SIGNATURE_HEADERS, identity::identity_headers, stage::unique};
use crate::support::{agents::LIMITS, client::Answer, signing::Draft, time::Stopwatch};

/// A place where a credential is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryPoint {
    Api,
    Gateway,
    Http2,
    Asked(Dialect),
    /// Envoy's gRPC with each header apart.
    Raw,
}

/// How many of them are of our gateway; those come first in each list.
pub(crate) const OURS: usize = 2;

/// Those that read headers, one line apart from another. The body that the API reads has one place for a credential.
pub(crate) const BY_LINES: [EntryPoint; 6] = [
    EntryPoint::Gateway,
    EntryPoint::Http2,
    EntryPoint::Asked(Dialect::Forward),
    EntryPoint::Asked(Dialect::Nginx),
    EntryPoint::Asked(Dialect::Envoy),
    EntryPoint::Raw,
];

/// Those that read headers. Over gRPC Envoy joins those of one name.
pub(crate) const BY_HEADERS: [EntryPoint; 7] = with(BY_LINES, EntryPoint::Asked(Dialect::Grpc));

pub(crate) const ALL: [EntryPoint; 8] = with(BY_HEADERS, EntryPoint::Api);

const fn with<const FEW: usize, const MORE: usize>(
    few: [EntryPoint; FEW],
    more: EntryPoint,
) -> [EntryPoint; MORE] {
    let (mut all, mut at) = ([more; MORE], 0);
    while at < FEW {
        all[at] = few[at];
        at += 1;
    }
    all
}

/// A credential.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
    /// A key: in the API's body, or in either of two headers.
    Key(String),
    /// A key that is used from an origin.
    From(String, String),
    /// What an owner signed: the API's body, or four headers.
    Signed(Value),
    /// Headers as they are.
    Headers(Vec<(String, String)>),
}

impl Shown {
    pub(crate) fn key(key: &str) -> Self {
        Self::Key(key.to_owned())
    }

    pub(crate) fn signed(draft: &Draft) -> Self {
        Self::Signed(draft.body())
    }

    pub(crate) fn headers(headers: &[(&str, &str)]) -> Self {
        Self::Headers(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// All ways to show it in headers.
    fn forms(&self) -> Vec<Vec<(String, String)>> {
        let keys = |key: &str| {
            let forms = [("X-API-Key", key.to_owned()), ("Authorization", format!("Bearer {key}"))];
            forms.map(|(name, value)| vec![(name.to_owned(), value)]).to_vec()
        };
        match self {
            Self::Key(key) => keys(key),
            Self::From(key, origin) => {
                let origin = ("Origin".to_owned(), origin.clone());
                keys(key).into_iter().map(|form| [form, vec![origin.clone()]].concat()).collect()
            }
            Self::Signed(body) => {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let there = |(name, field): &(&str, &str)| Some(((*name).to_owned(), text(body.get(field)?)));
                vec![SIGNATURE_HEADERS.iter().filter_map(there).collect()]
            }
            Self::Headers(headers) => vec![headers.clone()],
        }
    }

    /// Path and body at the API.
    fn body(&self) -> (&'static str, Value) {
        match self {
            Self::Key(key) => ("/verify", json!({ "apiKey": key })),
            Self::From(key, origin) => ("/verify", json!({ "apiKey": key, "origin": origin })),
            Self::Signed(body) => ("/verify/signature", body.clone()),
            Self::Headers(_) => panic!("the API reads no headers: {self:?}"),
        }
    }
}

/// An answer, read.
#[derive(Clone)]
pub(crate) struct Said {
    pub(crate) entry: EntryPoint,
    pub(crate) passes: bool,
    /// As the client reads it.
    pub(crate) answer: Answer,
    /// What the upstream is told of the agent.
    pub(crate) identity: Vec<(String, String)>,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, answer, identity, .. } = self;
        write!(f, "{entry:?}: {} {} {:?} {identity:?}", answer.status, answer.text(), answer.headers)
    }
}

impl Said {
    fn of(decision: Decision, entry: EntryPoint) -> Self {
        Self { entry, passes: decision.passes, answer: decision.answer, identity: decision.identity }
    }

    /// Checks a refusal in full, but for words that all entry points must agree on. Gives those.
    #[track_caller]
    pub(crate) fn refusal(&self, (status, error_type): (u16, &str), details: &Value) -> Verdict {
        assert!(!self.passes, "{self:?}");
        let verdict = Verdict::of(&self.answer);
        let body = &verdict.body;
        let seen = (verdict.status, &body["errorType"], body.get("details").unwrap_or(&Value::Null));
        assert_eq!(seen, (status, &json!(error_type), details), "{self:?}");
        let mut answer = self.answer.clone();
        if self.entry == EntryPoint::Asked(Dialect::Nginx) {
            assert_eq!(answer.header("content-type"), None, "nginx reads headers alone: {self:?}");
            answer.headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        answer.error(status, error_type);
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{self:?}");
        let is_counted = status == 429 && self.entry != EntryPoint::Api;
        for name in ["ratelimit", "ratelimit-policy"] {
            assert_eq!(answer.header(name).is_some(), is_counted, "{name}: {self:?}");
        }
        let challenges =
            self.answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"));
        let schemes: Vec<_> = challenges.filter_map(|(_, value)| value.split(' ').next()).collect();
        let is_challenged = status == 401 && self.entry != EntryPoint::Api;
        assert_eq!(schemes, if is_challenged { vec!["Bearer"] } else { vec![] }, "{self:?}");
        verdict
    }

    /// Checks that it passes with what is left of a limit, which all headers say.
    #[track_caller]
    pub(crate) fn passes(&self, limit: u32, left: u32) -> &Self {
        assert!(self.passes, "{self:?}");
        if matches!(self.entry, EntryPoint::Gateway | EntryPoint::Http2) {
            let vary = self.answer.header("vary").unwrap_or_default();
            let sharing = (self.answer.header("cache-control"), vary.contains("X-API-Key"));
            assert_eq!(sharing, (Some("private"), true), "no cache gives it to another agent: {self:?}");
        }
        self.says(limit, left);
        self
    }

    /// Checks the headers about a limit, also those of the IETF draft.
    #[track_caller]
    pub(crate) fn says(&self, limit: u32, left: u32) {
        let header = |name: &str| self.answer.header(name).unwrap_or_default().to_owned();
        let contract = (header("X-RateLimit-Limit"), header("X-RateLimit-Remaining"));
        assert_eq!(contract, (limit.to_string(), left.to_string()), "{self:?}");
        let rest = header("retry-after");
        assert_eq!(rest.is_empty(), self.passes, "{self:?}");
        let rest = if rest.is_empty() { rest } else { format!(";t={rest}") };
        let is_ours = self.entry != EntryPoint::Api;
        let draft = [format!("\"agent\";q={limit};w=60"), format!("\"agent\";r={left}{rest}")];
        let draft = draft.map(|text| if is_ours { text } else { String::new() });
        assert_eq!([header("ratelimit-policy"), header("ratelimit")], draft, "{self:?}");
    }
}

/// The time in which a limit counts requests.
const MINUTE: Duration = Duration::from_secs(60);

/// Tries a case anew that took so long that the first of its requests counted no more.
pub(crate) fn within_a_minute(case: impl Fn()) {
    let is_done = || {
        let watch = Stopwatch::start();
        match catch_unwind(AssertUnwindSafe(&case)) {
            Err(failure) if watch.elapsed() < MINUTE => resume_unwind(failure),
            outcome => outcome.is_ok(),
        }
    };
    assert!((0..3).any(|_| is_done()), "each took longer");
}

/// The limit and what is left of it at the API, whose window is its own, and everywhere else.
pub(crate) struct Window {
    limit: u32,
    left: [u32; 2],
    watch: Stopwatch,
}

impl Window {
    pub(crate) fn of(tier: usize) -> Self {
        Self { limit: LIMITS[tier - 1], left: [LIMITS[tier - 1]; 2], watch: Stopwatch::start() }
    }

    /// Checks that each passes with one less than was left before. Later the first of them may count no more.
    #[track_caller]
    pub(crate) fn spend(&mut self, said: &[Said]) {
        let is_later = self.watch.elapsed() >= MINUTE;
        for said in said {
            let left = &mut self.left[usize::from(said.entry == EntryPoint::Api)];
            *left -= 1;
            let most = if is_later { self.limit - 1 } else { *left };
            let shown = said.answer.header("X-RateLimit-Remaining").and_then(|left| left.parse::<u32>().ok());
            said.passes(self.limit, shown.unwrap_or(0).clamp(*left, most));
        }
    }
}

/// The entry points of one site, asked about paths of one case.
pub(crate) struct EntryPoints<'a> {
    pub(crate) asked: &'a Asked,
    tenant: &'a str,
    host: &'a str,
    word: String,
}

impl<'a> EntryPoints<'a> {
    pub(crate) fn of(asked: &'a Asked, tenant: &'a str, host: &'a str) -> Self {
        Self { asked, tenant, host, word: unique() }
    }

    /// A request of this case that no other one has the path of.
    pub(crate) fn original(&self, method: &str, folder: &str) -> Original {
        let target = format!("{folder}/{}-{}", self.word, unique());
        Original::new(method, self.host, &target).of_tenant(self.tenant)
    }

    /// Shows a credential at an entry point, in each way, one after the other.
    #[track_caller]
    pub(crate) fn show(&self, entry: EntryPoint, shown: &Shown) -> Vec<Said> {
        if entry == EntryPoint::Api {
            let (path, body) = shown.body();
            return vec![of_api(self.asked.site.gateway.service.post(path, &body))];
        }
        let original = |form: Vec<(String, String)>| self.original("GET", "/agents").with_all(&form);
        shown.forms().into_iter().map(|form| self.ask(entry, &original(form))).collect()
    }

    /// Asks an entry point that reads headers.
    #[track_caller]
    pub(crate) fn ask(&self, entry: EntryPoint, original: &Original) -> Said {
        let (site, authz) = (&self.asked.site, self.asked.authz);
        let of_ours = |answer: Answer| {
            let passes = answer.status == 200;
            let path = original.target.split('?').next().unwrap_or_default();
            let identity = passes.then(|| site.upstream.only(path)).map_or_else(Vec::new, |seen| {
                assert!(!String::from_utf8_lossy(&seen.head).contains("svc_live_v1_"), "it has seen the key");
                identity_headers(&seen)
            });
            Said { entry, passes, answer, identity }
        };
        match entry {
            EntryPoint::Api => panic!("the API reads no headers"),
            EntryPoint::Gateway => of_ours(site.gateway.ask(&original.direct())),
            EntryPoint::Http2 => {
                of_ours(of_message(&h2c::ask(site.gateway.address, &message(original)).unwrap()))
            }
            EntryPoint::Asked(dialect) => Said::of(stripped(original.ask(dialect, authz), original), entry),
            EntryPoint::Raw => {
                Said::of(stripped(Check::raw(original).ask(authz).decision(), original), entry)
            }
        }
    }

    /// Each of these entry points refuses what is shown, with this verdict and all in the same words.
    #[track_caller]
    pub(crate) fn refuse(&self, at: &[EntryPoint], shown: &Shown, verdict: (u16, &str), details: &Value) {
        let said: Vec<Said> = at.iter().flat_map(|entry| self.show(*entry, shown)).collect();
        is_one(&said, verdict, details);
    }

    /// The same of a request that shows what it shows.
    #[track_caller]
    pub(crate) fn refuse_request(
        &self,
        at: &[EntryPoint],
        original: &Original,
        verdict: (u16, &str),
        details: &Value,
    ) {
        let said: Vec<Said> = at.iter().map(|entry| self.ask(*entry, original)).collect();
        is_one(&said, verdict, details);
    }

    /// Nothing that was refused came to the upstream.
    #[track_caller]
    pub(crate) fn let_nothing_through(&self) {
        self.asked.site.is_unseen(&self.word);
    }
}

#[track_caller]
fn is_one(said: &[Said], verdict: (u16, &str), details: &Value) {
    let verdicts: Vec<_> = said.iter().map(|said| said.refusal(verdict, details)).collect();
    for (one, words) in said.iter().zip(&verdicts) {
        assert_eq!(*words, verdicts[0], "{:?} is not {:?}", one.entry, said[0].entry);
    }
}

/// The profile tells the client what the gateway tells an upstream.
fn of_api(answer: Answer) -> Said {
    let passes = answer.status == 200;
    let mut identity = Vec::new();
    if passes {
        let body = answer.json();
        for (name, field) in [
            ("x-agent-id", "agentId"),
            ("x-agent-owner", "owner"),
            ("x-agent-tier", "trustTier"),
            ("x-agent-staked-amount", "stakedAmount"),
            ("x-agent-endpoint-mismatch", "endpointMismatch"),
        ] {
            let value = body[field].as_str().map_or_else(|| body[field].to_string(), str::to_owned);
            identity.push((name.to_owned(), value));
        }
    }
    Said { entry: EntryPoint::Api, passes, answer, identity }
}

/// A request as it comes over HTTP/2.
pub(crate) fn message(original: &Original) -> Message {
    let method: Method = original.method.parse().unwrap();
    let message = Message::request(method, &original.host, &original.target);
    original.headers.iter().fold(message, |message, (name, value)| message.with(name, value))
}

pub(crate) fn of_message(message: &Message) -> Answer {
    let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = message.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    Answer { status: message.status, headers, body: message.body.clone() }
}

/// A gateway that is told what to strip strips each header that proves who calls.
#[track_caller]
fn stripped(decision: Decision, original: &Original) -> Decision {
    if decision.passes && matches!(decision.dialect, Dialect::Envoy | Dialect::Grpc) {
        let proves = |(name, value): &&(String, String)| {
            name.to_ascii_lowercase().starts_with("x-agent-") || value.contains("svc_live_v1_")
        };
        let names = original.headers.iter().filter(proves).map(|(name, _)| name.to_ascii_lowercase());
        for name in names {
            let is_replaced = decision.identity.iter().any(|(ours, _)| *ours == name);
            assert!(is_replaced || decision.stripped.contains(&name), "{name}: {decision:?}");
        }
    }
    decision
}
