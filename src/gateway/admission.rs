//! Admission by the gateway: route, extract, verify, take a slot, charge. It alone makes a [`Admitted`], without which no
//! request goes upstream. It reads every protocol's requests through one view,
//! and hands the parts of those that are signed themselves to the reader of signatures.

use std::{net::IpAddr, sync::Arc};

use crate::domain::{Allowance, ClientNet, Decision, MessageRefusal, RouteAccess, Tenant, UnixSeconds};
use crate::error::Error;
use crate::gateway::held::{CheckedBody, HeldBytes};
use crate::gateway::in_flight::{AtLimit, Caller, RequestSlot};
use crate::gateway::policy::requests::asks_for_stream;
use crate::gateway::site::{Site, VisitorLimit};
use crate::gateway::{Gateway, rule::Incoming};
use crate::http1::{Fields, name::Name};
use crate::message_signature::{
    BodyDigest, Candidates, Content, ERC_8128, ERC_8128_UNTAGGED, Message, OF_BOTS, Profile,
};
use crate::pipeline::{Ask, Credential, permit::Permit, standing::Standing};
use crate::ports::RouteScope;
use crate::record::RequestRecord;
use crate::wire::client_ip::client_of;
use crate::wire::credentials::{credential_of, origin_of};

/// Proof that a request may go upstream, by the tenant and the rule that its context has. Made here alone.
pub(super) struct Admitted {
    pub(super) grant: Grant,
    /// The address that the request came from.
    pub(super) peer: IpAddr,
    /// Held for as long as the request is under way here.
    _slot: Option<RequestSlot>,
}

/// The grant that was let through.
pub(super) enum Grant {
    /// An agent that the pipeline has admitted, and the assertion about it that the tenant asks for.
    Agent(Permit, Option<Arc<str>>),
    /// The route is public, without a limit.
    Anyone,
    /// The route is public, and the client has so much left there; and the client's domain, if it has proven one.
    Visitor(Arc<VisitorLimit>, Allowance, Option<Box<str>>),
}

impl Gateway {
    /// Lets a routed request through, or refuses it, by its tenant, the tenant's rule, and whether its answer lasts. Gives the body
    /// of a signed request too, to be compared with its digest. A request without a slot is not charged.
    pub(super) async fn authorize<F: Fields + Sync>(
        &self,
        request: &Incoming<'_, F>,
        (site, decision, is_stream): (&Site, Decision, bool),
        record: &mut RequestRecord,
    ) -> Result<(Admitted, Option<Box<CheckedBody>>), Error> {
        record.step("route", &self.clock);
        if decision.access == RouteAccess::Deny {
            return Err(site.denied(decision, request.path())); // 403, 405
        }
        if let Some(bytes_max) = site.tenant.proxy.body_bytes_max
            && announced(request.fields).is_some_and(|bytes| bytes > bytes_max)
        {
            return Err(Error::UploadTooLarge { bytes_max }); // 413
        }
        let client = client_of(request.peer, request.fields, &self.rules.client_proxies);
        let (grant, slot, body) = if decision.access == RouteAccess::Public {
            let slot = self.take_slot(request, site, Caller::Client(client), None).await?; // 503
            record.step("place", &self.clock);
            let [limit, bots_limit] = site.visitor_limits(decision.route);
            let bot = bots_limit.and_then(|limit| Some((limit, self.bot(request, &site.tenant, client)?)));
            let grant = match (bot, limit) {
                (Some((limit, domain)), _) => {
                    let scope = RouteScope(format!("{} {domain}", limit.scope.0).into());
                    let allowance = self.pipeline.pass(ClientNet::NOBODY, &scope, limit.quota).await?; // 429, 500
                    Grant::Visitor(Arc::clone(limit), allowance, Some(domain))
                }
                (None, Some(limit)) => {
                    let allowance = self.pipeline.pass(client, &limit.scope, limit.quota).await?; // 429, 500
                    Grant::Visitor(Arc::clone(limit), allowance, None)
                }
                (None, None) => Grant::Anyone,
            };
            if let Grant::Visitor(_, allowance, _) = &grant {
                record.allowance = Some(*allowance);
                record.step("charge", &self.clock);
            }
            record.decision = Some("public");
            (grant, slot, None)
        } else {
            self.ask(request, (site, decision, is_stream), client, record).await? // 400, 401, 403, 404, 429, 500, 503
        };
        Ok((Admitted { grant, peer: request.peer, _slot: slot }, body))
    }

    /// The very pipeline that the API asks.
    async fn ask<F: Fields + Sync>(
        &self,
        request: &Incoming<'_, F>,
        (site, decision, is_stream): (&Site, Decision, bool),
        client: ClientNet,
        record: &mut RequestRecord,
    ) -> Result<(Grant, Option<RequestSlot>, Option<Box<CheckedBody>>), Error> {
        let fields = request.fields;
        let formats = (&self.pipeline.rules().key_format, self.pipeline.rules().signature_format);
        let accepted = site.tenant.credentials;
        let credential = credential_of(fields, formats, accepted, || self.signatures(request, &site.tenant))?;
        record.credential = Some(credential.kind());
        let origin = origin_of(fields)?;
        let access = site.access(decision.min_tier);
        let ask = Ask { credential, client, origin, access };
        // A read of the chain may take seconds. Keys ask for no leave: a neighbour's flood would use it up, and refuse good ones.
        let is_signed = !matches!(ask.credential, Credential::Key { .. });
        let asking = is_signed.then(|| self.in_flight.begin_verification(client)).transpose();
        let _asking = asking.map_err(|at_limit| overloaded(site, at_limit))?; // 503
        let standing = match self.rules.verify_time_max {
            Some(time_max) => {
                let verified = self.pipeline.verify_within(&ask, time_max).await;
                verified.map_err(|_| overloaded(site, AtLimit::Process))? // 503
            }
            None => self.pipeline.verify(&ask).await,
        };
        record.step("verify", &self.clock);
        let standing = standing.inspect_err(|refusal| self.recorder.decided(Err(refusal)))?;
        let agent = standing.agent();
        let is_stream = is_stream || asks_for_stream(fields, decision.upgrades);
        let caller = if is_stream { Caller::Stream(agent) } else { Caller::Agent(agent) };
        let slot = match self.take_slot(request, site, caller, Some(&standing)).await {
            Ok(slot) => slot,
            Err(refusal) => return Err(self.pipeline.refuse(standing, &ask, refusal).await),
        };
        record.step("place", &self.clock);
        let mut body = None;
        if request.content == Content::Follows
            && matches!(ask.credential, Credential::Messages(_))
            && let Some(Ok(digest)) = BodyDigest::of(fields)
        {
            let held =
                || HeldBytes::new(&self.memory, Caller::Agent(agent), &site.counters, announced(fields));
            let held = site.tenant.holds_bodies.then(held).transpose();
            let held = match held {
                Ok(held) => held,
                Err(_) => return Err(self.pipeline.refuse(standing, &ask, Error::Overloaded).await), // 503
            };
            body = Some(Box::new(CheckedBody::new(digest, held)));
        }
        let outcome = self.pipeline.spend(standing, &ask).await;
        record.step("charge", &self.clock);
        let outcome =
            outcome.and_then(|permit| Ok((site.assertion(&permit).map_err(Error::Entropy)?, permit)));
        self.recorder.decided(outcome.as_ref().map(|(_, permit)| permit));
        let (assertion, permit) = outcome?;
        record.admitted(&permit);
        Ok((Grant::Agent(permit, assertion), slot, body))
    }

    /// The signatures over a request, by the profiles that its tenant takes.
    fn signatures<F: Fields>(
        &self,
        request: &Incoming<'_, F>,
        tenant: &Tenant,
    ) -> Option<Result<Candidates, MessageRefusal>> {
        let accepted = tenant.credentials;
        let rows = [(accepted.erc8128, &ERC_8128), (accepted.erc8128_untagged, &ERC_8128_UNTAGGED)];
        let profiles: Vec<&Profile> =
            rows.into_iter().filter_map(|(is_taken, row)| is_taken.then_some(row)).collect();
        let now = UnixSeconds(self.clock.unix_seconds());
        self.message(request, tenant).candidates(&profiles, &self.rules.terms, now)
    }

    /// The domain of the bot that has signed a request.
    fn bot<F: Fields>(
        &self,
        request: &Incoming<'_, F>,
        tenant: &Tenant,
        client: ClientNet,
    ) -> Option<Box<str>> {
        let bots = self.rules.bots.as_ref()?;
        let now = UnixSeconds(self.clock.unix_seconds());
        bots.domain(&self.message(request, tenant).bot_signatures(&OF_BOTS, now)?, client)
    }

    /// A request as the reader of signatures has it.
    pub(super) fn message<'a, F: Fields>(
        &'a self,
        request: &Incoming<'a, F>,
        tenant: &'a Tenant,
    ) -> Message<'a, F> {
        let scheme = match request.dialect {
            None => self.rules.believed.scheme(request.fields, request.peer, request.is_tls),
            Some(_) => Some(if request.is_tls { "https" } else { "http" }),
        };
        Message {
            method: request.method,
            scheme,
            authority: request.authority.unwrap_or_default(),
            hosts: Some(&tenant.signed_hosts),
            target: request.target,
            fields: request.fields,
            content: request.content,
        }
    }

    /// A slot at the tenant for a request that is ours to forward, or the answer of one that is at_limit.
    async fn take_slot<F: Fields>(
        &self,
        request: &Incoming<'_, F>,
        site: &Site,
        caller: Caller,
        standing: Option<&Standing>,
    ) -> Result<Option<RequestSlot>, Error> {
        if request.dialect.is_some() {
            return Ok(None);
        }
        let found = self.in_flight.acquire(&site.in_flight, &site.tenant.in_flight, caller).await;
        found.map(Some).map_err(|at_limit| {
            let overloaded = overloaded(site, at_limit);
            match (at_limit, standing) {
                (AtLimit::Agent { max } | AtLimit::Streams { max }, Some(standing)) => {
                    let (agent, tier, limit) = (standing.agent(), standing.tier(), standing.quota().limit);
                    Error::TooManyInFlight { agent, tier, limit, max }
                }
                (_, _) => overloaded,
            }
        })
    }
}

fn overloaded(site: &Site, at_limit: AtLimit) -> Error {
    site.counters.overloaded(at_limit.into());
    Error::Overloaded
}

/// The length that a body announces.
pub(super) fn announced(fields: &impl Fields) -> Option<u64> {
    std::str::from_utf8(fields.values(Name::ContentLength).next()?).ok()?.parse().ok()
}
