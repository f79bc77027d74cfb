//! The documents that tell strangers how agents get in: `/.well-known/tiergate`, and the metadata of a protected resource
//! (RFC 9728), which holds the same. Everything in them is public.

use alloy::primitives::{Address, U256};
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use crate::domain::{
    AcceptedCredentials, Eip712Domain, KeyOperation, Measure, PerTier, Quota, TIERS, Tier, TierSources,
};
use crate::pipeline::Rules;
use crate::wire::answers::{Answer, json_text, typed_data, types_of};
use crate::wire::credentials::{KEY_HEADERS, SIGNATURE_HEADERS};

/// Where the rules for agents and owners are.
pub(crate) const RULES_PATH: &str = "/.well-known/tiergate";

/// Where the metadata of a protected resource is, before the resource's own path (RFC 9728, section 3.1).
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// Where the terms of signed requests are (ERC-8128, section 7).
pub(crate) const ERC8128_PATH: &str = "/.well-known/erc8128";

/// Where the public keys of assertions are (RFC 7517).
pub(crate) const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// A key is shown for longer than this before it signs.
const ONE_MINUTE: HeaderValue = HeaderValue::from_static("max-age=60");

/// Documents change with the configuration alone.
const FIVE_MINUTES: HeaderValue = HeaderValue::from_static("max-age=300");

/// A document of the gateway names the scheme and port that its own client used: no shared cache may give it to others.
const PRIVATE_FIVE_MINUTES: HeaderValue = HeaderValue::from_static("private, max-age=300");

#[derive(Debug)]
pub(crate) struct ServiceRules<'a> {
    pub(crate) rules: &'a Rules,
    /// The sources of tiers.
    pub(crate) tiers: &'a TierSources,
    /// The staked token, where it is known.
    pub(crate) token: Option<Address>,
    pub(crate) token_decimals: u8,
    /// The chain of the registries.
    pub(crate) chain_id: u64,
    /// The registries by their names.
    pub(crate) contracts: &'a [(&'static str, Address)],
    /// Where owners manage keys, without a slash at its end.
    pub(crate) keys_url: Option<&'a str>,
    /// True if the owner's page is there too.
    pub(crate) has_console: bool,
}

/// The documents of a service.
#[derive(Debug)]
pub(crate) struct Discovery {
    /// The fields that are the same everywhere.
    common: Map<String, Value>,
    stakes: [Option<U256>; TIERS.len()],
    key_prefix: String,
    /// A page for people.
    help_url: Option<String>,
    /// How one who has no key gets one, as a sentence.
    pub(crate) key_advice: String,
}

/// The rules at one listener or tenant.
#[derive(Debug)]
pub(crate) struct LocalRules<'a> {
    /// The address of the gateway, where it is known.
    pub(crate) gateway_url: Option<&'a str>,
    /// The limit of each tier.
    pub(crate) quotas: &'a PerTier<Quota>,
    /// The rules of a tenant; `None` at the API.
    pub(crate) tenant: Option<TenantRules>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TenantRules {
    /// The lowest tier that passes. Routes may ask for others.
    pub(crate) min_tier: Tier,
    /// The kinds of credentials that it takes.
    pub(crate) credentials: AcceptedCredentials,
}

impl Discovery {
    /// The documents of a service with these rules.
    pub(crate) fn new(service: &ServiceRules<'_>) -> Self {
        let ServiceRules { rules, tiers, contracts, keys_url, .. } = *service;
        let domain = rules.signing_domain.domain();
        let own_type = rules.signing_domain.own_type(KeyOperation::Generate);
        let has_contracts = rules.signature_format.has_contracts();
        // Contracts' signatures may be older than others where changes of keys have types of their own.
        let contract_max_age_secs = Some(rules.contract_max_age_secs)
            .filter(|secs| has_contracts && own_type.is_some() && *secs > rules.freshness.max_age_secs);
        let contracts: Value =
            contracts.iter().map(|(name, address)| ((*name).to_owned(), checksum(*address))).collect();
        let console = keys_url.filter(|_| service.has_console).map(|url| format!("{url}/console"));
        let all = (!tiers.are_stakes_alone()).then(|| ("tierSources".to_owned(), sources(tiers)));
        let further = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "profile": {
                "types": types_of("ProfileRead", None, &["agentId", "timestamp"]),
                "primaryType": "ProfileRead",
            },
            "keyOperations": own_type.map(|own| key_operations(domain, &own.service)),
            "timestampMaxAge": rules.freshness.max_age_secs,
            "timestampMaxAhead": rules.freshness.max_ahead_secs,
            "contractMaxAgeSeconds": contract_max_age_secs,
            "keysPerAgentMax": rules.keys_per_agent_max,
            "keyExpiresMaxSeconds": rules.key_expires_secs_max,
            "tierSource": tiers.named().next().map(|(name, _)| name),
            "tokenDecimals": service.token_decimals,
            "contractSignatures": has_contracts,
            "agentWallet": rules.agent_wallet,
            "chainId": service.chain_id,
            "contracts": contracts,
            "token": service.token.map(checksum),
            "keysUrl": keys_url,
            "consoleUrl": console,
        });
        let common = [typed_data(domain, None), further].into_iter().flat_map(fields).chain(all).collect();
        let help_url = console.or_else(|| Some(format!("{}/docs", keys_url?)));
        let at = help_url.as_deref().map(|url| format!(": {url}"));
        Self {
            common,
            stakes: TIERS.map(|tier| tiers.stake_of(tier)),
            key_prefix: rules.key_format.prefix().to_owned(),
            key_advice: format!("Ask the agent's owner for a key{}", at.unwrap_or_default()),
            help_url,
        }
    }

    /// 200 of `GET /.well-known/tiergate`: the parts of `eth_signTypedData_v4` beside the message, the window of the
    /// message's timestamp in seconds, the tiers, the registries, and where everything is.
    pub(crate) fn rules(&self, local: &LocalRules<'_>) -> Answer {
        let caching = if local.tenant.is_some() { PRIVATE_FIVE_MINUTES } else { FIVE_MINUTES };
        answer(&self.document(local), caching)
    }

    /// 200 of the metadata of a protected resource. It names no authorization server, for keys are not had by OAuth.
    pub(crate) fn metadata(&self, resource: &str, local: &LocalRules<'_>) -> Answer {
        let takes_keys = local.tenant.is_none_or(|tenant| tenant.credentials.api_key);
        let methods: &[&str] = if takes_keys { &["header"] } else { &[] };
        let mut document = fields(json!({
            "resource": resource,
            "bearer_methods_supported": methods,
            "tiergate": self.document(local),
        }));
        let help = self.help_url.as_deref().map(|url| ("resource_documentation".to_owned(), url.into()));
        document.extend(help);
        answer(&Value::Object(document), PRIVATE_FIVE_MINUTES)
    }

    /// The document about the rules.
    fn document(&self, local: &LocalRules<'_>) -> Value {
        let LocalRules { gateway_url, quotas, tenant } = *local;
        let tiers = TIERS.into_iter().zip(self.stakes).map(|(tier, stake)| {
            json!({
                "tier": tier.number(),
                "name": tier.name(),
                "stake": stake.map(|stake| stake.to_string()),
                "requestsPerMinute": quotas.get(tier).map_or(0, |quota| quota.limit),
            })
        });
        let tiers: Vec<Value> = tiers.collect();
        let mut document = self.common.clone();
        document.extend(fields(json!({ "gatewayUrl": gateway_url, "tiers": tiers })));
        if let Some(TenantRules { min_tier, credentials }) = tenant {
            let key = || json!({ "headers": KEY_HEADERS, "prefix": self.key_prefix });
            let signature = || json!({ "headers": SIGNATURE_HEADERS });
            let kinds = json!({
                "apiKey": credentials.api_key.then(key),
                "signature": credentials.signature.then(signature),
            });
            document.insert("minTier".to_owned(), min_tier.number().into());
            document.insert("credentials".to_owned(), kinds);
            if credentials.erc8128 {
                document.insert("signedRequests".to_owned(), ERC8128_PATH.into());
            }
        }
        Value::Object(document)
    }
}

/// The sources of tiers, each with the contract that is asked and the least number for tier 1, 2, and so on.
fn sources(tiers: &TierSources) -> Value {
    let told = |(source, measure): (&str, Option<&Measure>)| {
        let thresholds = |of: &Measure| of.thresholds.iter().map(ToString::to_string).collect::<Vec<_>>();
        json!({
            "source": source,
            "contract": measure.map(|of| checksum(of.contract)),
            "thresholds": measure.map(thresholds),
        })
    };
    tiers.named().map(told).collect()
}

/// The service's name in the types of changes of keys, and those types.
pub(crate) fn key_operations(domain: &Eip712Domain, service: &str) -> Value {
    let types = KeyOperation::ALL.into_iter().map(|operation| {
        let mut types = typed_data(domain, Some(operation));
        types.as_object_mut().map(|fields| fields.remove("domain"));
        (operation.name().to_owned(), types)
    });
    types.chain([("service".to_owned(), service.into())]).collect()
}

/// 200 of the terms of signed requests on a chain: for how many seconds a signature may be good, and which accounts sign.
pub(crate) fn signed_requests(chain_id: u64, validity_secs_max: u64, account_kinds: &str) -> Answer {
    let document = json!({
        "max_validity_sec": validity_secs_max,
        "chains": [format!("eip155:{chain_id}")],
        "account_verification": account_kinds,
        "route_policies": {
            "default": {
                "required_components": ["x-agent-id"],
                "replay": "non-replayable",
                "content_digest": "request-body",
            },
        },
    });
    answer(&document, FIVE_MINUTES)
}

/// 200 of the public keys of assertions.
#[must_use]
pub(crate) fn key_set(text: &str) -> Answer {
    let mut answer = json_text(StatusCode::OK, HeaderMap::with_capacity(8), text.into());
    answer.headers_mut().insert(CACHE_CONTROL, ONE_MINUTE);
    answer
}

fn checksum(address: Address) -> String {
    address.to_checksum(None)
}

/// The fields of an object.
fn fields(object: Value) -> Map<String, Value> {
    if let Value::Object(fields) = object { fields } else { Map::new() }
}

fn answer(document: &Value, caching: HeaderValue) -> Answer {
    let text = document.to_string().into_bytes();
    let mut answer = json_text(StatusCode::OK, HeaderMap::with_capacity(8), text);
    answer.headers_mut().insert(CACHE_CONTROL, caching);
    answer
}
