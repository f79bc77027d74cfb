//! A golden vector that ethers 6, viem 2 and alloy agree on, and what the canonical check refuses.

use std::collections::HashSet;

use alloy::primitives::{Address, B256, U256, address, b256, hex};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolStruct;
use proptest::prelude::{ProptestConfig as Config, any, prop_assert, prop_assert_eq, proptest};

mod vectors;

use super::{Eip712Domain, KeyOperation, SigningDomain};
use crate::domain::signature::{SignatureBytes, SignatureFormat};
use crate::domain::{agent_id::AgentId, fixture::wrapped, freshness::UnixSeconds, nonce::Nonce};

/// A throw-away key, published with the vector.
const KEY: B256 = b256!("0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318");
const OWNER: Address = address!("0x2c7536E3605D9C16a7a3D7b1898e529396a65c23");
const REGISTRY: Address = address!("0xA1393CB409E2fE5573C0840189622aA0e33947b2");
const DIGEST: B256 = b256!("0x7fd6b9dc1cf840bdeb4029873ab17549bb7d5cc38d6c84ec801e70c6f52afc99");
const SIGNATURE: [u8; 65] = hex!(
    "f32b5a2f8545c5bf51b4f0639cce7135e3807aa87c5fa1e61d625bbc7ae577451dad68d0f49f82646f4b2042cade6ca0fb307ac795080dd1dba9d54c1e0678331c"
);
const CURVE_ORDER: [u8; 32] = hex!("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141");

fn domain() -> SigningDomain {
    SigningDomain::new(Eip712Domain {
        name: "Service Verification".to_owned(),
        version: "1".to_owned(),
        chain_id: 8004,
        verifying_contract: REGISTRY,
    })
}

/// The digests that an owner's key may sign under this domain for this message: for a verification, for a profile, and for
/// changes of a key.
fn digests(domain: &SigningDomain, agent: AgentId, nonce: Nonce, at: UnixSeconds) -> [B256; 5] {
    let [generate, rotate, revoke] = KeyOperation::ALL
        .map(|operation| domain.own_digest(&domain.own_type(operation).unwrap(), agent, nonce, at));
    [domain.digest(agent, nonce, at), domain.profile_digest(agent, at), generate, rotate, revoke]
}

fn golden_digest() -> B256 {
    digest(42, 7, 1_700_000_000)
}

fn digest(agent: u64, nonce: u64, timestamp: u64) -> B256 {
    domain().digest(AgentId::new(U256::from(agent)), Nonce::new(U256::from(nonce)), UnixSeconds(timestamp))
}

#[test]
fn the_golden_vector_holds_from_separator_to_signer() {
    assert_eq!(
        domain().separator,
        b256!("0x330c7b22fd91d31a38c278cbbb42afa0327475bef541acf553f0ab5c761bc8ef")
    );
    assert_eq!(
        domain().message_type,
        b256!("0xa5c9edba0a3ac3a63e8eec71fd381fb868496a425758260d0298c311ae908e47")
    );
    assert_eq!(golden_digest(), DIGEST);
    assert_eq!(SignatureBytes::from_bytes(SIGNATURE).recover(&DIGEST), Some(OWNER));
}

// threat: A profile for strangers, or its signature spent on a key
#[test]
fn the_two_types_of_message_have_the_hashes_of_their_names() {
    let hash = |text: &str| alloy::primitives::keccak256(text);
    assert_eq!(domain().message_type, hash("Verification(uint256 agentId,uint256 nonce,uint256 timestamp)"));
    assert_eq!(domain().profile_type, hash("ProfileRead(uint256 agentId,uint256 timestamp)"));
}

#[test]
fn a_service_without_a_name_in_its_types_has_no_own_types() {
    assert!(KeyOperation::ALL.iter().all(|operation| domain().own_type(*operation).is_none()));
}

// threat: A second form of a nonce or signature
#[test]
fn v_may_be_0_1_27_or_28_and_nothing_else() {
    for v in 0..=u8::MAX {
        let mut bytes = SIGNATURE;
        bytes[64] = v;
        let recovered = SignatureBytes::from_bytes(bytes).recover(&DIGEST);
        match v {
            1 | 28 => assert_eq!(recovered, Some(OWNER), "v = {v}"),
            0 | 27 => assert_ne!(recovered, Some(OWNER), "v = {v}"),
            _ => assert_eq!(recovered, None, "v = {v}"),
        }
    }
}

// threat: A second form of a nonce or signature
#[test]
fn the_malleated_twin_of_a_signature_recovers_nobody() {
    let mut twin = SIGNATURE;
    let low_s = U256::from_be_slice(&SIGNATURE[32..64]);
    let high_s = U256::from_be_bytes(CURVE_ORDER) - low_s;
    twin[32..64].copy_from_slice(&high_s.to_be_bytes::<32>());
    twin[64] = 27;
    assert_eq!(SignatureBytes::from_bytes(twin).recover(&DIGEST), None);
}

// threat: A second form of a nonce or signature
#[test]
fn r_and_s_of_zero_or_beyond_the_order_recover_nobody() {
    for (range, value) in [
        (0..32, [0; 32]),
        (32..64, [0; 32]),
        (0..32, CURVE_ORDER),
        (32..64, CURVE_ORDER),
        (0..32, [0xff; 32]),
        (32..64, [0xff; 32]),
    ] {
        let mut bytes = SIGNATURE;
        bytes[range.clone()].copy_from_slice(&value);
        assert_eq!(SignatureBytes::from_bytes(bytes).recover(&DIGEST), None, "{range:?}");
    }
}

#[test]
fn only_0x_and_130_hex_characters_are_a_signature() {
    let hex = hex::encode(SIGNATURE);
    for format in [SignatureFormat::Keys, SignatureFormat::Contracts] {
        for text in [format!("0x{hex}"), format!("0x{}", hex.to_uppercase())] {
            assert_eq!(format.parse(&text).unwrap(), SignatureBytes::from_bytes(SIGNATURE));
        }
    }
    for text in [
        hex.clone(),
        format!("0X{hex}"),
        format!("0x{}", &hex[1..]),
        format!("0x{hex}00"),
        format!("0x0x{}", &hex[2..]),
        format!("0x{}zz", &hex[2..]),
        format!("0x{}é", &hex[2..]),
        String::new(),
        "0x".to_owned(),
    ] {
        assert!(SignatureFormat::Keys.parse(&text).is_err(), "{text}");
    }
}

#[test]
fn where_contracts_are_asked_65_to_4096_bytes_are_a_signature_and_longer_ones_recover_nobody() {
    let parse = |text: &str| SignatureFormat::Contracts.parse(text);
    for (bytes, is_one) in [(0, false), (64, false), (65, true), (66, true), (4096, true), (4097, false)] {
        assert_eq!(parse(&format!("0x{}", "1f".repeat(bytes))).is_ok(), is_one, "{bytes}");
    }
    let hex = hex::encode(SIGNATURE);
    let long = parse(&format!("0x{hex}00")).unwrap();
    assert_eq!(long.as_bytes(), [&SIGNATURE[..], &[0]].concat());
    assert_eq!((long.recover(&DIGEST), format!("{long:?}")), (None, "SignatureBytes(…)".to_owned()));
    for text in [format!("{hex}00"), format!("0x{hex}0"), format!("0x0x{hex}"), format!("0x{hex}zz")] {
        assert!(parse(&text).is_err(), "{text}");
    }
}

#[test]
fn a_wrapped_signature_is_the_wallets_own_and_a_short_or_compact_one_is_none_wherever_it_comes_from() {
    let read = |bytes: &[u8]| SignatureFormat::Contracts.parse(&format!("0x{}", hex::encode(bytes)));
    for inner in [&SIGNATURE[..], &[1; 200]] {
        for found in [read(&wrapped(inner)).unwrap(), SignatureBytes::of_message(&wrapped(inner)).unwrap()] {
            assert_eq!((found.as_bytes(), found.deploys_account()), (inner, true));
            assert_eq!(found.recover(&DIGEST), None, "no key signs for an account to be deployed");
        }
    }
    let end = [0x64, 0x92].repeat(16);
    let far = [&[0; 64][..], &[0xff; 32], &[0; 128], &end].concat();
    let cut = [&wrapped(&[1; 200])[..96], &end].concat();
    for none in [
        &[][..],
        &[1; 64],
        &wrapped(&[]),
        &wrapped(&[1; 64]),
        &end,
        &far,
        &cut,
        &[&[0; 64][..], &end].concat(),
    ] {
        assert!(read(none).is_err() && SignatureBytes::of_message(none).is_none(), "{none:?}");
    }
    for format in [SignatureFormat::Keys, SignatureFormat::Contracts] {
        let phrase = "is compact (ERC-2098); write 0x and 130 hex characters, v at the end";
        assert_eq!(format.parse(&format!("0x{}", "1f".repeat(64))).err(), Some(phrase));
    }
}

alloy::sol! {
    struct Verification { uint256 agentId; uint256 nonce; uint256 timestamp; }
    struct ProfileRead { uint256 agentId; uint256 timestamp; }
    struct GenerateKey { string service; uint256 agentId; uint256 nonce; uint256 timestamp; }
    struct RotateKey { string service; uint256 agentId; uint256 nonce; uint256 timestamp; }
    struct RevokeKey { string service; uint256 agentId; uint256 nonce; uint256 timestamp; }
}

proptest! {
    #![proptest_config(Config { cases: Config::default().cases / 8, ..Config::default() })]

    // threat: A profile for strangers, or its signature spent on a key
    #[test]
    fn the_digests_are_those_that_a_typed_data_library_computes(agent in any::<[u64; 4]>(), nonce in any::<[u64; 4]>(), timestamp in any::<u64>(), service in any::<String>()) {
        let (agent, nonce) = (U256::from_limbs(agent), U256::from_limbs(nonce));
        let message = Verification { agentId: agent, nonce, timestamp: U256::from(timestamp) };
        let read = ProfileRead { agentId: agent, timestamp: U256::from(timestamp) };
        let theirs = alloy::sol_types::eip712_domain! {
            name: "Service Verification",
            version: "1",
            chain_id: 8004,
            verifying_contract: REGISTRY,
        };
        let at = U256::from(timestamp);
        let generate = GenerateKey { service: service.clone(), agentId: agent, nonce, timestamp: at };
        let rotate = RotateKey { service: service.clone(), agentId: agent, nonce, timestamp: at };
        let revoke = RevokeKey { service: service.clone(), agentId: agent, nonce, timestamp: at };
        let (agent, nonce, signed_at) = (AgentId::new(agent), Nonce::new(nonce), UnixSeconds(timestamp));
        prop_assert_eq!(
            digests(&domain().with_own_types(&service), agent, nonce, signed_at),
            [
                message.eip712_signing_hash(&theirs),
                read.eip712_signing_hash(&theirs),
                generate.eip712_signing_hash(&theirs),
                rotate.eip712_signing_hash(&theirs),
                revoke.eip712_signing_hash(&theirs),
            ]
        );
    }

    // threat: A signature for one service, or for a verification, is spent on a key at another
    #[test]
    fn no_two_types_and_no_two_services_share_a_digest(
        services in any::<[String; 2]>(),
        agents in any::<[[u64; 4]; 2]>(),
        nonces in any::<[[u64; 4]; 2]>(),
        timestamps in any::<[u64; 2]>(),
        is_same_message in any::<bool>(),
    ) {
        proptest::prop_assume!(services[0] != services[1]);
        let of = |at: usize, message: usize| {
            let domain = domain().with_own_types(&services[at]);
            let [agent, nonce] = [agents, nonces].map(|numbers| U256::from_limbs(numbers[message]));
            digests(&domain, AgentId::new(agent), Nonce::new(nonce), UnixSeconds(timestamps[message]))
        };
        let (one, other) = (of(0, 0), of(1, usize::from(!is_same_message)));
        // A verification names no service.
        let all: HashSet<B256> = one.into_iter().chain(other.into_iter().skip(2)).collect();
        prop_assert_eq!(all.len(), 8);
        prop_assert!(!other[..2].iter().any(|digest| one[2..].contains(digest)));
    }

    #[test]
    fn any_other_message_has_another_signer(agent in any::<u64>(), nonce in any::<u64>(), timestamp in any::<u64>()) {
        let signer = PrivateKeySigner::from_bytes(&KEY).unwrap();
        let signed = digest(agent, nonce, timestamp);
        let bytes = SignatureBytes::from_bytes(signer.sign_hash_sync(&signed).unwrap().as_bytes());
        prop_assert_eq!(bytes.recover(&signed), Some(OWNER));
        proptest::prop_assert_ne!(bytes.recover(&digest(agent ^ 1, nonce, timestamp)), Some(OWNER));
        proptest::prop_assert_ne!(bytes.recover(&digest(agent, nonce ^ 1, timestamp)), Some(OWNER));
        proptest::prop_assert_ne!(bytes.recover(&digest(agent, nonce, timestamp ^ 1)), Some(OWNER));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 65)) {
        let _ = SignatureBytes::from_bytes(bytes.try_into().unwrap()).recover(&DIGEST);
    }
}
