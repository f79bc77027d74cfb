//! The ports as the tests want them: a chain that says what it is told, a store with something that happens in between,
//! randomness that runs out.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::{collections::HashMap, future::ready, sync::Arc};

use alloy::primitives::{Address, B256, U256};
use async_trait::async_trait;
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::START_SECS;
use crate::domain::{
    AgentId, ClientNet, HeldKey, Holders, KeyDigest, Nonce, NonceClaim, Quota, TrustProfile, UnixSeconds,
    Verdict,
};
use crate::ports::{
    Admission, Asked, AskedHolders, Asker, Budget, Chain, ChainFault, ChainRead, Entropy, KeyBudget,
    KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, NoEntropy, Parts, Proof, Reply, Scope, Store,
    StoreFault,
};
use crate::store::EmbeddedStore;

/// The answer of the chain.
#[derive(Clone)]
pub(super) enum Reported<T> {
    Is(Option<T>),
    Down,
}

impl<T> Reported<T> {
    fn say(self) -> Result<Option<T>, ChainFault> {
        match self {
            Self::Is(answer) => Ok(answer),
            Self::Down => Err(ChainFault {
                endpoint: "http://node.example".into(),
                method: "eth_call",
                is_behind: false,
                cause: "down".into(),
            }),
        }
    }
}

/// A chain that says what it was told, and counts who asks.
pub(super) struct ScriptedChain {
    pub(super) owner: Mutex<Reported<Address>>,
    /// The agent's wallet, where it may act.
    pub(super) wallet: Mutex<Option<Address>>,
    pub(super) profile: Mutex<Reported<Arc<TrustProfile>>>,
    pub(super) latest: Mutex<Reported<Arc<TrustProfile>>>,
    pub(super) is_down: AtomicBool,
    /// The owner has code.
    pub(super) has_code: AtomicBool,
    /// The wallet, or the owner where there is none, is a contract that accepts every signature.
    pub(super) accepts: AtomicBool,
    /// An owner's answer waits for one of its permits.
    pub(super) gate: Mutex<Option<Arc<Semaphore>>>,
    /// The owner that was seen last.
    pub(super) last_owner: Mutex<Option<Address>>,
    /// On whose behalf owners were read.
    pub(super) askers: Mutex<Vec<Asker>>,
    pub(super) calls: Mutex<HashMap<&'static str, usize>>,
}

impl ScriptedChain {
    fn count(&self, verb: &'static str) {
        *self.calls.lock().entry(verb).or_default() += 1;
    }

    async fn pass_gate(&self) {
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
    }

    pub(super) fn calls(&self, verb: &str) -> usize {
        self.calls.lock().get(verb).copied().unwrap_or_default()
    }

    pub(super) fn all_calls(&self) -> usize {
        self.calls.lock().values().sum()
    }
}

#[async_trait]
impl Chain for ScriptedChain {
    fn profile(&self, _agent: AgentId, _parts: Parts) -> ChainRead<'_, Option<Arc<TrustProfile>>> {
        self.count("profile");
        Either::Left(ready(self.profile.lock().clone().say()))
    }

    async fn latest_profile(
        &self,
        _agent: AgentId,
        parts: Parts,
    ) -> Result<Option<Arc<TrustProfile>>, ChainFault> {
        self.count("latest_profile");
        let latest = self.latest.lock().clone().say()?;
        match latest {
            Some(profile) if parts == Parts::Whole && profile.details.is_none() => Reported::Down.say(),
            latest => Ok(latest),
        }
    }

    async fn holders(&self, _agent: AgentId, asker: Asker) -> Result<Option<Holders>, ChainFault> {
        self.count("holders");
        self.askers.lock().push(asker);
        self.pass_gate().await;
        let owner = self.owner.lock().clone().say()?;
        Ok(owner.map(|owner| Holders { owner, wallet: *self.wallet.lock() }))
    }

    async fn inspect_holders(
        &self,
        agent: AgentId,
        asker: Asker,
    ) -> Result<Option<AskedHolders>, ChainFault> {
        let holders = self.holders(agent, asker).await?;
        let unasked = |address, has_code| Asked { address, has_code, accepts: false };
        Ok(holders.map(|Holders { owner, wallet }| AskedHolders {
            owner: unasked(
                owner,
                self.accepts.load(Ordering::SeqCst) || self.has_code.load(Ordering::SeqCst),
            ),
            wallet: wallet.map(|wallet| unasked(wallet, false)),
        }))
    }

    async fn ask_holders(
        &self,
        _agent: AgentId,
        _digest: B256,
        _signature: &[u8],
    ) -> Result<Option<AskedHolders>, ChainFault> {
        self.count("ask_holders");
        self.pass_gate().await;
        let (accepts, wallet) = (self.accepts.load(Ordering::SeqCst), *self.wallet.lock());
        let asked = |address, accepts, has_code| Asked { address, has_code: accepts || has_code, accepts };
        let has_code = self.has_code.load(Ordering::SeqCst);
        let owner = self.owner.lock().clone().say()?;
        Ok(owner.map(|owner| AskedHolders {
            owner: asked(owner, accepts && wallet.is_none(), has_code),
            wallet: wallet.map(|wallet| asked(wallet, accepts, false)),
        }))
    }

    fn last_holders(&self, _agent: AgentId) -> Option<Holders> {
        self.last_owner.lock().map(|owner| Holders { owner, wallet: *self.wallet.lock() })
    }

    fn out_of_time(&self) -> ChainFault {
        let cause = "out of time".into();
        ChainFault { endpoint: "http://node.example".into(), method: "eth_call", is_behind: false, cause }
    }

    async fn probe(&self) -> Result<(), ChainFault> {
        self.count("probe");
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let word =
            if self.is_down.load(Ordering::SeqCst) { Reported::<()>::Down } else { Reported::Is(None) };
        word.say().map(drop)
    }
}

/// The real store, with something that happens in between when a test says so.
pub(super) struct TamperedStore {
    pub(super) inner: EmbeddedStore,
    /// The agent's key is revoked after it was found and before the admission is decided.
    pub(super) revokes_before_admit: AtomicBool,
    /// Another replica revoked the key, and this one still finds it.
    pub(super) revoked_elsewhere: AtomicBool,
    /// A former release made the keys, which kept no signers.
    pub(super) knows_no_signers: AtomicBool,
    /// Keys are looked up elsewhere, which takes a while.
    pub(super) is_far: AtomicBool,
    /// How many are being looked up, and how many were at once at most.
    pub(super) look_ups: AtomicUsize,
    pub(super) most_look_ups: AtomicUsize,
    /// The probe is never answered.
    pub(super) hangs: AtomicBool,
    /// The verb that fails.
    pub(super) broken: Mutex<Option<&'static str>>,
    pub(super) calls: Mutex<HashMap<&'static str, usize>>,
}

impl TamperedStore {
    fn enter(&self, verb: &'static str) -> Result<(), StoreFault> {
        *self.calls.lock().entry(verb).or_default() += 1;
        if *self.broken.lock() == Some(verb) {
            return Err(StoreFault { verb, cause: "disk full".into() });
        }
        Ok(())
    }

    pub(super) fn calls(&self, verb: &str) -> usize {
        self.calls.lock().get(verb).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Store for TamperedStore {
    fn find<'a>(&'a self, digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>> {
        if self.is_far.load(Ordering::SeqCst) {
            return Either::Right(Box::pin(async {
                let under_way = self.look_ups.fetch_add(1, Ordering::SeqCst) + 1;
                self.most_look_ups.fetch_max(under_way, Ordering::SeqCst);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                self.look_ups.fetch_sub(1, Ordering::SeqCst);
                self.inner.find(digest).await
            }));
        }
        match self.enter("find") {
            Ok(()) => match self.inner.find(digest) {
                Either::Left(found) if self.knows_no_signers.load(Ordering::SeqCst) => {
                    let forget = |owner| KeyOwner { signer: None, ..owner };
                    Either::Left(ready(found.into_inner().map(|owner| owner.map(forget))))
                }
                found @ (Either::Left(_) | Either::Right(_)) => found,
            },
            Err(fault) => Either::Left(ready(Err(fault))),
        }
    }

    async fn is_current(&self, agent: AgentId, digest: &KeyDigest) -> Result<bool, StoreFault> {
        let elsewhere = self.revoked_elsewhere.load(Ordering::SeqCst);
        Ok(!elsewhere && self.inner.is_current(agent, digest).await?)
    }

    fn admit<'a>(
        &'a self,
        agent: AgentId,
        scope: &'a Scope,
        quota: Quota,
        proof: &'a Proof,
    ) -> Reply<'a, Admission> {
        Either::Right(Box::pin(async move {
            self.enter("admit")?;
            if self.revokes_before_admit.load(Ordering::SeqCst) {
                let claim = NonceClaim {
                    nonce: Nonce::new(U256::MAX - U256::from(self.calls("admit"))),
                    signed_at: UnixSeconds(START_SECS),
                };
                let revoked = self.inner.changed(agent, claim, KeyChange::Revoke(None)).await?;
                assert_eq!(revoked, KeyChanged::Done);
            }
            self.inner.admit(agent, scope, quota, proof).await
        }))
    }

    fn count<'a>(&'a self, budget: &'a Budget, quota: Quota) -> Reply<'a, Verdict> {
        match budget {
            Budget::Route(..) => self.inner.count(budget, quota),
            Budget::Key(..) => Either::Right(Box::pin(async move {
                self.enter("charge")?;
                self.inner.count(budget, quota).await
            })),
        }
    }

    fn fits(&self, agent: AgentId, digest: &KeyDigest) -> bool {
        digest.to_bytes()[0].is_multiple_of(2) && self.inner.fits(agent, digest)
    }

    async fn change_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), StoreFault> {
        self.enter("change_key")?;
        self.inner.change_key(agent, claim, change).await
    }

    async fn give_back(&self, client: ClientNet, agent: AgentId, of: KeyBudget) {
        self.inner.give_back(client, agent, of).await;
    }

    async fn status(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<KeySeen, StoreFault> {
        self.enter("status")?;
        self.inner.status(client, agent, quota).await
    }

    async fn keys(&self, agent: AgentId) -> Result<Vec<HeldKey>, StoreFault> {
        self.enter("status")?;
        self.inner.keys(agent).await
    }

    fn signatures_accepted_from(&self) -> Option<UnixSeconds> {
        self.inner.signatures_accepted_from()
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.enter("probe")?;
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// Bytes that are random enough for a test, until they run out.
pub(super) struct Counting {
    pub(super) next: AtomicU64,
    pub(super) is_empty: AtomicBool,
}

impl Entropy for Counting {
    fn key_bytes(&self) -> Result<[u8; 32], NoEntropy> {
        if self.is_empty.load(Ordering::SeqCst) {
            return Err(NoEntropy);
        }
        Ok(U256::from(self.next.fetch_add(1, Ordering::SeqCst)).to_be_bytes())
    }
}
