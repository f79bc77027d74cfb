//! `tiergate explain`: the gateway's decision about a request, and why. It reads the configuration and the chain, and for a
//! key a store in Redis. It charges nothing: no nonce and no window.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::app::source::Source;
use crate::app::{chain, store};
use crate::cli::check::load;
use crate::cli::client::wait_for;
use crate::cli::output::Output;
use crate::cli::{ConfigFile, Failure, secret};
use crate::config::Settings;
use crate::config::store::StoreSettings;
use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::denial::Denial;
use crate::domain::host::{HostPattern, of_authority};
use crate::domain::host_map::HostMap;
use crate::domain::path::Reading;
use crate::domain::quota::Quota;
use crate::domain::routing::{self, Decision};
use crate::domain::tenant::{Route, RouteAccess, Tenant};
use crate::domain::tier::Tier;
use crate::domain::tiers::Tiers;
use crate::files;
use crate::gateway::discovery::{Document, check_login, document_at, is_named};
use crate::gateway::site::{access, check_method, denied};
use crate::os::Os;
use crate::pipeline::credential::Credential;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::standing::judge;
use crate::ports::chain::{Chain, Parts};
use crate::ports::clock::Clock;
use crate::ports::store::{KeyOwner, Store};
use crate::telemetry::metrics::Metrics;
use crate::wire::credentials::{credential_of, shows_credential};
use crate::wire::errors::ErrorCause;

/// How much of a limit is left is known to those who count.
const REMAINING: &str = "unknown: windows are not read; the access log of the running service says it";

/// How often a store is asked before it is given up, and at what intervals.
const TRIES_MAX: u32 = 50;
const TRY_EVERY: Duration = Duration::from_millis(100);

/// Say what the gateway would decide about a request, and why. It charges nothing.
#[derive(clap::Args)]
pub(super) struct Explain {
    #[command(flatten)]
    file: ConfigFile,
    /// The host that it is for.
    #[arg(long, default_value = "", required_unless_present = "tenant")]
    host: String,
    /// The tenant that it is for, where another gateway asks about it and has the hosts.
    #[arg(long, value_name = "ID", conflicts_with = "host")]
    tenant: Option<String>,
    /// Its path, as it is sent.
    #[arg(long, default_value = "/")]
    path: String,
    /// Its method.
    #[arg(long, default_value = "GET")]
    method: String,
    /// The agent that sends it, with a good credential.
    #[arg(long, value_name = "N", value_parser = AgentId::parse, conflicts_with = "api_key_file")]
    agent_id: Option<AgentId>,
    /// File with the API key that it shows; - is standard input. The key is looked up in a store in Redis, and in no other.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Fail with exit code 1 unless the request is admitted (or public), or refused.
    #[arg(long, value_name = "DECISION", value_parser = ["admit", "refuse"])]
    expect: Option<String>,
    /// How to print the answer.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// A request and everything that its decision follows from.
struct Case<'a> {
    request: &'a Explain,
    settings: &'a Settings,
    tiers: Tiers,
    chain: &'a dyn Chain,
    store: Option<&'a dyn Store>,
    found: Map<String, Value>,
}

impl Explain {
    /// Prints the decision, and everything that it follows from.
    pub(super) fn run(self) -> Result<(), Failure> {
        let settings = &load(&Source::at(&self.file.config))?;
        let clock: Arc<dyn Clock> = Arc::new(Os::new());
        let metrics = Metrics::new()?;
        let threads = chain::start_threads(1)?;
        let chain = &chain::reader(settings, &clock, &metrics, &threads)?;
        let is_shared = self.api_key_file.is_some() && matches!(settings.store, StoreSettings::Redis(_));
        let store = is_shared.then(|| store::open(settings, &clock, &metrics));
        let store = store.transpose()?;
        let store = store.as_ref().map(|(store, _)| &**store);
        // They hold the key if there is one.
        let mut headers = HeaderMap::new();
        if let Some(file) = &self.api_key_file {
            let key = HeaderValue::from_str(secret::read(Some(file), "api-key", "")?.trim());
            let no_key = |_| Failure::new(format!("{} holds no API key", file.display()));
            headers.insert("x-api-key", key.map_err(no_key)?);
        }
        let sources = &settings.tiers.sources;
        let list = sources.list.as_deref().map(files::agents).transpose().map_err(Failure::new)?;
        let tiers = Tiers::new(sources.clone(), Arc::new(list.unwrap_or_default()));
        let mut case = Case { request: &self, settings, tiers, chain, store, found: Map::new() };
        match wait_for("the chain and the store", case.decide(&headers))? {
            Ok(decision) => case.add("decision", decision),
            Err(cause) => case.add_refusal(&cause),
        }
        let decision = case.found.get("decision").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.output.print(&case.found.into())?;
        match (self.expect.as_deref(), &*decision) {
            (None, _) | (Some("admit"), "admitted" | "public") | (Some("refuse"), "refused") => Ok(()),
            (Some(wanted), _) => Err(format!("expected is {wanted}, but the decision is {decision}").into()),
        }
    }
}

impl<'a> Case<'a> {
    fn add(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.found.insert(name.to_owned(), value);
        }
    }

    /// The text of the client's answer, and for a fault its cause.
    fn add_refusal(&mut self, cause: &ErrorCause) {
        if let ErrorCause::Refused(Refusal::Chain(fault) | Refusal::Unverified(fault)) = cause {
            self.add("fault", fault.to_string());
        } else if let ErrorCause::Refused(Refusal::Store(fault)) = cause {
            self.add("fault", fault.to_string());
        }
        let (error_type, answer) = cause.gateway_answer(0);
        let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        self.add("decision", "refused");
        self.add("status", answer.status().as_u16());
        self.add("errorType", error_type);
        self.add("error", body.get("error").cloned());
    }

    /// The decision in a word.
    async fn decide(&mut self, headers: &HeaderMap) -> Result<&'static str, ErrorCause> {
        let tenant = self.tenant()?;
        check_method(&self.request.method)?;
        let decision = self.route(tenant);
        let path = self.request.path.split('?').next().unwrap_or_default().as_bytes();
        let is_named = || of_authority(&self.request.host).is_some_and(|host| is_named(tenant, &host));
        let is_ours = self.request.tenant.is_none();
        match document_at(tenant, decision.access, &self.request.method, path) {
            Some(Document::Rules | Document::KeySet | Document::SignedRequests) if is_ours => {
                return Ok("described");
            }
            Some(Document::Metadata(_)) if is_named() => return Ok("described"),
            Some(_) | None => {}
        }
        let shows =
            || self.request.agent_id.is_some() || shows_credential(headers, &self.settings.keys.format);
        check_login(tenant, decision, (&self.request.method, path), shows)?;
        let quota = match decision.access {
            RouteAccess::Deny => return Err(denied(tenant, decision, path)),
            RouteAccess::Public => decision.route.and_then(|at| tenant.routes.get(at)?.requests_per_minute),
            RouteAccess::Agents => {
                let accepted = tenant.credentials;
                let kinds = [
                    ("api_key", accepted.api_key),
                    ("signature", accepted.signature),
                    ("erc8128", accepted.erc8128),
                    ("erc8128_untagged", accepted.erc8128_untagged),
                ];
                let kinds = kinds.into_iter().filter_map(|(kind, is_taken)| is_taken.then_some(kind));
                self.add("credentials", kinds.collect::<Vec<_>>());
                self.add("minTier", decision.min_tier.number());
                let (agent, signer) = match self.request.agent_id {
                    Some(agent) => (agent, None),
                    None => {
                        if accepted.has_messages() && headers.contains_key("signature-input") {
                            self.add("agent", "unknown: a signed request is for the running service alone");
                            return Ok("unknown");
                        }
                        let formats = (&self.settings.keys.format, self.settings.signature.format);
                        let credential = credential_of(headers, formats, accepted, || None)?;
                        let (Credential::Key { digest, .. }, Some(store)) = (credential, self.store) else {
                            self.add(
                                "agent",
                                "unknown: an embedded store is read by the running service alone",
                            );
                            return Ok("unknown");
                        };
                        let owner = owner_of(&digest, store).await?;
                        (owner.agent, self.settings.keys_end_with_signer().then_some(owner.signer))
                    }
                };
                Some(self.judged(tenant, decision.min_tier, agent, signer).await?)
            }
        };
        if let Some(quota) = quota {
            self.add("limit", quota.limit);
            self.add("remaining", REMAINING);
        }
        Ok(if decision.access == RouteAccess::Public { "public" } else { "admitted" })
    }

    fn tenant(&mut self) -> Result<&'a Tenant, ErrorCause> {
        if let Some(id) = &self.request.tenant {
            let found = self.settings.tenants.iter().find(|tenant| *tenant.id == **id);
            self.add("tenant", &**id);
            return found.map(|tenant| &**tenant).ok_or(ErrorCause::NotFound);
        }
        let of = |tenant: &'a Arc<Tenant>| tenant.hosts.iter().map(move |host| (host, &**tenant));
        let all: Vec<(&HostPattern, &Tenant)> = self.settings.tenants.iter().flat_map(of).collect();
        let find = |among: &[(&'a HostPattern, &'a Tenant)]| {
            let hosts = HostMap::new(among.iter().map(|one| (one.0.clone(), *one))).unwrap_or_default();
            hosts.find(&self.request.host).copied()
        };
        let (host, tenant) = find(&all).ok_or(ErrorCause::UnknownHost)?;
        let others = all.iter().filter(|one| one.0 != host && find(&[**one]).is_some());
        let others: Vec<_> = others.map(|(host, tenant)| format!("{host} of {}", tenant.id)).collect();
        self.add("tenant", &*tenant.id);
        self.add("host", host.to_string());
        self.add("hostWhy", "the most precise that matches");
        self.add("otherHosts", others);
        Ok(tenant)
    }

    fn route(&mut self, tenant: &Tenant) -> Decision {
        let path = self.request.path.split('?').next().unwrap_or_default().as_bytes();
        let decision = routing::decide(tenant, &self.request.method, path);
        let (reading, candidates) = routing::candidates(tenant, &self.request.method, path);
        let taken = decision.route.and_then(|at| tenant.routes.get(at));
        let why = match reading {
            Reading::Plain if taken.is_none() => {
                "no route takes the request, so the tenant's own rule counts"
            }
            Reading::Plain => "the first route that takes the request",
            Reading::Refused => "no honest request has this path",
            Reading::Escaped(_) | Reading::Ambiguous(_) | Reading::Anywhere => {
                "the path is ambiguous: the strictest of all routes that may be meant count"
            }
        };
        let others = candidates.into_iter().filter(|other| taken != Some(*other));
        self.add("route", taken.map_or("none".to_owned(), written));
        self.add("routeWhy", why);
        self.add("otherRoutes", others.map(written).collect::<Vec<_>>());
        decision
    }

    /// The quota of an agent, if its tier suffices and, where keys end with who signed for them, its key's signer may act for it.
    async fn judged(
        &mut self,
        tenant: &Tenant,
        min_tier: Tier,
        agent: AgentId,
        key_signer: Option<Option<Address>>,
    ) -> Result<Quota, ErrorCause> {
        self.add("agent", agent.to_string());
        let profile = self.chain.profile(agent, Parts::Gate).await.map_err(Refusal::from)?;
        let profile = profile.filter(|_| !self.chain.reserves(agent));
        let profile = profile.ok_or(Refusal::from(Denial::AgentNotFound { agent }))?;
        self.add("owner", profile.owner_text());
        if let Some(signer) = key_signer {
            let written =
                signer.map_or("unknown: a former release made the key".to_owned(), |it| it.to_string());
            self.add("keySigner", written);
            let hears_wallet = self.settings.signature.agent_wallet;
            if !signer.is_some_and(|signer| profile.holders.may_act(signer, hears_wallet)) {
                self.add("keyWhy", "the key has ended: who signed for it may not act for the agent");
                return Err(Refusal::from(Denial::InvalidApiKey { agent: None }).into());
            }
        }
        self.add("stake", profile.stake_text());
        self.add("minStake", self.tiers.sources().stake_of(min_tier).map(|stake| stake.to_string()));
        let grade = self.tiers.grade(agent, &profile);
        self.add("tier", grade.tier.number());
        self.add("tierSource", grade.source);
        let access = access(tenant, self.settings.tiers.requests_per_minute, &self.tiers, min_tier);
        if access.denies_endpoint_mismatch {
            self.add("origin", "must be the one declared for the key, which is not looked at here");
        }
        Ok(judge(&access, agent, &profile).map_err(Refusal::from)?.1)
    }
}

/// The agent whose current key this is, and who signed for it. The store has just begun to connect, so it is asked until it answers.
async fn owner_of(digest: &KeyDigest, store: &dyn Store) -> Result<KeyOwner, ErrorCause> {
    let mut tries = 0;
    let owner = loop {
        match store.find(digest).await {
            Err(_) if tries < TRIES_MAX => tries += 1,
            found => break found.map_err(Refusal::from)?,
        }
        sleep(TRY_EVERY).await;
    };
    let unknown = Refusal::from(Denial::InvalidApiKey { agent: None });
    let owner = owner.ok_or_else(|| unknown.clone())?;
    let is_current = store.is_current(owner.agent, digest).await.map_err(Refusal::from)?;
    Ok(is_current.then_some(owner).ok_or(unknown)?)
}

/// A route as it is written.
fn written(route: &Route) -> String {
    let methods = route.methods.iter().map(|method| format!("{method} "));
    methods.chain([route.path.as_str().to_owned()]).collect()
}
