//! Results of ERC-8004's registries that are well-formed, of another version, or absurd.

use alloy::primitives::{Address, B256, Bytes, I256, U256, address, keccak256};
use alloy::sol_types::{SolCall, SolEvent, SolValue};

use super::{
    Answered, Reported, Response, ValidationResponse, evidence, getAgentWalletCall, getVersionCall,
    read_details,
};
use crate::chain::fixture::{ALL, ERC8004, OWNER, agent};
use crate::chain::registries::calls::{Found, ownerOfCall};
use crate::chain::tests::results::{not_minted, returned, reverted, word};
use crate::chain::{
    block::Log, contracts::all_usable, dated::Result3, fault::ReadError, registries::logs::Drops,
};
use crate::domain::{Holders, TrustProfile};

const WALLET: Address = address!("0x0000000000000000000000000000000000000077");

fn version(text: &str) -> Result3 {
    returned(getVersionCall::abi_encode_returns(&text.to_owned()))
}

/// The results of a read of what decides: version, owner, wallet, stake.
fn gate(wallet: Address) -> Vec<Result3> {
    vec![
        version("2.0.0"),
        returned(ownerOfCall::abi_encode_returns(&OWNER)),
        returned(getAgentWalletCall::abi_encode_returns(&wallet)),
        returned(word(5)),
    ]
}

fn with(index: usize, result: Result3) -> Vec<Result3> {
    let mut results = gate(WALLET);
    results[index] = result;
    results
}

fn read(results: &[Result3]) -> Result<Option<TrustProfile>, ReadError> {
    ERC8004.read_gate(agent(1), &mut results.iter().cloned())
}

#[test]
fn owner_wallet_and_stake_are_read_and_the_zero_address_is_no_wallet() {
    for (wallet, known) in [(WALLET, Some(WALLET)), (Address::ZERO, None), (OWNER, Some(OWNER))] {
        let profile = read(&gate(wallet)).unwrap().unwrap();
        assert_eq!(profile.holders, Holders { owner: OWNER, wallet: known });
        assert_eq!((profile.stake, profile.details), (Some(U256::from(5)), None));
    }
}

#[test]
fn another_version_or_none_is_a_fault_and_never_a_missing_agent() {
    let fault = |version: &str| {
        Err(ReadError::Version { key: "chain.contracts.identity", version: version.to_owned() })
    };
    for (result, shown) in [
        (version("1.0.0"), "1.0.0"),
        (version("0.0.1"), "0.0.1"),
        (version("20.0.0"), "20.0.0"),
        (version("3.0.0"), "3.0.0"),
        (version("2"), "2"),
        (version(""), ""),
        (version(&"x\n".repeat(100)), &"x".repeat(32)),
        (reverted(Vec::new()), "none"),
        (reverted(not_minted()), "none"),
        (returned(vec![1; 31]), "none"),
    ] {
        let mut results = with(1, reverted(not_minted()));
        results[0] = result;
        assert_eq!(read(&results), fault(shown));
    }
    assert_eq!(read(&with(0, returned(Vec::new()))), Err(ReadError::NoCode("chain.contracts.identity")));
    assert!(read(&with(0, version("2.1.0"))).unwrap().is_some());
}

#[test]
fn whatever_is_unclear_of_what_decides_is_a_fault() {
    for index in 0..4 {
        for result in [reverted(Vec::new()), returned(Vec::new()), returned(vec![0xff; 31])] {
            read(&with(index, result)).unwrap_err();
        }
    }
}

#[test]
fn a_registry_of_another_version_makes_the_service_unready_where_it_decides_and_else_is_named() {
    let good = || vec![version("2.0.0"), returned(word(0)), version("2.0.0"), version("2.3.1")];
    let found = |results: &[Result3]| -> Vec<Found> {
        ERC8004.checks(agent(1)).zip(results).map(|(check, result)| check.found(result)).collect()
    };
    assert_eq!(ERC8004.checks(agent(1)).count(), good().len());
    assert_eq!(all_usable(found(&good()), true), Ok(None));
    for (index, key, reads_feedback, decides) in [
        (0, "chain.contracts.identity", false, true),
        (2, "chain.contracts.reputation", false, false),
        (2, "chain.contracts.reputation", true, true),
        (3, "chain.contracts.validation", true, false),
    ] {
        let with = |result| {
            let mut results = good();
            results[index] = result;
            let found = all_usable(found(&results), reads_feedback);
            assert_eq!(found.is_err(), decides, "{key}");
            found.map_or_else(|error| error, Option::unwrap)
        };
        assert_eq!(with(version("1.1.0")), ReadError::Version { key, version: "1.1.0".into() });
        assert_eq!(with(reverted(Vec::new())), ReadError::Version { key, version: "none".into() });
        assert_eq!(with(returned(Vec::new())), ReadError::NoCode(key));
    }
}

/// The details of an agent, as the creation returns them.
fn found() -> Reported {
    Reported {
        ranOut: false,
        uri: Bytes::from_static(b"ipfs://card"),
        total: I256::try_from(-45 * 10_i128.pow(17)).unwrap(),
        feedback: U256::from(3),
        feedbackCut: false,
        validations: U256::from(2),
        validationsCut: false,
        request: B256::repeat_byte(1),
        validator: OWNER,
        response: U256::from(100),
        responseHash: B256::repeat_byte(2),
    }
}

#[test]
fn details_say_what_they_lack() {
    let read = |found: &Reported| read_details(&returned(found.abi_encode())).unwrap();
    let whole = read(&found());
    let (reputation, validation) = (whole.details.reputation, whole.details.validation);
    assert_eq!((reputation.total_text(), reputation.average_rating()), ("-4.5".into(), Some(-1.5)));
    assert!(!reputation.is_bounded && !validation.is_bounded && !whole.ran_out);
    assert!(validation.latest.as_ref().is_some_and(|latest| latest.passed && latest.validator == OWNER));
    let part = read(&Reported { feedbackCut: true, validationsCut: true, ranOut: true, ..found() });
    assert!(part.details.reputation.is_bounded && part.details.validation.is_bounded && part.ran_out);
    for (response, passed) in [(0, false), (50, false), (99, false), (100, true)] {
        let read = read(&Reported { response: U256::from(response), ..found() });
        assert_eq!(read.details.validation.latest.unwrap().passed, passed);
    }
    let unanswered = read(&Reported { validator: Address::ZERO, ..found() });
    assert!(unanswered.latest.is_none() && unanswered.details.validation.latest.is_none());
    assert!(read_details(&returned(vec![0; 32])).is_err());
}

#[test]
fn a_uri_is_cut_at_a_character_and_what_is_no_text_becomes_some() {
    let uri = |bytes: Vec<u8>| {
        let found = Reported { uri: bytes.into(), ..found() };
        read_details(&returned(found.abi_encode())).unwrap().details.metadata_uri
    };
    let text = format!("{}€", "t".repeat(16 * 1024 - 1));
    assert_eq!(uri(text.clone().into_bytes()).len(), 16 * 1024 - 1);
    assert_eq!(uri(vec![0xff, b'a']), "\u{fffd}a");
}

#[test]
fn evidence_is_that_of_the_last_log_if_it_is_of_this_answer() {
    let [request, hash] = [1, 2].map(B256::repeat_byte);
    let latest = Answered { request, response: U256::from(100), response_hash: hash };
    let log = |response, uri: &str, response_hash| Response {
        data: ValidationResponse {
            validatorAddress: OWNER,
            agentId: U256::ONE,
            requestHash: request,
            response,
            responseURI: uri.to_owned(),
            responseHash: response_hash,
            tag: String::new(),
        }
        .encode_data()
        .into(),
    };
    let (old, new) = (log(10, "ipfs://old", hash), log(100, "ipfs://new", hash));
    assert_eq!(evidence(latest, &[old.clone(), new.clone()]), Some("ipfs://new".into()));
    assert_eq!(evidence(latest, &[new.clone(), old]), None);
    assert_eq!(evidence(latest, &[log(100, "ipfs://other", B256::ZERO)]), None);
    assert_eq!(evidence(latest, &[]), None);
    assert_eq!(evidence(latest, &[Response { data: Bytes::from_static(&[0; 31]) }]), None);
}

#[test]
fn each_event_drops_the_agent_that_it_names_and_a_response_to_feedback_nobody() {
    let id = B256::from(U256::from(7));
    let high = B256::repeat_byte(9);
    let dropped = |signature: &str, fields: &[B256]| {
        let topics = [&[keccak256(signature)], fields].concat();
        let log = Log {
            address: ERC8004.identity,
            block_number: 1,
            block_hash: B256::ZERO,
            topics,
            first_word: None,
        };
        ERC8004.drops(&[log])
    };
    for (signature, fields) in [
        ("Transfer(address,address,uint256)", &[high, high, id][..]),
        ("Registered(uint256,string,address)", &[id, high]),
        ("URIUpdated(uint256,string,address)", &[id, high]),
        ("MetadataSet(uint256,string,string,bytes)", &[id, high]),
        (
            "NewFeedback(uint256,address,uint64,int128,uint8,string,string,string,string,string,bytes32)",
            &[id, high, high],
        ),
        ("FeedbackRevoked(uint256,address,uint64)", &[id, high, high]),
        ("ValidationRequest(address,uint256,string,bytes32)", &[high, id, high]),
        ("ValidationResponse(address,uint256,bytes32,uint8,string,bytes32,string)", &[high, id, high]),
        ("Staked(uint256,address,uint256)", &[id, high]),
        ("Unstaked(uint256,address,uint256)", &[id, high]),
    ] {
        let one = |id: u64| Drops { agents: [(agent(id), 1)].into(), ..Drops::default() };
        assert_eq!(dropped(signature, fields), one(7), "{signature}");
        let of_0: Vec<B256> =
            fields.iter().map(|field| if *field == id { B256::ZERO } else { *field }).collect();
        assert_eq!(dropped(signature, &of_0), one(0), "{signature} of agent 0");
    }
    // A mint names the zero address beside the agent, and an unknown event may name agent 0.
    let minted = dropped("Transfer(address,address,uint256)", &[B256::ZERO, high, id]);
    assert_eq!(minted.agents.len(), 1, "agent 0 is not concerned");
    assert_eq!(dropped("Unheard(uint256)", &[B256::ZERO]).everybody, None);
    for (signature, fields) in
        [("Upgraded(address)", &[high][..]), ("BatchMetadataUpdate(uint256,uint256)", &[])]
    {
        assert!(dropped(signature, fields).everybody.is_some(), "{signature}");
    }
    let response = "ResponseAppended(uint256,address,uint64,address,string,bytes32)";
    assert_eq!(dropped(response, &[id, high, high]), Drops::default());
    assert!(ALL.drops(&[]).everybody.is_none());
}
