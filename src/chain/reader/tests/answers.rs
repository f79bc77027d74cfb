//! What becomes of answers that are well-formed JSON-RPC: absent registries, absurd values, lies in the ABI.

use alloy::primitives::{Address, U256};
use alloy::sol_types::SolCall;

use super::agent;
use crate::chain::abi::{
    OrganizationRow, Result3, aggregate3Call, getValidationCall, getValidationReturn, tokenURICall,
};
use crate::chain::fault::ReadError;
use crate::chain::fixture::{
    ALL, OWNER, PATIENT, Reply, TestNode, aggregate, bench, cause, hex, not_minted, organizations,
    reputation, results, returned, reverted, validation, word,
};
use crate::chain::reader::Registries;
use crate::domain::profile::{Reputation, TrustProfile, Validation};
use crate::ports::chain::Chain;

async fn read_on(registries: Registries, results: &Vec<Result3>) -> Result<Option<TrustProfile>, ReadError> {
    read_raw(registries, aggregate(results)).await
}

async fn read_raw(registries: Registries, data: Vec<u8>) -> Result<Option<TrustProfile>, ReadError> {
    let node = TestNode::always(Reply::Result(hex(data))).await;
    let bench = bench(&[node.url()], registries, PATIENT);
    let read = bench.reader.profile(agent(1)).await;
    read.map(|profile| profile.map(|profile| (*profile).clone())).map_err(|fault| cause(&fault).clone())
}

/// The usual results with one of them replaced.
fn with(index: usize, result: Result3) -> Vec<Result3> {
    let mut results = results();
    results[index] = result;
    results
}

#[tokio::test]
async fn absent_registries_read_as_zero_or_empty_and_are_not_asked() {
    for (present, expected) in [(false, 3), (true, 6)] {
        let optional = |address| if present { address } else { None };
        let registries = Registries {
            reputation: optional(ALL.reputation),
            validation: optional(ALL.validation),
            organization: optional(ALL.organization),
            ..ALL
        };
        let answer: Vec<Result3> = results().into_iter().take(expected).collect();
        let node = TestNode::always(Reply::Result(hex(aggregate(&answer)))).await;
        let bench = bench(&[node.url()], registries, PATIENT);
        let profile = bench.reader.profile(agent(1)).await.unwrap().unwrap();
        let asked = aggregate3Call::abi_decode(&node.last_call_data()).unwrap();
        assert_eq!(asked.calls.len(), expected);
        assert_eq!(profile.reputation == Reputation::default(), !present);
        assert_eq!(profile.validation == Validation::default(), !present);
        assert_eq!(profile.organizations.is_empty(), !present);
    }
}

#[tokio::test]
async fn each_absent_registry_leaves_the_others_in_their_places() {
    let without = |index: usize| {
        let mut results = results();
        results.remove(index);
        results
    };
    let read = read_on(Registries { reputation: None, ..ALL }, &without(3)).await.unwrap().unwrap();
    assert_eq!((read.reputation.feedback_count, read.validation.count, read.organizations.len()), (0, 3, 1));
    let read = read_on(Registries { validation: None, ..ALL }, &without(4)).await.unwrap().unwrap();
    assert_eq!((read.reputation.feedback_count, read.validation.count, read.organizations.len()), (2, 0, 1));
    let read = read_on(Registries { organization: None, ..ALL }, &without(5)).await.unwrap().unwrap();
    assert_eq!((read.reputation.feedback_count, read.validation.count, read.organizations.len()), (2, 3, 0));
}

#[tokio::test]
async fn only_not_minted_and_a_zero_owner_are_nobody() {
    let zero = returned(Address::ZERO.into_word().to_vec());
    for nobody in [reverted(not_minted()), zero] {
        assert_eq!(read_on(ALL, &with(0, nobody)).await, Ok(None));
    }
    for (result, error) in [
        (reverted(Vec::new()), ReadError::Reverted("ownerOf")),
        (reverted(vec![0xde, 0xad, 0xbe, 0xef]), ReadError::Reverted("ownerOf")),
        (returned(Vec::new()), ReadError::NoCode("chain.contracts.identity")),
        (returned(vec![0; 31]), ReadError::Undecodable("ownerOf")),
        (returned(vec![0xff; 32]), ReadError::Undecodable("ownerOf")),
    ] {
        assert_eq!(read_on(ALL, &with(0, result)).await, Err(error));
    }
}

#[tokio::test]
async fn a_call_that_fails_or_gives_nothing_is_a_fault_whichever_it_is() {
    let names =
        ["ownerOf", "tokenURI", "getStake", "getReputation", "getValidation", "getAgentOrganizations"];
    for (index, name) in names.into_iter().enumerate() {
        let reverted = read_on(ALL, &with(index, reverted(Vec::new()))).await;
        assert_eq!(reverted, Err(ReadError::Reverted(name)));
        let empty = read_on(ALL, &with(index, returned(Vec::new()))).await;
        assert!(matches!(empty, Err(ReadError::NoCode(_))), "{name}: {empty:?}");
        let cut = read_on(ALL, &with(index, returned(vec![0xff; 31]))).await;
        assert_eq!(cut, Err(ReadError::Undecodable(name)));
    }
    let empty = read_raw(ALL, Vec::new()).await;
    assert_eq!(empty, Err(ReadError::NoCode("chain.contracts.identity")), "empty in every way of asking");
    let undecodable = Err(ReadError::Undecodable("aggregate3"));
    assert_eq!(read_on(ALL, &results()[..5].to_vec()).await, undecodable, "one result is missing");
    let whole = aggregate(&results());
    for length in [1, 31, 32, 64, whole.len() / 2] {
        assert_eq!(read_raw(ALL, whole[..length].to_vec()).await, undecodable, "{length} bytes");
    }
}

#[tokio::test]
async fn counts_beyond_64_bits_are_faults() {
    let most = U256::from(u64::MAX);
    let read = read_on(ALL, &with(3, returned(reputation(most)))).await.unwrap().unwrap();
    assert_eq!(read.reputation.feedback_count, u64::MAX);
    let beyond = most + U256::from(1);
    for (index, name, data) in
        [(3, "getReputation", reputation(beyond)), (4, "getValidation", validation(beyond))]
    {
        assert_eq!(read_on(ALL, &with(index, returned(data))).await, Err(ReadError::Undecodable(name)));
    }
}

#[tokio::test]
async fn a_long_text_is_cut_between_two_characters_and_what_is_cut_is_freed() {
    let text = format!("a{}", "é".repeat(20_000));
    let uri = returned(tokenURICall::abi_encode_returns(&text));
    let read = read_on(ALL, &with(1, uri)).await.unwrap().unwrap();
    assert_eq!(read.metadata_uri.len(), 16 * 1024 - 1);
    assert!(text.starts_with(&read.metadata_uri));

    let row = OrganizationRow { orgId: U256::MAX, name: "n".repeat(20_000), verified: false };
    let read = read_on(ALL, &with(5, returned(organizations(vec![row])))).await.unwrap().unwrap();
    assert_eq!((read.organizations[0].name.len(), read.organizations[0].org_id), (16 * 1024, U256::MAX));
    assert_eq!(crate::chain::snapshot::cut(text).capacity(), 16 * 1024 - 1);
}

#[tokio::test]
async fn organizations_beyond_the_cap_are_left_out() {
    let rows =
        (0..1_001).map(|id| OrganizationRow { orgId: U256::from(id), name: String::new(), verified: false });
    let read = read_on(ALL, &with(5, returned(organizations(rows.collect())))).await.unwrap().unwrap();
    assert_eq!(read.organizations.len(), 1_000);
    assert_eq!(read.organizations.last().unwrap().org_id, U256::from(999));
}

#[tokio::test]
async fn a_large_profile_fits_and_one_beyond_the_longest_answer_is_a_fault() {
    let rows = (0..1_000).map(|id| OrganizationRow {
        orgId: U256::MAX - U256::from(id),
        name: "n".repeat(256),
        verified: true,
    });
    let text = "t".repeat(16 * 1024);
    let mut results = results();
    results[1] = returned(tokenURICall::abi_encode_returns(&text));
    let row = getValidationReturn {
        count: U256::from(1),
        latestPassed: true,
        latestEvidence: text.clone(),
        latestValidator: OWNER,
    };
    results[4] = returned(getValidationCall::abi_encode_returns(&row));
    results[5] = returned(organizations(rows.collect()));
    let read = read_on(ALL, &results).await.unwrap().unwrap();
    assert_eq!((read.metadata_uri.len(), read.organizations.len()), (16 * 1024, 1_000));
    assert!(read.organizations.iter().all(|row| row.name.len() == 256));
    assert_eq!(read.validation.latest.unwrap().evidence, text);

    results[1] = returned(tokenURICall::abi_encode_returns(&"t".repeat(600_000)));
    assert!(matches!(read_on(ALL, &results).await, Err(ReadError::TooLong(_))));
}

/// A quarter of a megabyte that stands for 100 of them: every element of the list is the same long text. The decoder's own limit
/// would let it pass.
#[tokio::test]
async fn a_short_answer_that_unfolds_to_a_long_one_is_a_fault() {
    let rows = 400_u64;
    let row_at = 32 * rows;
    let text_bytes = 256 * 1024;
    let mut data = [word(32), word(rows)].concat();
    for _ in 0..rows {
        data.extend(word(row_at));
    }
    data.extend([word(1), word(96), word(1), word(text_bytes)].concat());
    data.extend(vec![b'a'; usize::try_from(text_bytes).unwrap()]);
    let read = read_on(ALL, &with(5, returned(data))).await;
    assert_eq!(read, Err(ReadError::Undecodable("getAgentOrganizations")));
}

#[tokio::test]
async fn a_stake_of_one_word_or_of_three_reads_the_same() {
    for data in [word(7), [word(7), word(1), word(2)].concat()] {
        let read = read_on(ALL, &with(2, returned(data))).await.unwrap().unwrap();
        assert_eq!((read.stake, read.owner), (U256::from(7), OWNER));
    }
}
