//! Numbers, the tiers that they give, and whom logs concern.

use alloy::primitives::{Address, B256, I256, U256, keccak256};
use alloy::sol_types::SolValue;

use super::{Measures, Sum, TRANSFER, has_function, higher, number, score, sums};
use crate::chain::tests::results::{returned, reverted, word};
use crate::chain::{block::Log, dated::Result3, fault::ReadError, registries::logs::Drops};
use crate::domain::{AgentId, Feedback, Holders, Measure, Question, Texts, Tier, TrustProfile};

const TOKEN: Address = Address::repeat_byte(1);
const SCORES: Address = Address::repeat_byte(2);
const OWNER: Address = Address::repeat_byte(3);
const WALLET: Address = Address::repeat_byte(4);

fn measure(source: &'static str, contract: Address, question: Question) -> Measure {
    Measure { source, contract, question, thresholds: [10, 20].map(U256::from).into() }
}

fn all() -> Measures {
    Measures(vec![
        measure("erc20", TOKEN, Question::Balance { of_wallet: false }),
        measure("erc721", TOKEN, Question::Balance { of_wallet: true }),
        measure("call", SCORES, Question::Call { selector: [1, 2, 3, 4] }),
    ])
}

fn graded(holders: Holders, asked: Holders, results: Vec<Result3>) -> Result<Option<(Tier, u8)>, ReadError> {
    let profile =
        TrustProfile { holders, stake: None, measured: None, details: None, texts: Texts::default() };
    let profile = all().grade(Some(profile), asked, &mut results.into_iter())?;
    Ok(profile.unwrap().measured)
}

#[test]
fn the_highest_tier_counts_and_of_equal_ones_the_first() {
    let both = Holders { owner: OWNER, wallet: Some(WALLET) };
    for (numbers, expected) in [
        ([9, 9, 9], (Tier::Unverified, 0)),
        ([10, 10, 10], (Tier::Bronze, 0)),
        ([9, 10, 10], (Tier::Bronze, 1)),
        ([10, 19, 20], (Tier::Silver, 2)),
    ] {
        let results = numbers.map(|number| returned(word(number))).into();
        assert_eq!(graded(both, both, results), Ok(Some(expected)), "{numbers:?}");
    }
}

#[test]
fn an_agent_without_a_wallet_has_nothing_in_it_whatever_is_answered_about_nobody() {
    let alone = Holders::owned_by(OWNER);
    for nobody in [returned(word(1_000)), reverted(Vec::new())] {
        let results = vec![returned(word(10)), nobody, returned(word(0))];
        assert_eq!(graded(alone, alone, results), Ok(Some((Tier::Bronze, 0))));
    }
}

#[test]
fn one_number_that_cannot_be_read_leaves_no_tier_whatever_the_others_are() {
    let both = Holders { owner: OWNER, wallet: Some(WALLET) };
    for at in 0..3 {
        for bad in [reverted(Vec::new()), returned(Vec::new()), returned(vec![0; 31])] {
            let mut results = vec![returned(word(1_000)); 3];
            results[at] = bad;
            assert!(graded(both, both, results).is_err(), "{at}");
        }
        let results = vec![returned(word(1_000)); at];
        assert!(graded(both, both, results).is_err(), "{at} results");
    }
}

#[test]
fn balances_of_others_than_the_holders_count_for_nothing() {
    let (now, before) = (Holders::owned_by(OWNER), Holders::owned_by(WALLET));
    assert_eq!(graded(now, before, vec![returned(word(1_000)); 3]), Ok(None));
}

#[test]
fn a_function_returns_one_word_and_anything_else_is_no_number() {
    assert_eq!(number(returned(word(7))), Ok(U256::from(7)));
    assert_eq!(number(returned(Vec::new())), Err(ReadError::NoCode("tiers.contract")));
    assert_eq!(number(reverted(vec![1])), Err(ReadError::Reverted("tiers.function")));
    for other in [vec![0; 31], vec![0; 33], vec![0; 64]] {
        assert_eq!(number(returned(other)), Err(ReadError::Undecodable("tiers.function")));
    }
    assert_eq!(
        has_function("tiers.contract", &reverted(vec![1])),
        Ok("tiers.function"),
        "it does not know the agent"
    );
    for absent in [reverted(Vec::new()), returned(vec![0; 31])] {
        assert!(matches!(has_function("tiers.contract", &absent), Err(ReadError::OtherContract { .. })));
    }
}

fn version(text: &str) -> Result3 {
    returned(text.to_owned().abi_encode())
}

fn sum(total: i64, entries: u64, clients: u64) -> Sum {
    let [entries, clients] = [entries, clients].map(U256::from);
    Sum { total: I256::try_from(total).unwrap(), entries, clients }
}

fn said(sum: &Sum) -> Result3 {
    returned(sum.abi_encode())
}

#[test]
fn feedback_counts_for_its_sum_or_for_its_average_over_enough_clients_and_never_below_nothing() {
    for (sum, average_over, number) in [
        (sum(10, 3, 2), None, 10),
        (sum(10, 3, 2), Some(1), 3),
        (sum(10, 3, 2), Some(2), 3),
        (sum(10, 3, 2), Some(3), 0),
        (sum(-10, 3, 2), None, 0),
        (sum(-10, 3, 2), Some(1), 0),
        (sum(0, 0, 0), None, 0),
        (sum(0, 0, 0), Some(1), 0),
        (sum(0, 0, 0), Some(0), 0),
    ] {
        assert_eq!(score(&sum, average_over), U256::from(number), "{sum:?} {average_over:?}");
    }
}

#[test]
fn sums_are_those_of_the_first_agents_and_none_from_the_first_on_that_has_none() {
    let (one, other) = (sum(10, 3, 2), sum(-1, 1, 1));
    let none = || reverted(Vec::new());
    let all = [version("2.0.0"), said(&one), said(&other)];
    assert_eq!(sums(&all).unwrap(), [one, other]);
    let some = [version("2.7.1"), said(&sum(1, 1, 1)), none(), said(&sum(1, 1, 1))];
    assert_eq!(sums(&some).unwrap().len(), 1);
    for nothing in [
        &[][..],
        &[version("2.0.0")],
        &[version("2.0.0"), none(), said(&sum(1, 1, 1))],
        &[version("2.0.0"), returned(vec![0; 95])],
        &[version("3.0.0"), said(&sum(1, 1, 1))],
        &[returned(Vec::new()), said(&sum(1, 1, 1))],
        &[none(), said(&sum(1, 1, 1))],
    ] {
        assert!(sums(nothing).is_err(), "{nothing:?}");
    }
}

#[test]
fn feedback_is_not_among_the_calls_and_of_equal_tiers_the_first_source_counts() {
    let of = Feedback { clients: vec![OWNER], tag: String::new(), average_over: None, each: 5 };
    let measures = Measures(vec![
        measure("reputation", SCORES, Question::Feedback(of)),
        measure("call", SCORES, Question::Call { selector: [1, 2, 3, 4] }),
    ]);
    let (agent, holders) = (AgentId::new(U256::ONE), Holders::owned_by(OWNER));
    assert_eq!(measures.calls(agent, holders).count(), 1);
    let profile =
        TrustProfile { holders, stake: None, measured: None, details: None, texts: Texts::default() };
    let results = &mut vec![returned(word(10)), returned(word(20))].into_iter();
    let profile = measures.grade(Some(profile), holders, results).unwrap();
    assert_eq!(results.len(), 1);
    let measured = profile.unwrap().measured;
    assert_eq!(measured, Some((Tier::Bronze, 1)));
    assert_eq!(higher(measured, (Tier::Bronze, 0)), Some((Tier::Bronze, 0)));
    assert_eq!(higher(measured, (Tier::Unverified, 0)), measured);
    assert_eq!(higher(measured, (Tier::Silver, 2)), Some((Tier::Silver, 2)));
    assert_eq!(higher(None, (Tier::Unverified, 2)), Some((Tier::Unverified, 2)));
}

fn log(address: Address, event: B256, fields: &[B256], first_word: Option<B256>) -> Log {
    let topics = [&[event], fields].concat();
    Log { address, block_number: 5, block_hash: B256::ZERO, topics, first_word }
}

fn drops(log: Log) -> Drops {
    let mut drops = Drops::default();
    all().add_drops(&[log], &mut drops);
    drops
}

// threat: Cheap events empty the cache
#[test]
fn a_transfer_concerns_those_between_whom_it_is_and_one_of_nothing_or_to_oneself_nobody() {
    let between = [OWNER, WALLET].map(|holder| holder.into_word());
    let both = Drops { holders: [(OWNER, 5), (WALLET, 5)].into(), ..Drops::default() };
    let one = Some(B256::from(U256::ONE));
    assert_eq!(drops(log(TOKEN, TRANSFER, &between, one)), both);
    let of_nft = [between[0], between[1], B256::ZERO];
    assert_eq!(drops(log(TOKEN, TRANSFER, &of_nft, None)), both);
    assert_eq!(drops(log(TOKEN, TRANSFER, &of_nft, Some(B256::ZERO))), both, "its value is a topic");
    assert_eq!(drops(log(TOKEN, TRANSFER, &between, None)), both, "it may be of something");
    let (zero, own) = (Some(B256::ZERO), [between[0], between[0], B256::ZERO]);
    for (fields, value) in [(&between[..], zero), (&own[..2], one), (&own, None)] {
        let of_nothing = drops(log(TOKEN, TRANSFER, fields, value));
        assert_eq!(of_nothing, Drops::default(), "{fields:?} {value:?}");
    }
    assert_eq!(drops(log(OWNER, TRANSFER, &between, one)), Drops::default(), "of another contract");
    assert_eq!(drops(log(TOKEN, keccak256("Other()"), &between, one)), Drops::default());
    assert!(drops(log(TOKEN, TRANSFER, &[], one)).everybody.is_some(), "it names nobody in a topic");
}

#[test]
fn a_log_of_a_contract_that_is_called_concerns_the_agents_it_names_and_never_everybody() {
    let event = keccak256("Scored(uint256)");
    let named = |numbers: &[U256]| Drops {
        agents: numbers.iter().map(|number| (AgentId::new(*number), 5)).collect(),
        ..Drops::default()
    };
    let [seven, none, most] = [U256::from(7), U256::ZERO, U256::MAX];
    assert_eq!(drops(log(SCORES, event, &[seven.into(), none.into()], None)), named(&[seven, none]));
    assert_eq!(drops(log(SCORES, event, &[most.into()], None)), named(&[most]));
    assert_eq!(drops(log(SCORES, event, &[], Some(seven.into()))), named(&[]));
}
