//! Results of calls that are well-formed, absurd, or of another ABI.

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::{SolCall, SolError};
use futures_util::future::Either;

use super::{OrganizationRow, getValidationCall, getValidationReturn, read_details, tokenURICall};
use crate::chain::dated::{Result3, read_dated};
use crate::chain::fixture::{ALL, OWNER, agent, details};
use crate::chain::registries::calls::{
    ERC721NonexistentToken, Error, Found, OwnerQueryForNonexistentToken, TokenDoesNotExist, read_owner,
};
use crate::chain::tests::results::{
    aggregate, not_minted, organizations, reputation, results, returned, reverted, validation, word,
};
use crate::chain::{contracts::all_usable, fault::ReadError};
use crate::domain::{Registries, RegistrySet, TrustProfile, Validation};

fn read_on(registries: Registries, results: &[Result3]) -> Result<Option<TrustProfile>, ReadError> {
    let results = &mut results.iter().cloned();
    let Some(profile) = registries.read_gate(agent(1), results)? else { return Ok(None) };
    Ok(Some(TrustProfile { details: Some(read_details(&registries, results)?), ..profile }))
}

fn calls(registries: Registries) -> usize {
    let Either::Left(details) = registries.details_calls(&[agent(1)]) else { panic!("they are calls") };
    registries.gate_calls(agent(1)).len() + details.len()
}

fn owner(result: Result3) -> Result<Option<Address>, ReadError> {
    read_owner(agent(1), &mut std::iter::once(result))
}

/// The usual results with one of them replaced.
fn with(index: usize, result: Result3) -> Vec<Result3> {
    let mut results = results();
    results[index] = result;
    results
}

fn without(index: usize) -> Vec<Result3> {
    let mut results = results();
    results.remove(index);
    results
}

#[test]
fn each_absent_registry_is_not_asked_and_leaves_the_others_in_their_places() {
    let counts = |registries: Registries, index| {
        assert_eq!(calls(registries), 5);
        let read = read_on(registries, &without(index)).unwrap().unwrap();
        (
            details(&read).reputation.feedback_count,
            details(&read).validation.count,
            details(&read).organizations.len(),
        )
    };
    assert_eq!(counts(Registries { reputation: None, ..ALL }, 3), (0, 3, 1));
    assert_eq!(counts(Registries { validation: None, ..ALL }, 4), (2, 0, 1));
    assert_eq!(
        counts(Registries { set: RegistrySet::Documented { organization: None }, ..ALL }, 5),
        (2, 3, 0)
    );
    let none = Registries {
        reputation: None,
        validation: None,
        set: RegistrySet::Documented { organization: None },
        ..ALL
    };
    assert_eq!(calls(none), 3);
    assert!(read_on(none, &results()[..3]).unwrap().is_some());
}

fn reason(text: &str) -> Vec<u8> {
    Error { reason: text.to_owned() }.abi_encode()
}

// threat: A failure admits somebody, or looks like an answer
#[test]
fn only_a_revert_that_says_so_of_this_token_and_a_zero_owner_are_not_minted() {
    let other = ERC721NonexistentToken { tokenId: U256::from(2) }.abi_encode();
    for data in [
        not_minted(),
        reason("ERC721: invalid token ID"),
        reason("ERC721: owner query for nonexistent token"),
        reason("NOT_MINTED"),
        OwnerQueryForNonexistentToken {}.abi_encode(),
        TokenDoesNotExist {}.abi_encode(),
    ] {
        assert_eq!(owner(reverted(data.clone())), Ok(None), "{data:02x?}");
        assert_eq!(read_on(ALL, &with(0, reverted(data))), Ok(None));
    }
    assert_eq!(owner(returned(Address::ZERO.into_word().to_vec())), Ok(None));
    for data in [
        Vec::new(),
        vec![0xde, 0xad, 0xbe, 0xef],
        other,
        ERC721NonexistentToken::SELECTOR.to_vec(),
        [ERC721NonexistentToken::SELECTOR.as_slice(), &[0; 31]].concat(),
        [TokenDoesNotExist::SELECTOR.as_slice(), &[0; 32]].concat(),
        reason("paused"),
        reason(""),
    ] {
        assert_eq!(
            owner(reverted(data.clone())),
            Err(ReadError::Reverted("ownerOf(uint256)")),
            "{data:02x?}"
        );
    }
    for (data, error) in [
        (Vec::new(), ReadError::NoCode("chain.contracts.identity")),
        (vec![0; 31], ReadError::Undecodable("ownerOf(uint256)")),
        (vec![0xff; 32], ReadError::Undecodable("ownerOf(uint256)")),
    ] {
        assert_eq!(owner(returned(data)), Err(error));
    }
}

#[test]
fn a_call_that_fails_or_gives_nothing_is_a_fault_whichever_it_is() {
    let names = [
        "ownerOf(uint256)",
        "getStake(uint256)",
        "tokenURI(uint256)",
        "getReputation(uint256)",
        "getValidation(uint256)",
        "getAgentOrganizations(uint256)",
    ];
    for (index, name) in names.into_iter().enumerate() {
        assert_eq!(read_on(ALL, &with(index, reverted(Vec::new()))), Err(ReadError::Reverted(name)));
        let empty = with(index, returned(Vec::new()));
        let Err(ReadError::NoCode(key)) = read_on(ALL, &empty) else { panic!("{name}") };
        // The contract check does not look at a second call of the same registry.
        let (missing, found) = (ReadError::NoCode(key), all_usable(found(&empty), false));
        let expected = match index {
            0 | 1 => Err(missing),
            2 => Ok(None),
            _ => Ok(Some(missing)),
        };
        assert_eq!(found, expected, "{name}");
        let cut = read_on(ALL, &with(index, returned(vec![0xff; 31])));
        assert_eq!(cut, Err(ReadError::Undecodable(name)));
    }
    // A revert that says something of another call says nothing of the owner.
    assert_eq!(read_on(ALL, &with(1, reverted(not_minted()))), Err(ReadError::Reverted("getStake(uint256)")));
    assert!(matches!(read_on(ALL, &results()[..5]), Err(ReadError::Unintelligible(_))));
    assert_eq!(all_usable(found(&results()), false), Ok(None));
}

/// Each registry by these results, of which that of the text is not asked for.
fn found(results: &[Result3]) -> Vec<Found> {
    let mut results = results.to_vec();
    results.remove(2);
    ALL.checks(agent(1)).zip(&results).map(|(check, result)| check.found(result)).collect()
}

#[test]
fn a_contract_without_the_function_is_another_one_and_one_that_says_why_it_reverts_is_not() {
    let others = |results: &[Result3]| {
        found(results).into_iter().filter_map(|(_, _, answer)| answer.err()).collect::<Vec<_>>()
    };
    assert_eq!(others(&results()), []);
    for (index, key, function) in [
        (0, "chain.contracts.identity", "ownerOf(uint256)"),
        (1, "chain.contracts.stake_vault", "getStake(uint256)"),
        (3, "chain.contracts.reputation", "getReputation(uint256)"),
        (4, "chain.contracts.validation", "getValidation(uint256)"),
        (5, "chain.contracts.organization", "getAgentOrganizations(uint256)"),
    ] {
        let other = ReadError::OtherContract { key, function };
        for result in [reverted(Vec::new()), returned(vec![0xff; 31])] {
            let results = with(index, result);
            assert_eq!(others(&results), std::slice::from_ref(&other));
            // Without details verifications are answered.
            assert_eq!(
                all_usable(found(&results), false).err(),
                (index < 2).then_some(other.clone()),
                "{key}"
            );
        }
        assert_eq!(others(&with(index, reverted(not_minted()))), [], "{key}");
    }
}

#[test]
fn an_answer_without_its_date_or_cut_off_is_none() {
    let whole = aggregate(&results());
    assert_eq!(read_dated(&whole, true).unwrap().1.len(), 6);
    for length in [0, 1, 31, 32, 64, whole.len() / 2] {
        assert!(read_dated(&whole[..length], true).is_err(), "{length} bytes");
    }
    let undated = <crate::chain::dated::aggregate3Call as SolCall>::abi_encode_returns(&results());
    assert!(read_dated(&undated, true).is_err());
}

#[test]
fn counts_beyond_64_bits_are_faults() {
    let huge = U256::from(u64::MAX) + U256::ONE;
    for (index, name, data) in
        [(3, "getReputation(uint256)", reputation(huge)), (4, "getValidation(uint256)", validation(huge))]
    {
        assert_eq!(read_on(ALL, &with(index, returned(data))), Err(ReadError::Undecodable(name)));
    }
    let none = read_on(ALL, &with(4, returned(validation(U256::ZERO)))).unwrap().unwrap();
    assert_eq!(details(&none).validation, Validation::default());
}

#[test]
fn texts_are_cut_at_a_character_and_what_is_cut_off_is_not_kept() {
    let text = format!("{}€{}", "t".repeat(16 * 1024 - 1), "t".repeat(100));
    let read = read_on(ALL, &with(2, returned(tokenURICall::abi_encode_returns(&text)))).unwrap().unwrap();
    assert_eq!(
        (details(&read).metadata_uri.len(), details(&read).metadata_uri.capacity()),
        (16 * 1024 - 1, 16 * 1024 - 1)
    );
    let row = OrganizationRow { orgId: U256::MAX, name: "n".repeat(20_000), verified: false };
    let read = read_on(ALL, &with(5, returned(organizations(vec![row])))).unwrap().unwrap();
    assert_eq!(
        (details(&read).organizations[0].name.len(), details(&read).organizations[0].org_id),
        (16 * 1024, U256::MAX)
    );
    let row = getValidationReturn {
        count: U256::from(1),
        latestPassed: true,
        latestEvidence: text,
        latestValidator: OWNER,
    };
    let row = getValidationCall::abi_encode_returns(&row);
    let read = read_on(ALL, &with(4, returned(row))).unwrap().unwrap();
    assert_eq!(details(&read).validation.latest.as_ref().unwrap().evidence.len(), 16 * 1024 - 1);
}

#[test]
fn organizations_beyond_the_cap_are_left_out() {
    let rows =
        (0..1_001).map(|id| OrganizationRow { orgId: U256::from(id), name: String::new(), verified: false });
    let read = read_on(ALL, &with(5, returned(organizations(rows.collect())))).unwrap().unwrap();
    assert_eq!(details(&read).organizations.len(), 1_000);
    assert_eq!(details(&read).organizations.last().unwrap().org_id, U256::from(999));
}

/// A quarter of a megabyte that stands for 100 of them: every element of the list is the same long text.
#[test]
fn a_short_answer_that_unfolds_to_a_long_one_is_a_fault() {
    let rows = 400_u64;
    let text_bytes = 256 * 1024;
    let mut data = [word(32), word(rows)].concat();
    for _ in 0..rows {
        data.extend(word(32 * rows));
    }
    data.extend([word(1), word(96), word(1), word(text_bytes)].concat());
    data.extend(vec![b'a'; usize::try_from(text_bytes).unwrap()]);
    let read = read_on(ALL, &with(5, returned(data)));
    assert_eq!(read, Err(ReadError::Undecodable("getAgentOrganizations(uint256)")));
}

#[test]
fn a_stake_of_one_word_or_of_three_reads_the_same() {
    for data in [word(7), [word(7), word(1), word(2)].concat()] {
        assert_eq!(read_on(ALL, &with(1, returned(data))).unwrap().unwrap().stake, Some(U256::from(7)));
    }
    for data in [Bytes::from(vec![0; 33]), Bytes::from(vec![0; 16])] {
        let read = read_on(ALL, &with(1, Result3 { success: true, returnData: data }));
        assert_eq!(read, Err(ReadError::Undecodable("getStake(uint256)")));
    }
}
