//! The pipeline over the real embedded store, a chain whose answers the test sets, and a clock that the test moves.

mod custody;
mod failures;
mod keys;
mod messages;
mod order;
mod owners;
mod readiness;
mod scripted;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use alloy::primitives::{Address, B256, U256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use parking_lot::Mutex;
use tempfile::TempDir;

use self::scripted::{Counting, Reported, ScriptedChain, TamperedStore};
use crate::domain::{
    AgentId, Agents, ApiKeyFormat, Binding, ClientNet, Denial, Details, Eip712Domain, Freshness, Holders,
    KeyDigest, KeyTerms, Nonce, NonceClaim, PerTier, Quota, SignatureBytes, SignatureFormat, SigningDomain,
    Texts, Tier, TierSources, Tiers, TrustProfile, UnixSeconds, WebOrigin,
};
use crate::error::Error;
use crate::pipeline::{Access, Pipeline, Ports, Rules, custody::KeyOrder, owner::Signatory, permit::Permit};
use crate::pipeline::{Ask, Credential, SignedRequest};
use crate::ports::{Clock, KeyChange, KeyChanged, NewKey, Parts, Scope, Store, simulated::SimulatedClock};
use crate::store::{EmbeddedStore, embedded::Options};

const START_SECS: u64 = 1_700_000_000;
const STAKES: [u64; 4] = [1_000, 10_000, 100_000, 500_000];

/// The requests that each tier has in a minute.
const LIMITS: [u32; 4] = [2, 4, 6, 8];

fn agent(id: u64) -> AgentId {
    AgentId::new(U256::from(id))
}

fn client(last: u8) -> ClientNet {
    ClientNet::of([192, 0, 2, last].into())
}

fn signer(number: u8) -> PrivateKeySigner {
    PrivateKeySigner::from_bytes(&B256::repeat_byte(number)).unwrap()
}

/// A pipeline whose agent 7 exists, belongs to `signer(1)`, and has the stake of tier 1.
struct Scene {
    pipeline: Arc<Pipeline>,
    chain: Arc<ScriptedChain>,
    store: Arc<TamperedStore>,
    clock: Arc<SimulatedClock>,
    entropy: Arc<Counting>,
    access: Access,
    nonces: AtomicU64,
    by: OnceLock<Signatory>,
    _folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::with(SignatureFormat::Keys, None)
    }

    fn with(signature_format: SignatureFormat, failures: Option<Quota>) -> Self {
        Self::under(signature_format, failures, |_| {})
    }

    fn under(
        signature_format: SignatureFormat,
        failures: Option<Quota>,
        change: impl FnOnce(&mut Rules),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The store is made a minute before.
        let clock = Arc::new(SimulatedClock::new(START_SECS - 61));
        let options = Options {
            path: folder.path().to_owned(),
            binding: Binding::new(8004, Address::repeat_byte(1), false),
            nonce_retention_secs: 86_400,
            max_ahead_secs: 60,
        };
        let inner = EmbeddedStore::open(options, clock.clone()).unwrap();
        clock.advance_secs(61);
        let store = Arc::new(TamperedStore {
            inner,
            revokes_before_admit: AtomicBool::new(false),
            revoked_elsewhere: AtomicBool::new(false),
            knows_no_signers: AtomicBool::new(false),
            is_far: AtomicBool::new(false),
            look_ups: AtomicUsize::new(0),
            most_look_ups: AtomicUsize::new(0),
            hangs: AtomicBool::new(false),
            broken: Mutex::new(None),
            calls: Mutex::default(),
        });
        let profile = Arc::new(profile(signer(1).address(), STAKES[0]));
        let chain = Arc::new(ScriptedChain {
            owner: Mutex::new(Reported::Is(Some(signer(1).address()))),
            wallet: Mutex::default(),
            profile: Mutex::new(Reported::Is(Some(Arc::clone(&profile)))),
            latest: Mutex::new(Reported::Is(Some(profile))),
            is_down: AtomicBool::new(false),
            has_code: AtomicBool::new(false),
            accepts: AtomicBool::new(false),
            gate: Mutex::default(),
            last_owner: Mutex::default(),
            askers: Mutex::default(),
            calls: Mutex::default(),
        });
        let entropy = Arc::new(Counting { next: AtomicU64::new(1), is_empty: AtomicBool::new(false) });
        let ports = Ports {
            chain: chain.clone(),
            store: store.clone(),
            clock: clock.clone(),
            entropy: entropy.clone(),
        };
        let mut rules = Rules {
            signing_domain: domain(),
            signature_format,
            freshness: Freshness { max_age_secs: 300, max_ahead_secs: 60 },
            contract_max_age_secs: 0,
            key_format: ApiKeyFormat::new("svc_live_v1_"),
            keys_end_with_signer: false,
            keys_per_agent_max: 1,
            key_expires_secs_max: 86_400,
            agent_wallet: false,
            key_management: Quota::per_hour(10),
            failures,
        };
        change(&mut rules);
        let quotas = PerTier(LIMITS.map(Quota::per_minute));
        Self {
            pipeline: Arc::new(Pipeline::new(ports, rules)),
            chain,
            store,
            clock,
            entropy,
            access: Access {
                scope: Scope::Api,
                min_tier: Tier::Bronze,
                tiers: Tiers::new(
                    TierSources { stakes: Some(PerTier(STAKES.map(U256::from))), ..TierSources::default() },
                    Arc::new(Agents::new()),
                ),
                quotas,
                denies_endpoint_mismatch: false,
                parts: Parts::Whole,
            },
            nonces: AtomicU64::new(1),
            by: OnceLock::new(),
            _folder: folder,
        }
    }

    fn stake(&self, stake: u64) {
        let profile = Arc::new(profile(signer(1).address(), stake));
        *self.chain.profile.lock() = Reported::Is(Some(Arc::clone(&profile)));
        *self.chain.latest.lock() = Reported::Is(Some(profile));
    }

    /// A request of agent 7 that is signed now, with a nonce of its own.
    fn signed(&self) -> SignedRequest {
        self.signed_by(&signer(1), agent(7), self.clock.unix_seconds())
    }

    fn signed_by(&self, signer: &PrivateKeySigner, agent: AgentId, at: u64) -> SignedRequest {
        let nonce = Nonce::new(U256::from(self.nonces.fetch_add(1, Ordering::SeqCst)));
        let signed_at = UnixSeconds(at);
        let digest = domain().digest(agent, nonce, signed_at);
        let signature = SignatureBytes::from_bytes(signer.sign_hash_sync(&digest).unwrap().as_bytes());
        SignedRequest { agent, nonce, signed_at, signature }
    }

    /// A current key of agent 7, declared for an endpoint or not.
    async fn key(&self, declared: Option<&str>) -> Credential {
        let nonce = Nonce::new(U256::from(self.nonces.fetch_add(1, Ordering::SeqCst)));
        let key = ApiKeyFormat::new("svc_live_v1_").mint(nonce.to_bytes());
        let origin = declared.map(|url| WebOrigin::parse(url).unwrap());
        let signer = signer(1).address();
        let (terms, per_agent_max) = (KeyTerms::default(), 1);
        let digest = key.digest();
        let new = NewKey { digest, origin, signer, terms, per_agent_max };
        let change = KeyChange::Rotate(new);
        let claim = NonceClaim { nonce, signed_at: UnixSeconds(self.clock.unix_seconds()) };
        assert_eq!(self.store.inner.changed(agent(7), claim, change).await.unwrap(), KeyChanged::Done);
        Credential::Key { digest: key.digest(), named: None }
    }

    async fn admit(&self, credential: &Credential) -> Result<Permit, Error> {
        self.admit_from(client(1), credential, None).await
    }

    async fn admit_from(
        &self,
        client: ClientNet,
        credential: &Credential,
        origin: Option<&str>,
    ) -> Result<Permit, Error> {
        let origin = origin.map(|url| WebOrigin::parse(url).unwrap());
        let credential = credential.clone();
        self.pipeline.admit(&Ask { credential, client, origin, access: &self.access }).await
    }

    async fn verdict(&self, credential: &Credential) -> &'static str {
        verdict(&self.admit(credential).await)
    }

    /// Fills agent 7's window, by signatures.
    async fn fill_window(&self) {
        for _ in 0..=LIMITS[3] {
            if self.verdict(&Credential::Signature(self.signed())).await != "admitted" {
                return;
            }
        }
        panic!("the window is never full");
    }

    fn order(&self, signed: SignedRequest) -> KeyOrder<'_> {
        KeyOrder { client: client(1), signed, by: &self.by, recorder: None }
    }
}

fn named(credential: &Credential, agent: AgentId) -> Credential {
    match credential {
        Credential::Key { digest, .. } => Credential::Key { digest: *digest, named: Some(agent) },
        Credential::Signature(_) | Credential::Messages(_) => credential.clone(),
    }
}

fn unknown_key() -> Credential {
    Credential::Key { digest: KeyDigest::from_bytes([0xee; 32]), named: Some(agent(7)) }
}

fn domain() -> SigningDomain {
    SigningDomain::new(Eip712Domain {
        name: "Service Verification".to_owned(),
        version: "1".to_owned(),
        chain_id: 8004,
        verifying_contract: Address::repeat_byte(0x11),
    })
}

fn profile(owner: Address, stake: u64) -> TrustProfile {
    TrustProfile {
        holders: Holders::owned_by(owner),
        stake: Some(U256::from(stake)),
        measured: None,
        details: Some(Details::default()),
        texts: Texts::default(),
    }
}

/// The outcome of a request, in a word.
fn verdict<T>(outcome: &Result<T, Error>) -> &'static str {
    match outcome {
        Ok(_) => "admitted",
        Err(Error::Chain(_)) => "503",
        Err(Error::Unverified(_)) => "503 unverified",
        Err(Error::Store(_)) => "500 store",
        Err(Error::Entropy(_)) => "500 entropy",
        Err(Error::Unrecorded(_)) => "500 unrecorded",
        Err(Error::Denied(denial)) => match denial {
            Denial::SignatureInvalid { .. } => "401 signature",
            Denial::ReplayDetected { .. } | Denial::TimestampRefused { .. } => "400 replay",
            Denial::NonceForgotten { .. } => "400 forgotten",
            Denial::MessageRefused { refusal, .. } => refusal.code(),
            Denial::AgentNotFound { .. } => "404",
            Denial::InvalidApiKey { .. } => "401 key",
            Denial::KeyAlreadyExists { .. } => "409",
            Denial::NoSuchKey { .. } => "400 name",
            Denial::RateLimited { .. } => "429",
            Denial::TierBlocked { .. } => "403",
            Denial::EndpointMismatch { .. } => "403 endpoint",
        },
        Err(listeners) => panic!("{listeners:?}"),
    }
}

/// How many seconds a request was told to wait.
fn retry_after<T>(outcome: Result<T, Error>) -> u64 {
    match outcome {
        Err(Error::Denied(
            Denial::RateLimited { retry_after, .. } | Denial::NonceForgotten { retry_after, .. },
        )) => retry_after.seconds(),
        other => panic!("{}", verdict(&other)),
    }
}
