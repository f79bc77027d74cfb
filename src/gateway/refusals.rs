//! Requests that go no further: refusals and failures as answers of the error table, with an admitted agent's limits and the
//! request's id; and the way on for those who are refused, the documents about the way in and the headers of a 401 that lead there.
//!
//! Addresses hold no host that a client made up: only one that the configuration names.

use http::header::{LINK, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::domain::{MessageRefusal, host};
use crate::error::Error;
use crate::gateway::context::{Context, destination_of};
use crate::gateway::discovery::{Document, is_named, resource};
use crate::gateway::{Gateway, policy::answers, rule::Incoming, site::Site};
use crate::http1::Fields;
use crate::message_signature::{ERC_8128, Terms};
use crate::wire::discovery::{key_set, signed_requests};
use crate::wire::{Answer, LocalRules, METADATA_PATH, TenantRules};

/// The link to the rules. It is relative, so that it is right whatever the host is called.
const HELP: HeaderValue = HeaderValue::from_static("</.well-known/tiergate>; rel=\"help\"");

const ACCEPT_SIGNATURE: HeaderName = HeaderName::from_static("accept-signature");

/// Why a request goes no further.
pub(super) enum End {
    /// A refusal or a failure.
    Error(Error),
    /// A preflight: the request only asks what a page of another origin may do.
    Preflight,
    /// The message of MCP has to be read before anything is decided.
    NeedsMessage,
    /// The document about the way in that the request asks for.
    Document(Box<Answer>),
}

impl From<Error> for End {
    fn from(cause: Error) -> Self {
        Self::Error(cause)
    }
}

impl Gateway {
    /// The document that a routed request asks for.
    pub(super) fn document<F: Fields>(
        &self,
        document: Document<'_>,
        request: &Incoming<'_, F>,
        site: &Site,
    ) -> Option<Answer> {
        let origin = self.origin(request, site);
        let tenant = TenantRules { min_tier: site.tenant.min_tier, credentials: site.tenant.credentials };
        let gateway_url = origin.as_deref();
        let quotas = &site.access(site.tenant.min_tier).quotas;
        let local = LocalRules { gateway_url, quotas, tenant: Some(tenant) };
        match document {
            Document::KeySet => Some(key_set(&site.issuer.as_ref()?.key_set)),
            Document::SignedRequests => {
                let Terms { chain_id, validity_secs_max, .. } = self.rules.terms;
                Some(signed_requests(chain_id, validity_secs_max, self.account_kinds()))
            }
            Document::Rules => Some(self.rules.discovery.rules(&local)),
            Document::Metadata(path) => {
                Some(self.rules.discovery.metadata(&format!("{}{path}", gateway_url?), &local))
            }
        }
    }

    /// Notes what the 401 to a request names: the metadata, and what is to be signed.
    pub(super) fn challenge<F: Fields>(
        &self,
        cause: Error,
        request: &Incoming<'_, F>,
        ctx: &mut Context,
    ) -> End {
        let Some(site) = ctx.site.as_ref().filter(|_| cause.is_unauthenticated()) else {
            return cause.into();
        };
        if site.tenant.credentials.erc8128 {
            let asked_for = ERC_8128.asked_for(&self.message(request, &site.tenant));
            ctx.asked_for = HeaderValue::try_from(asked_for).ok();
        }
        if ctx.has_documents
            && site.shows_metadata
            && let Some(origin) = self.origin(request, site)
        {
            let path = resource(request.path()).unwrap_or_default();
            let challenge =
                format!("Bearer realm=\"agents\", resource_metadata=\"{origin}{METADATA_PATH}{path}\"");
            ctx.challenge = HeaderValue::try_from(challenge).ok();
        }
        cause.into()
    }

    /// The scheme, host and port that a client asked, if the tenant's configuration names the host itself and the scheme is
    /// known.
    fn origin<F: Fields>(&self, request: &Incoming<'_, F>, site: &Site) -> Option<String> {
        let authority = request.authority?;
        let host = host::of_authority(authority).filter(|host| is_named(&site.tenant, host))?;
        let scheme = self.rules.believed.scheme(request.fields, request.peer, request.is_tls)?;
        Some(match (scheme, host::port_of(authority)) {
            ("https", Some(443)) | ("http", Some(80)) | (_, None) => format!("{scheme}://{host}"),
            (_, Some(port)) => format!("{scheme}://{host}:{port}"),
        })
    }

    /// The answer to a request that goes no further.
    pub(super) fn answer_to(&self, end: End, ctx: &mut Context) -> Answer {
        let mut answer = match end {
            End::Error(cause) => self.error(&cause, ctx),
            End::Preflight => preflight(ctx),
            End::Document(answer) => *answer,
            End::NeedsMessage => self.error(&Error::Internal, ctx),
        };
        ctx.write_answer_headers(answer.headers_mut());
        answer
    }

    fn error(&self, cause: &Error, ctx: &mut Context) -> Answer {
        let advised = ctx.site.as_ref().filter(|site| site.may_advise_keys());
        let key_advice = advised.map(|_| &*self.rules.discovery.key_advice);
        let (error_type, mut answer) = if ctx.speaks_grpc {
            cause.grpc_answer()
        } else {
            cause.gateway_answer(self.clock.unix_millis(), key_advice)
        };
        if cause.is_unauthenticated() {
            self.write_challenge(cause.message_refusal(), ctx, answer.headers_mut());
        }
        let Context { site, decision, record, .. } = ctx;
        self.recorder.refused(cause, error_type, record, &destination_of(site.as_deref(), *decision));
        ctx.speak_mcp(&mut answer, key_advice.filter(|_| cause.is_unauthenticated()));
        answer
    }

    /// Writes the headers of a 401 that lead on; the challenge for requests that are signed themselves behind others.
    fn write_challenge(&self, refusal: Option<MessageRefusal>, ctx: &mut Context, headers: &mut HeaderMap) {
        if let Some(challenge) = ctx.challenge.take() {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        let Some(site) = &ctx.site else { return };
        if ctx.has_documents && site.shows_rules {
            headers.insert(LINK, HELP);
        }
        if !site.tenant.credentials.has_messages() {
            return;
        }
        let parameters = [
            refusal.map(|refusal| format!("error=\"{}\"", refusal.code())),
            Some(format!("chains=\"eip155:{}\"", self.rules.terms.chain_id)),
            Some(format!("account=\"{}\"", self.account_kinds())),
        ];
        let parameters = parameters.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if let Ok(challenge) = HeaderValue::try_from(format!("ERC8128 {parameters}")) {
            headers.append(WWW_AUTHENTICATE, challenge);
        }
        if let Some(asked_for) = ctx.asked_for.take() {
            headers.insert(ACCEPT_SIGNATURE, asked_for);
        }
    }

    /// The accounts that may sign, as ERC-8128 names them.
    fn account_kinds(&self) -> &'static str {
        if self.pipeline.rules().signature_format.has_contracts() { "universal" } else { "eoa-only" }
    }
}

/// The answer to a preflight. It says nothing to a page that may not use the API.
fn preflight(ctx: &Context) -> Answer {
    let mut answer = Answer::new(Vec::new());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    if let (Some(rules), Some(_)) = (ctx.cors(), &ctx.origin) {
        answers::write_preflight(rules, answer.headers_mut());
    }
    answer
}
