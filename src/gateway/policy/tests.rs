//! The cost of a head: all rules together take steps by its bytes, whatever is in it.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig as Config, Strategy, prop_assert, prop_oneof, proptest};
use proptest::sample::select;

use crate::domain::{AcceptedCredentials, ApiKeyFormat, SignatureFormat, TrustedHeaders};
use crate::gateway::policy::forwarded::Via;
use crate::gateway::policy::forwarded::{self, Arrival};
use crate::gateway::policy::requests::{Kept, asks_for_stream};
use crate::gateway::policy::{answers, requests};
use crate::http1::{Fields, Options, head::check_framing, name::Name};
use crate::ports::{Entropy, NoEntropy};
use crate::wire::credentials::{credential_of, origin_of};
use crate::wire::trace::{remote_span, state_of};
use crate::wire::{RequestIds, client_ip::client_of};

/// The most headers of a head.
const FIELDS_MAX: usize = 128;

/// How often all rules together may go through a head.
const PASSES_MAX: usize = 40;

/// A head that counts the bytes of it that it shows.
struct Counting {
    fields: HeaderMap,
    steps: Cell<usize>,
}

impl Counting {
    fn shows(&self, bytes: usize) {
        self.steps.set(self.steps.get() + 1 + bytes);
    }
}

impl Fields for Counting {
    fn values(&self, name: Name) -> impl DoubleEndedIterator<Item = &[u8]> {
        // A head of spans looks through all of them for a name that is there.
        self.shows(if self.fields.has(name) { self.fields.len() } else { 0 });
        Fields::values(&self.fields, name).inspect(|value| self.shows(value.len()))
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.all().inspect(|(name, value)| self.shows(name.len() + value.len()))
    }

    fn count(&self) -> usize {
        self.fields.len()
    }
}

/// No name here is a secret.
struct Zeros;

impl Entropy for Zeros {
    fn key_bytes(&self) -> Result<[u8; 32], NoEntropy> {
        Ok([0; 32])
    }
}

fn via() -> Via {
    Via::new(None, &RequestIds::new(&Zeros).unwrap())
}

/// Asks every rule for requests about this head, and says whether it is refused.
fn judge_request(fields: &Counting, via: &Via) -> bool {
    let keys = ApiKeyFormat::new("svc_live_v1_");
    let peer = IpAddr::from(Ipv4Addr::LOCALHOST);
    let trusted = [IpNet::from(peer)];
    let both =
        AcceptedCredentials { api_key: true, signature: true, erc8128: false, erc8128_untagged: false };
    let Ok(options) = Options::of(fields) else { return true };
    let believed =
        &TrustedHeaders::new(&["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"]);
    let kept = Kept::of(fields, &keys, believed);
    for (name, _) in fields.all() {
        let id = Name::of(name);
        let _ = (requests::is_of_one_hop(&options, id, name), kept.has(id, name));
    }
    let _ = (fields.expects_continue(), asks_for_stream(fields, true), answers::preflight("OPTIONS", fields));
    let _ = (client_of(peer, fields, &trusted), remote_span(fields), state_of(fields));
    let arrival = Arrival { peer: "127.0.0.1", believed, is_tls: true, version: "1.1" };
    let mut out = Vec::<u8>::new();
    forwarded::write(fields, &arrival, b"a", &mut out);
    via.write(fields, "1.1", &mut out);
    let is_refused = credential_of(fields, (&keys, SignatureFormat::Keys), both, || None).is_err();
    is_refused | origin_of(fields).is_err() | via.has_passed(fields)
}

/// Asks every rule for answers about this head.
fn judge_answer(fields: &Counting) {
    let _ = check_framing(fields, false);
    let Ok(options) = Options::of(fields) else { return };
    for (name, _) in fields.all() {
        let _ = answers::is_of_one_hop(&options, Name::of(name), name);
        let _ = (answers::is_about_pages(name), answers::is_about_limits(name));
    }
}

/// Fields that make somebody look at others, or at all of a long value.
fn field() -> impl Strategy<Value = (String, String)> {
    let known = select(Name::KNOWN.map(|name| name.as_str().to_owned()).to_vec());
    let spelled = "x[-_.~]agent[-_.~][a-z]{0,9}";
    let name = prop_oneof![known, spelled, "[a-z]{1,12}", "accept|tracestate|access-control-request-method"];
    let piece =
        select(vec![",", "a,", "x-note,", "1.1 a,", "svc_live_v1_", "s", "127.0.0.1,", "text/", "; ", "0"]);
    let often = prop_oneof![0_usize..4, 0_usize..300, 0_usize..30_000];
    (name, piece, often).prop_map(|(name, piece, often)| (name, piece.repeat(often)))
}

/// Heads of up to so many fields, many of them of one name.
fn head() -> impl Strategy<Value = HeaderMap> {
    let group = (vec(field(), 1..4), 1_usize..FIELDS_MAX);
    vec(group, 1..4).prop_map(|groups| {
        let fields = groups.into_iter().flat_map(|(fields, often)| {
            let count = fields.len() * often;
            fields.into_iter().cycle().take(count)
        });
        fields
            .take(FIELDS_MAX)
            .map(|(name, value)| (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap()))
            .collect()
    })
}

// threat: Huge or costly heads and bodies
#[test]
fn a_plain_head_is_not_refused_and_one_of_commas_is() {
    let via = via();
    let of = |connection: &str| {
        let fields =
            [("connection", connection), ("x-agent-id", "7"), ("authorization", "Bearer svc_live_v1_")];
        let fields = fields.into_iter().map(|(name, value)| {
            (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
        });
        Counting { fields: fields.collect(), steps: Cell::new(0) }
    };
    let commas = of(&",".repeat(30_000));
    assert!(judge_request(&commas, &via));
    assert!(commas.steps.get() < 2 * 30_000, "and it is looked at once");
    let plain = of("keep-alive");
    judge_request(&plain, &via);
    assert!(plain.steps.get() > plain.fields.len(), "the view counts");
}

proptest! {
    #![proptest_config(Config { cases: Config::default().cases / 4, ..Config::default() })]

    // threat: Huge or costly heads and bodies
    #[test]
    fn a_head_costs_steps_by_its_bytes_whatever_is_in_it(fields in head()) {
        let bytes: usize = fields.all().map(|(name, value)| name.len() + value.len() + 4).sum();
        let counting = Counting { fields, steps: Cell::new(0) };
        judge_request(&counting, &via());
        judge_answer(&counting);
        let steps = counting.steps.get();
        prop_assert!(steps <= PASSES_MAX * bytes, "{steps} steps for {bytes} bytes");
    }
}
