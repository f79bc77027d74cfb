//! What each endpoint does: parse, ask the pipeline, write.

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::api::{Api, ApiRequest, ApiRules, routes::Endpoint};
use crate::assertion::NO_KEYS;
use crate::domain::{RpcUrl, UnixSeconds, WebOrigin};
use crate::error::Error;
use crate::pipeline::{Ask, Credential, KeyOrder, Recorder, SignedRequest};
use crate::wire::bodies::{
    parse_key_wish, parse_profile_read, parse_revocation, parse_signed, parse_status_query, parse_verify,
};
use crate::wire::{Answer, LocalRules, answers, discovery::key_set, pages::guarded, results::owner_profile};

/// The machine-readable description of this API.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// The same for people, which `console/docs.mjs` writes. It runs no script and loads nothing.
pub(super) const PAGE: &str = include_str!("docs.html");

/// The page's Content-Security-Policy, which names the digest of its style.
pub(super) const POLICY: HeaderValue = HeaderValue::from_static(include_str!("docs.csp"));

impl Api {
    pub(super) async fn handle(
        &self,
        endpoint: Endpoint,
        request: &mut ApiRequest<'_>,
    ) -> Result<Answer, Error> {
        match endpoint {
            Endpoint::Verify => {
                let (credential, origin) = parse_verify(request.body, &self.pipeline.rules().key_format)?;
                self.admit(credential, origin, request).await
            }
            Endpoint::VerifySignature => {
                let signed = parse_signed(request.body, self.pipeline.rules().signature_format)?;
                request.record.agent = Some(signed.agent);
                self.admit(Credential::Signature(signed), None, request).await
            }
            Endpoint::ReadProfile => self.read_profile(request).await,
            Endpoint::GenerateKey => self.make_key(request, false).await,
            Endpoint::RotateKey => self.make_key(request, true).await,
            Endpoint::RevokeKey => self.revoke_key(request).await,
            Endpoint::KeyStatus => {
                let agent = parse_status_query(request.query)?;
                let status = self.pipeline.key_status(request.client, agent).await?;
                Ok(answers::key_status(&agent.to_string(), &status))
            }
            Endpoint::Livez => Ok(answers::alive()),
            Endpoint::Readyz => Ok(answers::readiness(&self.readiness.first_report().await, request.query)),
            Endpoint::Signing => {
                let ApiRules { console, access, discovery, .. } = &self.rules;
                let gateway_url = console.gateway_url.as_ref().map(RpcUrl::base);
                Ok(discovery.rules(&LocalRules { gateway_url, quotas: &access.quotas, tenant: None }))
            }
            Endpoint::KeySet => {
                let issuer = (self.rules.issuer)();
                Ok(key_set(issuer.as_ref().map_or(NO_KEYS, |issuer| &issuer.key_set)))
            }
            Endpoint::Docs => {
                let kind = HeaderValue::from_static("text/html; charset=utf-8");
                Ok(guarded(answers::text(StatusCode::OK, HeaderMap::new(), kind, PAGE.into()), POLICY))
            }
            Endpoint::Console => {
                let answer = self.console.as_ref().and_then(|console| console.answer(request.path));
                answer.ok_or(Error::NotFound)
            }
            Endpoint::OpenApi => Ok(answers::json_text(StatusCode::OK, HeaderMap::new(), OPENAPI.into())),
        }
    }

    /// Asks the pipeline, and answers with what it says.
    async fn admit(
        &self,
        credential: Credential,
        origin: Option<WebOrigin>,
        request: &mut ApiRequest<'_>,
    ) -> Result<Answer, Error> {
        let ask = Ask { credential, client: request.client, origin, access: &self.rules.access };
        let outcome = self.pipeline.admit(&ask).await;
        self.recorder.decided(outcome.as_ref());
        let permit = outcome?;
        request.record.admitted(&permit);
        Ok(self.results.answer(&permit, UnixSeconds(self.clock.unix_seconds())))
    }

    async fn read_profile(&self, request: &mut ApiRequest<'_>) -> Result<Answer, Error> {
        let read = parse_profile_read(request.body, self.pipeline.rules().signature_format)?;
        request.record.agent = Some(read.agent);
        let profile = self.pipeline.owner_profile(request.client, &read, &self.rules.access.tiers).await?;
        request.record.tier = Some(profile.grade.tier);
        request.record.allowance = Some(profile.allowance);
        Ok(owner_profile(&profile, UnixSeconds(self.clock.unix_seconds())))
    }

    /// Generates a key, or rotates one.
    async fn make_key(&self, request: &mut ApiRequest<'_>, rotates: bool) -> Result<Answer, Error> {
        let rules = self.pipeline.rules();
        let bounds = (rules.key_expires_secs_max, rotates);
        let (signed, wish) = parse_key_wish(request.body, rules.signature_format, bounds)?;
        let grace_secs = rotates.then_some(wish.terms.grace_secs);
        request.record.key.clone_from(&wish.terms.name);
        let order = order(request, signed);
        let issued = self.pipeline.make_key(order, wish, rotates).await?;
        request.record.key.clone_from(&issued.made.name);
        let done = if rotates { "rotated" } else { "generated" };
        tracing::info!(agent = %issued.agent, "API key {done}");
        Ok(answers::key_shown(&issued, grace_secs))
    }

    async fn revoke_key(&self, request: &mut ApiRequest<'_>) -> Result<Answer, Error> {
        let (signed, name) = parse_revocation(request.body, self.pipeline.rules().signature_format)?;
        let agent = signed.agent;
        request.record.key.clone_from(&name);
        let allowance = self.pipeline.revoke_key(order(request, signed), name).await?;
        tracing::info!(%agent, "API key revoked");
        Ok(answers::key_revoked(agent, allowance))
    }
}

/// A request to change a key, by which its signer is noted.
fn order<'a>(request: &'a mut ApiRequest<'_>, signed: SignedRequest) -> KeyOrder<'a> {
    request.record.agent = Some(signed.agent);
    let recorder = request.audit.as_ref().map(|entry| entry as &dyn Recorder);
    KeyOrder { client: request.client, signed, by: &request.record.by, recorder }
}
