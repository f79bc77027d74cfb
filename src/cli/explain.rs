//! `tiergate explain`: the gateway's decision about a request, and why. It reads the configuration and the chain, and for a
//! key a store in Redis. It charges nothing, no nonce and no window, and writes nothing.

use std::{path::PathBuf, sync::Arc, time::Duration};

use alloy::primitives::Address;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::app::{chain, discovery, store, tenants::Tenants};
use crate::cli::{ConfigFile, Failure, check::load_to_serve, client::wait_for, output::Output, secret};
use crate::config::{ConfigSource, Settings};
use crate::domain::{
    AgentId, Call, Decision, Denial, HostPattern, KeyDigest, PathForm, Quota, Route, RouteAccess, TOOL_CALL,
    Tenant, host::of_authority, routing,
};
use crate::error::Error;
use crate::gateway::{Site, Table, rule::Incoming};
use crate::os::Os;
use crate::pipeline::{Access, Credential, standing::judge};
use crate::ports::{Chain, Clock, KeyOwner, Parts, Scope, Store};
use crate::telemetry::Metrics;
use crate::wire::credentials::credential_of;

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
    #[arg(
        long,
        default_value = "GET",
        default_value_if("tool", clap::builder::ArgPredicate::IsPresent, "POST")
    )]
    method: String,
    /// The tool that it calls, at an endpoint of MCP.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// The agent that sends it, with a good credential.
    #[arg(long, value_name = "N", value_parser = AgentId::parse, conflicts_with = "api_key_file")]
    agent_id: Option<AgentId>,
    /// The domain of the bot that sends it, with a good signature.
    #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["agent_id", "api_key_file"])]
    bot: Option<String>,
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
    table: Arc<Table>,
    chain: &'a dyn Chain,
    store: Option<&'a dyn Store>,
    found: Map<String, Value>,
}

impl Explain {
    pub(super) fn run(self) -> Result<(), Failure> {
        let source = ConfigSource::at(&self.file.config);
        let settings = &load_to_serve(&source)?.0.settings;
        let clock: Arc<dyn Clock> = Arc::new(Os::new());
        let metrics = Metrics::new()?;
        let threads = chain::start_threads(1)?;
        let chain = &chain::reader(settings, &clock, &metrics, &threads)?;
        let store = self.api_key_file.as_ref().map(|_| store::open_to_read(settings, &clock, &metrics));
        let store = store.transpose()?.flatten();
        let store = store.as_ref().map(|store| store as &dyn Store);
        // They hold the key if there is one.
        let mut headers = HeaderMap::new();
        if let Some(file) = &self.api_key_file {
            let key = HeaderValue::from_str(secret::read(Some(file), "api-key", "")?.trim());
            let no_key = |_| Failure::new(format!("{} holds no API key", file.display()));
            headers.insert("x-api-key", key.map_err(no_key)?);
        }
        if self.agent_id.is_some() {
            // Its credential counts as a good one, whatever it is.
            headers.insert("signature", HeaderValue::from_static("supposed"));
        }
        let tenants = Tenants::new(source, settings, &clock, &metrics)?;
        let table = tenants.table.load_full();
        let mut case = Case { request: &self, settings, table, chain, store, found: Map::new() };
        match wait_for("the chain and the store", case.decide(&headers))? {
            Ok(decision) => case.add("decision", decision),
            Err(cause) => case.add_refusal(&cause),
        }
        let decision = case.found.get("decision").and_then(Value::as_str).unwrap_or_default().to_owned();
        // A host or tenant that is not there may be a slip of the pen.
        let is_there = case.found.contains_key("tenant");
        self.output.print(&case.found.into())?;
        match (self.expect.as_deref(), &*decision) {
            (None, _) | (Some("admit"), "admitted" | "public") => Ok(()),
            (Some("refuse"), "refused") if is_there => Ok(()),
            (Some(wanted), _) if is_there => {
                Err(format!("expected is {wanted}, but the decision is {decision}").into())
            }
            (Some(wanted), _) => Err(format!("expected is {wanted}, but there is no such tenant").into()),
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

    /// The text of the client's answer, and for a fault its cause. A fault decides nothing about the request.
    fn add_refusal(&mut self, cause: &Error) {
        if let Error::Chain(fault) | Error::Unverified(fault) = cause {
            self.add("fault", fault.to_string());
        } else if let Error::Store(fault) = cause {
            self.add("fault", fault.to_string());
        }
        let may_advise = self.site().is_ok_and(|site| site.may_advise_keys());
        let discovery = may_advise.then(|| discovery(self.settings));
        let (error_type, answer) =
            cause.gateway_answer(0, discovery.as_ref().map(|discovery| &*discovery.key_advice));
        let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        self.add("decision", if answer.status().is_server_error() { "unknown" } else { "refused" });
        self.add("status", answer.status().as_u16());
        self.add("errorType", error_type);
        self.add("error", body.get("error").cloned());
    }

    /// The decision in a word.
    async fn decide(&mut self, headers: &HeaderMap) -> Result<&'static str, Error> {
        let request = self.request;
        let (site, host) = (self.site()?, request.tenant.is_none().then_some(&*request.host));
        let incoming = Incoming::supposed(&request.method, &request.path, host, headers);
        let tenant = &site.tenant;
        let tool = request.tool.as_deref().filter(|_| routing::is_mcp(tenant, incoming.path()));
        let call = tool.map(|tool| Call::new(TOOL_CALL, Some(tool)));
        let calls = call.as_ref().map(std::slice::from_ref);
        let (decision, checked) = site.rule(&incoming, calls, &self.settings.fixed.keys.format)?;
        self.add_route(tenant, decision, incoming.path(), call.as_ref());
        if checked?.is_some() {
            return Ok("described");
        }
        let quota = match decision.access {
            RouteAccess::Deny => return Err(site.denied(decision, incoming.path())),
            RouteAccess::Public => {
                let [limit, of_bots] = site.visitor_limits(decision.route);
                let is_listed = |domain: &&String| self.settings.fixed.web_bot_auth.reach(domain).is_some();
                let bot = request.bot.as_ref().filter(is_listed).and(of_bots);
                if request.bot.is_some() {
                    self.add(
                        "bot",
                        if bot.is_some() { "known" } else { "a stranger: nobody reads its keys here" },
                    );
                }
                bot.or(limit).map(|limit| limit.quota)
            }
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
                        let formats =
                            (&self.settings.fixed.keys.format, self.settings.fixed.signature.format);
                        let credential = credential_of(headers, formats, accepted, || None)?;
                        let (Credential::Key { digest, .. }, Some(store)) = (credential, self.store) else {
                            self.add(
                                "agent",
                                "unknown: an embedded store is read by the running service alone",
                            );
                            return Ok("unknown");
                        };
                        let owner = owner_of(&digest, store).await?;
                        if !owner.is_for(&Scope::Tenant(Arc::clone(&tenant.id))) {
                            return Err(Denial::InvalidApiKey { agent: None }.into());
                        }
                        (owner.agent, self.settings.keys_end_with_signer().then_some(owner.signer))
                    }
                };
                Some(self.judged(site.access(decision.min_tier), agent, signer).await?)
            }
        };
        if let Some(quota) = quota {
            self.add("limit", quota.limit);
            self.add("remaining", REMAINING);
        }
        Ok(if decision.access == RouteAccess::Public { "public" } else { "admitted" })
    }

    fn site(&mut self) -> Result<Arc<Site>, Error> {
        let table = Arc::clone(&self.table);
        if let Some(id) = &self.request.tenant {
            let site = table.named(id).ok_or(Error::NotFound)?;
            self.add("tenant", &**id);
            return Ok(Arc::clone(site));
        }
        let host = of_authority(&self.request.host).ok_or(Error::UnknownHost)?;
        let site = table.find(&host).ok_or(Error::UnknownHost)?;
        let host = HostPattern::Exact((*host).into());
        let all = table.tenants().flat_map(|tenant| tenant.hosts.iter().map(move |own| (own, tenant)));
        let mut taking: Vec<_> = all.filter(|(own, _)| own.covers(&host)).collect();
        // Of two that take one host, one takes all that the other takes.
        taking.sort_by(|(one, _), (other, _)| one.covers(other).cmp(&other.covers(one)));
        let mut taking = taking.into_iter();
        self.add("tenant", &*site.tenant.id);
        self.add("host", taking.next().map(|(host, _)| host.to_string()));
        self.add("hostWhy", "the most precise that matches");
        self.add("otherHosts", taking.map(|(host, of)| format!("{host} of {}", of.id)).collect::<Vec<_>>());
        Ok(Arc::clone(site))
    }

    fn add_route(&mut self, tenant: &Tenant, decision: Decision, path: &[u8], call: Option<&Call<'_>>) {
        let (reading, candidates) = routing::candidates(tenant, &self.request.method, path, call);
        let taken = decision.route.and_then(|at| tenant.routes.get(at));
        let why = match reading {
            PathForm::Plain if taken.is_none() => {
                "no route takes the request, so the tenant's own rule counts"
            }
            PathForm::Plain => "the first route that takes the request",
            PathForm::Invalid => "no honest request has this path",
            PathForm::Escaped(_) | PathForm::Ambiguous(_) | PathForm::Anywhere => {
                "the path is ambiguous: the strictest of all routes that may be meant count"
            }
        };
        let others = candidates.into_iter().filter(|other| taken != Some(*other));
        self.add("route", taken.map_or("none".to_owned(), written));
        self.add("routeWhy", why);
        self.add("otherRoutes", others.map(written).collect::<Vec<_>>());
    }

    /// The quota of an agent, if its tier suffices and, where keys end with who signed for them, its key's signer may act for it.
    async fn judged(
        &mut self,
        access: &Access,
        agent: AgentId,
        key_signer: Option<Option<Address>>,
    ) -> Result<Quota, Error> {
        self.add("agent", agent.to_string());
        let profile = self.chain.profile(agent, Parts::Gate).await?;
        let profile = profile.filter(|_| !self.chain.reserves(agent));
        let profile = profile.ok_or(Denial::AgentNotFound { agent })?;
        self.add("owner", profile.owner_text());
        if let Some(signer) = key_signer {
            let written =
                signer.map_or("unknown: a former release made the key".to_owned(), |it| it.to_string());
            self.add("keySigner", written);
            let hears_wallet = self.settings.fixed.signature.agent_wallet;
            if !signer.is_some_and(|signer| profile.holders.may_act(signer, hears_wallet)) {
                self.add("keyWhy", "the key has ended: who signed for it may not act for the agent");
                return Err(Denial::InvalidApiKey { agent: None }.into());
            }
        }
        self.add("stake", profile.stake_text());
        let min_stake = access.tiers.sources().stake_of(access.min_tier);
        self.add("minStake", min_stake.map(|stake| stake.to_string()));
        let grade = access.tiers.grade(agent, &profile);
        self.add("tier", grade.tier.number());
        self.add("tierSource", grade.source);
        if access.denies_endpoint_mismatch {
            self.add("origin", "must be the one declared for the key, which is not looked at here");
        }
        Ok(judge(access, agent, &profile)?.1)
    }
}

/// The agent whose current key this is, and who signed for it. The store has just begun to connect, so it is asked until it answers.
async fn owner_of(digest: &KeyDigest, store: &dyn Store) -> Result<KeyOwner, Error> {
    let mut tries = 0;
    let owner = loop {
        match store.find(digest).await {
            Err(_) if tries < TRIES_MAX => tries += 1,
            found => break found?,
        }
        sleep(TRY_EVERY).await;
    };
    let unknown = Error::Denied(Denial::InvalidApiKey { agent: None });
    let owner = owner.ok_or_else(|| unknown.clone())?;
    let is_current = store.is_current(owner.agent, digest).await?;
    is_current.then_some(owner).ok_or(unknown)
}

/// A route as it is written.
fn written(route: &Route) -> String {
    let methods = route.methods.iter().map(|method| format!("{method} "));
    methods.chain([route.name()]).collect()
}
