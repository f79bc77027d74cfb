//! What each endpoint does: parse, ask the pipeline, write.

use http::{HeaderMap, StatusCode};

use crate::api::docs::{self, OPENAPI};
use crate::api::{Api, ApiRequest, ApiRules, routes::Endpoint};
use crate::assertion::NO_KEYS;
use crate::domain::{RpcUrl, UnixSeconds, WebOrigin};
use crate::error::Error;
use crate::pipeline::{Ask, Credential, KeyOrder, KeyWish, Recorder, SignedRequest};
use crate::record::RequestRecord;
use crate::wire::bodies::{
    parse_key_wish, parse_profile_read, parse_revocation, parse_signed, parse_status_query,
};
use crate::wire::{Answer, LocalRules, VerifyBody, answers, discovery::key_set, results::owner_profile};

impl Api {
    pub(super) async fn handle(
        &self,
        endpoint: Endpoint,
        request: &ApiRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        match endpoint {
            Endpoint::Verify => self.verify(request, record).await,
            Endpoint::VerifySignature => self.verify_signature(request, record).await,
            Endpoint::ReadProfile => self.read_profile(request, record).await,
            Endpoint::GenerateKey => self.generate_key(request, record).await,
            Endpoint::RotateKey => self.rotate_key(request, record).await,
            Endpoint::RevokeKey => self.revoke_key(request, record).await,
            Endpoint::KeyStatus => self.key_status(request).await,
            Endpoint::Livez => Ok(answers::alive()),
            Endpoint::Readyz => Ok(answers::readiness(&self.readiness.first_report().await, request.query)),
            Endpoint::Signing => {
                let ApiRules { console, access, discovery, .. } = &self.rules;
                let gateway_url = console.gateway_url.as_ref().map(RpcUrl::base);
                Ok(discovery.rules(&LocalRules { gateway_url, quotas: &access.quotas, tenant: None }))
            }
            Endpoint::KeySet => {
                let issuer = (self.rules.issuer)();
                Ok(key_set(issuer.as_ref().map_or(NO_KEYS, |issuer| issuer.key_set())))
            }
            Endpoint::Docs => Ok(docs::answer()),
            Endpoint::Console => {
                let answer = self.console.as_ref().and_then(|console| console.answer(request.path));
                answer.ok_or(Error::NotFound)
            }
            Endpoint::OpenApi => Ok(answers::json_text(StatusCode::OK, HeaderMap::new(), OPENAPI.into())),
        }
    }

    async fn verify(&self, request: &ApiRequest<'_>, record: &mut RequestRecord) -> Result<Answer, Error> {
        let body = VerifyBody::parse(request.body, self.pipeline.key_format())?;
        let credential = Credential::Key { digest: body.digest, named: body.agent };
        self.admit(credential, body.origin, request, record).await
    }

    async fn verify_signature(
        &self,
        request: &ApiRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let signed = parse_signed(request.body, self.pipeline.signature_format())?;
        record.agent = Some(signed.agent);
        self.admit(Credential::Signature(signed), None, request, record).await
    }

    /// Asks the pipeline, and answers with what it says.
    async fn admit(
        &self,
        credential: Credential,
        origin: Option<WebOrigin>,
        request: &ApiRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let ask = Ask { credential, client: request.client, origin, access: &self.rules.access };
        let outcome = self.pipeline.admit(&ask).await;
        self.recorder.decided(outcome.as_ref());
        let permit = outcome?;
        record.admitted(&permit);
        Ok(self.results.answer(&permit, UnixSeconds(self.clock.unix_seconds())))
    }

    async fn read_profile(
        &self,
        request: &ApiRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let read = parse_profile_read(request.body, self.pipeline.signature_format())?;
        record.agent = Some(read.agent);
        let profile = self.pipeline.owner_profile(request.client, &read, &self.rules.access.tiers).await?;
        record.tier = Some(profile.grade.tier);
        record.allowance = Some(profile.allowance);
        Ok(owner_profile(&profile, UnixSeconds(self.clock.unix_seconds())))
    }

    async fn generate_key(
        &self,
        request: &ApiRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let (signed, wish) = self.key_wish(request, false)?;
        record.key.clone_from(&wish.terms.name);
        let issued = self.pipeline.generate_key(order(request, signed, record), wish).await?;
        tracing::info!(agent = %issued.agent, "API key generated");
        Ok(answers::key_shown(&issued, None))
    }

    async fn rotate_key(
        &self,
        request: &ApiRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let (signed, wish) = self.key_wish(request, true)?;
        let grace_secs = wish.terms.grace_secs;
        record.key.clone_from(&wish.terms.name);
        let issued = self.pipeline.rotate_key(order(request, signed, record), wish).await?;
        record.key.clone_from(&issued.made.name);
        tracing::info!(agent = %issued.agent, "API key rotated");
        Ok(answers::key_shown(&issued, Some(grace_secs)))
    }

    fn key_wish(&self, request: &ApiRequest<'_>, rotates: bool) -> Result<(SignedRequest, KeyWish), Error> {
        let bounds = (self.pipeline.key_expires_secs_max(), rotates);
        parse_key_wish(request.body, self.pipeline.signature_format(), bounds)
    }

    async fn revoke_key(
        &self,
        request: &ApiRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let (signed, name) = parse_revocation(request.body, self.pipeline.signature_format())?;
        let agent = signed.agent;
        record.key.clone_from(&name);
        let allowance = self.pipeline.revoke_key(order(request, signed, record), name).await?;
        tracing::info!(%agent, "API key revoked");
        Ok(answers::key_revoked(agent, allowance))
    }

    async fn key_status(&self, request: &ApiRequest<'_>) -> Result<Answer, Error> {
        let agent = parse_status_query(request.query)?;
        let status = self.pipeline.key_status(request.client, agent).await?;
        Ok(answers::key_status(&agent.to_string(), &status))
    }
}

/// A request to change a key, by which its signer is noted.
fn order<'a>(
    request: &'a ApiRequest<'_>,
    signed: SignedRequest,
    record: &'a mut RequestRecord,
) -> KeyOrder<'a> {
    record.agent = Some(signed.agent);
    let recorder = request.audit.as_ref().map(|entry| entry as &dyn Recorder);
    KeyOrder { client: request.client, signed, by: &record.by, recorder }
}
