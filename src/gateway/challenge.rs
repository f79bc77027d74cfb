//! The way on for those who are refused: the documents about the way in, and the header of a 401 that leads there.
//!
//! Addresses hold no host that a client made up: only one that the configuration names.

use http::HeaderValue;

use crate::domain::host;
use crate::error::Error;
use crate::gateway::discovery::{Document, is_named, resource};
use crate::gateway::{Gateway, context::Context, refusals::End, rule::Incoming, site::Site};
use crate::http1::Fields;
use crate::message_signature::Terms;
use crate::wire::discovery::{key_set, signed_requests};
use crate::wire::{Answer, LocalRules, METADATA_PATH, TenantRules};

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
            Document::KeySet => Some(key_set(site.issuer.as_ref()?.key_set())),
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

    /// Has the 401 to a request name the metadata.
    pub(super) fn challenge<F: Fields>(
        &self,
        cause: Error,
        request: &Incoming<'_, F>,
        ctx: &mut Context,
    ) -> End {
        if cause.is_unauthenticated() {
            self.ask_for_signature(request, ctx);
        }
        if cause.is_unauthenticated()
            && ctx.has_documents
            && let Some(site) = ctx.site.as_ref().filter(|site| site.shown.metadata)
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
}
