//! Requests that are signed themselves: how their parts reach the reader of signatures, and what a 401 asks for.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::{ClientNet, MessageRefusal, Tenant, UnixSeconds};
use crate::gateway::{Gateway, context::Context, rule::Incoming};
use crate::http1::Fields;
use crate::message_signature::{Candidates, ERC_8128, ERC_8128_UNTAGGED, Message, OF_BOTS, Profile};

const ACCEPT_SIGNATURE: HeaderName = HeaderName::from_static("accept-signature");

impl Gateway {
    /// The signatures over a request, by the profiles that its tenant takes.
    pub(super) fn signatures<F: Fields>(
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
    pub(super) fn bot<F: Fields>(
        &self,
        request: &Incoming<'_, F>,
        tenant: &Tenant,
        client: ClientNet,
    ) -> Option<Box<str>> {
        let bots = self.rules.bots.as_ref()?;
        let now = UnixSeconds(self.clock.unix_seconds());
        bots.domain(&self.message(request, tenant).bot_signatures(&OF_BOTS, now)?, client)
    }

    /// Notes what the 401 to a request asks to be signed.
    pub(super) fn ask_for_signature<F: Fields>(&self, request: &Incoming<'_, F>, ctx: &mut Context) {
        let site = ctx.site.as_ref().filter(|site| site.tenant.credentials.erc8128);
        let asked_for = site.map(|site| ERC_8128.asked_for(&self.message(request, &site.tenant)));
        ctx.asked_for = asked_for.and_then(|asked_for| HeaderValue::try_from(asked_for).ok());
    }

    /// Writes the challenge of a 401 for requests that are signed themselves, behind others.
    pub(super) fn write_accept_signature(
        &self,
        refusal: Option<MessageRefusal>,
        ctx: &mut Context,
        headers: &mut HeaderMap,
    ) {
        if !ctx.site.as_ref().is_some_and(|site| site.tenant.credentials.has_messages()) {
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
    pub(super) fn account_kinds(&self) -> &'static str {
        if self.pipeline.signature_format().has_contracts() { "universal" } else { "eoa-only" }
    }

    fn message<'a, F: Fields>(&'a self, request: &Incoming<'a, F>, tenant: &'a Tenant) -> Message<'a, F> {
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
}
