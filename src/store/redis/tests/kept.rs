//! One server keeps the contract.

use std::sync::Arc;

use crate::store::contract::{Bench, store_contract};
use crate::store::redis::tests::{SIGNED_SECS, served};

async fn bench() -> Option<Bench> {
    let (server, store, clock) = served(&[]).await?;
    Some(Bench {
        store: Arc::new(store),
        advance_secs: Box::new(move |secs| clock.advance_secs(secs)),
        signed_at_secs: SIGNED_SECS,
        _keep: Box::new(server),
    })
}

store_contract!(bench);
