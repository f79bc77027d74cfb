//! The corridor of the gateway: route, extract, verify, find a place, charge. It alone makes a [`Passage`], without which no
//! request goes upstream. It reads every protocol's requests through one view.

use std::{net::IpAddr, sync::Arc};

use crate::domain::{Allowance, ClientNet, Decision, DigestCheck, RouteAccess};
use crate::gateway::held::{HeldRoom, Holder};
use crate::gateway::room::{Full, Guest, Place};
use crate::gateway::site::{Site, VisitorLimit};
use crate::gateway::{
    Gateway, checked_body::CheckedBody, policy::requests::asks_for_stream, rule::Incoming,
    upstreams::Upstreams,
};
use crate::http1::{Fields, Lines, name::Name};
use crate::message_signature::{BodyDigest, Content};
use crate::pipeline::{Credential, credential::Ask, permit::Permit, standing::Standing};
use crate::ports::RouteScope;
use crate::record::RequestRecord;
use crate::wire::credentials::{credential_of, origin_of};
use crate::wire::{ErrorCause, client_ip::client_of};

/// The tenant of a request, and the tenant's rule for it.
pub(super) struct Route {
    pub(super) site: Arc<Site>,
    pub(super) decision: Decision,
    /// True if the answer to its call of MCP lasts.
    pub(super) is_stream: bool,
}

/// Proof that a request may go upstream. Made here alone.
pub(super) struct Passage {
    pub(super) caller: Caller,
    pub(super) route: Route,
    /// The address that the request came from.
    pub(super) peer: IpAddr,
    /// The body of a signed request, to be compared with its digest.
    pub(super) body: Option<Box<CheckedBody>>,
    /// Held for as long as the request is under way here.
    _place: Option<Place>,
}

/// The caller that was let through.
pub(super) enum Caller {
    /// An agent that the pipeline has admitted, and the assertion about it that the tenant asks for.
    Agent(Permit, Option<Arc<str>>),
    /// Anybody: the route is public.
    Anyone,
    /// Anybody, of a client that has so much left on the route; and the client's domain, if it has proven one.
    Visitor(Arc<VisitorLimit>, Allowance, Option<Box<str>>),
}

impl Route {
    /// The upstreams that the request would go to.
    pub(super) fn upstreams(&self) -> &Arc<Upstreams> {
        self.site.upstreams(self.decision.route)
    }
}

impl Passage {
    /// Writes what is left of the caller's limit.
    pub(super) fn write_quota(&self, lines: &mut impl Lines) {
        match &self.caller {
            Caller::Agent(permit, _) => {
                self.route.site.quota_headers(permit.tier()).write(permit.allowance().remaining, lines);
            }
            Caller::Visitor(limit, allowance, _) => limit.headers.write(allowance.remaining, lines),
            Caller::Anyone => {}
        }
    }
}

impl Gateway {
    /// Lets a routed request through, or refuses it. A request without a place is not charged.
    pub(super) async fn let_through<F: Fields + Sync>(
        &self,
        request: &Incoming<'_, F>,
        route: Route,
        record: &mut RequestRecord,
    ) -> Result<Passage, ErrorCause> {
        record.step("route", &self.clock);
        if route.decision.access == RouteAccess::Deny {
            return Err(route.site.denied(route.decision, request.path())); // 403, 405
        }
        check_length(request.fields, &route.site)?; // 413
        let client = client_of(request.peer, request.fields, &self.rules.client_proxies);
        let (caller, place, body) = if route.decision.access == RouteAccess::Public {
            let place = self.find_place(request, &route.site, Guest::Stranger(client), None).await?; // 503
            record.step("place", &self.clock);
            let [limit, bots_limit] = route.site.visitor_limits(route.decision.route);
            let bot =
                bots_limit.and_then(|limit| Some((limit, self.bot(request, &route.site.tenant, client)?)));
            let caller = match (bot, limit) {
                (Some((limit, domain)), _) => {
                    let scope = RouteScope(format!("{} {domain}", limit.scope.0).into());
                    let allowance = self.pipeline.pass(ClientNet::NOBODY, &scope, limit.quota).await?; // 429, 500
                    Caller::Visitor(Arc::clone(limit), allowance, Some(domain))
                }
                (None, Some(limit)) => {
                    let allowance = self.pipeline.pass(client, &limit.scope, limit.quota).await?; // 429, 500
                    Caller::Visitor(Arc::clone(limit), allowance, None)
                }
                (None, None) => Caller::Anyone,
            };
            if let Caller::Visitor(_, allowance, _) = &caller {
                record.allowance = Some(*allowance);
                record.step("charge", &self.clock);
            }
            record.decision = Some("public");
            (caller, place, None)
        } else {
            self.ask(request, &route, client, record).await? // 400, 401, 403, 404, 429, 500, 503
        };
        Ok(Passage { caller, route, peer: request.peer, body, _place: place })
    }

    /// The very pipeline that the API asks.
    async fn ask<F: Fields + Sync>(
        &self,
        request: &Incoming<'_, F>,
        route: &Route,
        client: ClientNet,
        record: &mut RequestRecord,
    ) -> Result<(Caller, Option<Place>, Option<Box<CheckedBody>>), ErrorCause> {
        let (fields, site) = (request.fields, &route.site);
        let formats = (self.pipeline.key_format(), self.pipeline.signature_format());
        let accepted = site.tenant.credentials;
        let credential = credential_of(fields, formats, accepted, || self.signatures(request, &site.tenant))?;
        record.credential = Some(credential.kind());
        let origin = origin_of(fields)?;
        let access = site.access(route.decision.min_tier);
        let ask = Ask { credential, client, origin, access };
        // A read of the chain may take seconds. Keys ask for no leave: a neighbour's flood would use it up, and refuse good ones.
        let asking = ask.credential.is_signed().then(|| self.room.ask(client)).transpose();
        let _asking = asking.map_err(|full| overloaded(site, full))?; // 503
        let standing = match self.rules.verify_time_max {
            Some(time_max) => {
                let verified = self.pipeline.verify_within(&ask, time_max).await;
                verified.map_err(|_| overloaded(site, Full::Process))? // 503
            }
            None => self.pipeline.verify(&ask).await,
        };
        record.step("verify", &self.clock);
        let standing = standing.inspect_err(|refusal| self.observer.recorder.decided(Err(refusal)))?;
        let agent = standing.agent();
        let is_stream = route.is_stream || asks_for_stream(fields, route.decision.upgrades);
        let guest = if is_stream { Guest::Stream(agent) } else { Guest::Agent(agent) };
        let place = self.find_place(request, site, guest, Some(&standing)).await?;
        record.step("place", &self.clock);
        let mut body = None;
        if request.content == Content::Follows
            && matches!(ask.credential, Credential::Messages(_))
            && let Some(Ok(digest)) = BodyDigest::of(fields)
        {
            let holder = Holder::Agent(agent);
            let room = || HeldRoom::new(&self.memory, holder, &site.counters, announced(fields));
            let room = (site.tenant.digest == DigestCheck::Before).then(room).transpose();
            let room = room.map_err(|_| ErrorCause::Overloaded)?; // 503
            body = Some(Box::new(CheckedBody::new(digest, room)));
        }
        let outcome = self.pipeline.spend(standing, &ask).await;
        record.step("charge", &self.clock);
        let outcome = outcome.and_then(|permit| Ok((site.assertion(&permit)?, permit)));
        self.observer.recorder.decided(outcome.as_ref().map(|(_, permit)| permit));
        let (assertion, permit) = outcome?;
        record.admitted(&permit);
        Ok((Caller::Agent(permit, assertion), place, body))
    }

    /// A place at the tenant for a request that is ours to forward, or the answer of one that is full.
    async fn find_place<F: Fields>(
        &self,
        request: &Incoming<'_, F>,
        site: &Site,
        guest: Guest,
        standing: Option<&Standing>,
    ) -> Result<Option<Place>, ErrorCause> {
        if request.dialect.is_some() {
            return Ok(None);
        }
        let found = self.room.enter(&site.room, &site.tenant.in_flight, guest).await;
        found.map(Some).map_err(|full| {
            let overloaded = overloaded(site, full);
            match (full, standing) {
                (Full::Agent { max } | Full::Streams { max }, Some(standing)) => {
                    let (agent, tier, limit) = (standing.agent(), standing.tier(), standing.quota().limit);
                    ErrorCause::TooManyInFlight { agent, tier, limit, max }
                }
                (_, _) => overloaded,
            }
        })
    }
}

fn overloaded(site: &Site, full: Full) -> ErrorCause {
    site.counters.overloaded(full.into());
    ErrorCause::Overloaded
}

/// The length that a body announces.
pub(super) fn announced(fields: &impl Fields) -> Option<u64> {
    std::str::from_utf8(fields.values(Name::ContentLength).next()?).ok()?.parse().ok()
}

/// Refuses a body that is announced to be longer than the tenant takes.
fn check_length(fields: &impl Fields, site: &Site) -> Result<(), ErrorCause> {
    let Some(bytes_max) = site.tenant.proxy.body_bytes_max else { return Ok(()) };
    match announced(fields) {
        Some(bytes) if bytes > bytes_max => Err(ErrorCause::UploadTooLarge { bytes_max }),
        Some(_) | None => Ok(()),
    }
}
