//! The account that signed for a key is kept with it.

use alloy::primitives::Address;

use super::{Bench, agent, digest, key};
use crate::ports::{KeyChange, KeyChanged, NewKey};

/// Signer of all keys.
pub(in crate::store) const SIGNER: Address = Address::repeat_byte(0x51);

pub(in crate::store) async fn a_key_names_the_account_that_signed_for_it_and_no_other(bench: Bench) {
    let buyer = Address::repeat_byte(0xb0);
    let by = |signer, number| NewKey { signer, ..key(number) };
    let signer = async |number| Some(bench.store.find(&digest(number)).await.unwrap()?.signer);
    bench.change(1, 1, KeyChange::Issue(by(SIGNER, 1))).await;
    bench.change(2, 1, KeyChange::Issue(by(buyer, 2))).await;
    assert_eq!((signer(1).await, signer(2).await), (Some(Some(SIGNER)), Some(Some(buyer))));
    // A change that comes to nothing changes no signer either.
    assert_eq!(bench.change(1, 2, KeyChange::Issue(by(buyer, 3))).await, KeyChanged::KeyExists);
    assert_eq!((signer(1).await, signer(3).await), (Some(Some(SIGNER)), None));
    bench.change(1, 2, KeyChange::Rotate(by(buyer, 3))).await;
    assert_eq!((signer(1).await, signer(3).await), (None, Some(Some(buyer))));
    bench.change(1, 3, KeyChange::Revoke(None)).await;
    bench.change(1, 4, KeyChange::Issue(by(SIGNER, 4))).await;
    assert_eq!((signer(3).await, signer(4).await), (None, Some(Some(SIGNER))));
    assert!(bench.store.has_key(agent(1)).await.unwrap());
}
