//! The part of the script about feedback and validations, and at last about upgrades.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::SolCall;

use super::{Stage, account, id, word};
use crate::dev::erc8004_rig::{Identity8004, Proxy8004, Reputation8004, Strangers, Validation8004};
use crate::dev::fixture::create;

const NONE: &str = "";

pub(super) fn run(stage: &mut Stage) {
    feedback(stage);
    reading_of_feedback(stage);
    averages(stage);
    validation(stage);
    upgrades(stage);
}

fn give(stage: &mut Stage, who: usize, agent: u64, (value, decimals): (i128, u8), tags: [&str; 2]) {
    let [tag1, tag2] = tags.map(str::to_owned);
    let give = Reputation8004::giveFeedbackCall {
        agentId: id(agent),
        value,
        valueDecimals: decimals,
        tag1,
        tag2,
        endpoint: "https://e".into(),
        feedbackURI: "ipfs://f".into(),
        feedbackHash: word(7),
    };
    stage.reputation(who, &give);
}

/// The greatest value that is taken.
const VALUE_MAX: i128 = 10_i128.pow(38);

fn feedback(stage: &mut Stage) {
    stage.part("feedback");
    for (who, agent, value, tags) in [
        (1, 0, (100, 0), ["starred", NONE]),
        (1, 0, (-5, 1), ["starred", "x"]),
        (3, 0, (87_654, 3), ["other", "x"]),
        (0, 0, (VALUE_MAX, 18), [NONE, NONE]),
        (0, 0, (-VALUE_MAX, 0), [NONE, NONE]),
        (0, 0, (VALUE_MAX + 1, 0), [NONE, NONE]),
        (0, 0, (-VALUE_MAX - 1, 0), [NONE, NONE]),
        (0, 0, (i128::MIN, 0), [NONE, NONE]),
        (0, 0, (1, 19), [NONE, NONE]),
        (0, 0, (VALUE_MAX + 1, 19), [NONE, NONE]),
        (2, 0, (1, 19), [NONE, NONE]),
        (2, 0, (1, 0), [NONE, NONE]),
        (0, 99, (1, 0), [NONE, NONE]),
        (2, 99, (VALUE_MAX + 1, 0), [NONE, NONE]),
        (0, 99, (1, 19), [NONE, NONE]),
        (1, 3, (1, 18), ["starred", NONE]),
        (1, 3, (2, 18), ["starred", NONE]),
        (1, 3, (7, 0), ["starred", NONE]),
    ] {
        give(stage, who, agent, value, tags);
    }
    for (who, agent, index) in [(1, 0, 1), (1, 0, 1), (1, 0, 0), (1, 0, 9), (2, 0, 1), (1, 99, 1), (3, 0, 1)]
    {
        stage.reputation(
            who,
            &Reputation8004::revokeFeedbackCall { agentId: id(agent), feedbackIndex: index },
        );
    }
    for (who, agent, client, index, uri) in [
        (2, 0, 1, 1, "ipfs://r"),
        (2, 0, 1, 2, "ipfs://r"),
        (3, 0, 1, 2, "ipfs://r"),
        (2, 0, 1, 2, "ipfs://again"),
        (2, 0, 1, 0, "ipfs://r"),
        (2, 0, 1, 9, "ipfs://r"),
        (2, 0, 1, 2, NONE),
        (2, 0, 1, 0, NONE),
        (2, 0, 1, 9, NONE),
        (2, 99, 1, 1, "ipfs://r"),
        (2, 0, 2, 1, "ipfs://r"),
        (2, 0, 3, 1, "ipfs://r"),
    ] {
        let respond = Reputation8004::appendResponseCall {
            agentId: id(agent),
            clientAddress: account(client),
            feedbackIndex: index,
            responseURI: uri.to_owned(),
            responseHash: word(9),
        };
        stage.reputation(who, &respond);
    }
    let crowd = create(&stage.chain, "Crowd");
    let entry = Reputation8004::giveFeedbackCall::new((
        id(3),
        5,
        0,
        "crowd".into(),
        String::new(),
        String::new(),
        String::new(),
        B256::ZERO,
    ));
    let (reputation, feedback) = (stage.on.reputation, entry.abi_encode().into());
    stage.act(0, crowd, &Strangers::giveCall { reputation, feedback, clients: id(3), each: id(4) });
}

fn reading_of_feedback(stage: &mut Stage) {
    stage.part("reading of feedback");
    let [a0, a1, a2, a3] = [0, 1, 2, 3].map(account);
    for agent in [0, 3, 2, 99].map(id) {
        stage.reputation(0, &Reputation8004::getClientsCall { agentId: agent });
        for clients in
            [vec![], vec![a1], vec![a3, a1], vec![a1, a1], vec![a2], vec![Address::ZERO], vec![a0, a1, a3]]
        {
            for [tag1, tag2] in
                [[NONE, NONE], ["starred", NONE], [NONE, "x"], ["starred", "x"], ["none", NONE]]
            {
                read_all(stage, agent, &clients, [tag1, tag2]);
            }
        }
        for client in [a1, a3, a2, Address::ZERO] {
            stage.reputation(0, &Reputation8004::getLastIndexCall { agentId: agent, clientAddress: client });
            for index in [0, 1, 2, 9] {
                stage.reputation(0, &Reputation8004::readFeedbackCall::new((agent, client, index)));
                for responders in [vec![], vec![a2], vec![a3, a2], vec![a0], vec![a2, a2]] {
                    let count = Reputation8004::getResponseCountCall::new((agent, client, index, responders));
                    stage.reputation(0, &count);
                }
            }
        }
    }
}

fn read_all(stage: &mut Stage, agent: U256, clients: &[Address], tags: [&str; 2]) {
    let [tag1, tag2] = tags.map(str::to_owned);
    let summary = Reputation8004::getSummaryCall::new((agent, clients.to_vec(), tag1.clone(), tag2.clone()));
    stage.reputation(0, &summary);
    for revoked in [true, false] {
        let all = (agent, clients.to_vec(), tag1.clone(), tag2.clone(), revoked);
        stage.reputation(0, &Reputation8004::readAllFeedbackCall::new(all));
    }
}

/// Ties of decimals, negative values, and digits that the average loses.
fn averages(stage: &mut Stage) {
    stage.part("averages");
    for (tag, values) in [
        ("a", &[(1, 0), (15, 1)][..]),
        ("b", &[(-7, 0), (-15, 1), (0, 1)]),
        ("c", &[(-1, 0), (0, 0)]),
        ("d", &[(802, 3), (80, 2), (81, 2)]),
        ("e", &[(VALUE_MAX, 0), (VALUE_MAX, 0)]),
        ("f", &[(1, 18), (2, 18), (9, 17)]),
        ("g", &[(5, 5)]),
        ("h", &[(-3, 0), (0, 0), (0, 18), (0, 18)]),
    ] {
        for value in values {
            give(stage, 3, 3, *value, [tag, NONE]);
        }
        read_all(stage, id(3), &[account(3)], [tag, NONE]);
        read_all(stage, id(3), &[], [tag, NONE]);
    }
}

fn validation(stage: &mut Stage) {
    stage.part("validation");
    stage.identity(2, &Identity8004::setApprovalForAllCall { operator: account(3), approved: true });
    let (one, nobody) = (account(1), Address::ZERO);
    for (who, validator, agent, hash, uri) in [
        (2, one, 0, 1, "ipfs://q"),
        (2, one, 0, 1, "ipfs://q"),
        (1, one, 0, 2, "ipfs://q"),
        (1, one, 0, 1, "ipfs://q"),
        (2, nobody, 0, 3, "ipfs://q"),
        (2, one, 99, 4, "ipfs://q"),
        (2, nobody, 99, 1, "ipfs://q"),
        (1, nobody, 0, 1, "ipfs://q"),
        (2, account(3), 0, 5, NONE),
        (2, account(2), 0, 6, "ipfs://q"),
        (2, one, 1, 0, "ipfs://q"),
        (3, one, 0, 7, "ipfs://q"),
    ] {
        let request = (validator, id(agent), uri.to_owned(), word(hash));
        stage.validation(who, &Validation8004::validationRequestCall::new(request));
    }
    look_at_validations(stage);
    for answers in [
        &[
            (1, 1, 100, "tag"),
            (3, 5, 0, NONE),
            (1, 5, 1, "tag"),
            (1, 1, 101, "tag"),
            (3, 1, 101, "tag"),
            (1, 99, 101, "tag"),
            (1, 99, 1, "tag"),
        ][..],
        &[(1, 1, 33, "other"), (2, 6, 51, "tag"), (1, 7, 52, "tag"), (1, 1, 33, "other")],
    ] {
        for (who, hash, response, tag) in answers {
            let answer = (word(*hash), *response, "ipfs://e".to_owned(), word(2), (*tag).to_owned());
            stage.validation(*who, &Validation8004::validationResponseCall::new(answer));
        }
        look_at_validations(stage);
    }
}

fn look_at_validations(stage: &mut Stage) {
    let (one, three) = (account(1), account(3));
    for hash in [0, 1, 2, 5, 6, 7, 99].map(word) {
        stage.validation(0, &Validation8004::getValidationStatusCall { requestHash: hash });
    }
    for agent in [0, 1, 99].map(id) {
        stage.validation(0, &Validation8004::getAgentValidationsCall { agentId: agent });
        for validators in [vec![], vec![one], vec![three, one], vec![one, one], vec![Address::ZERO]] {
            for tag in [NONE, "tag", "other"] {
                let summary = (agent, validators.clone(), tag.to_owned());
                stage.validation(0, &Validation8004::getSummaryCall::new(summary));
            }
        }
    }
    for validator in [one, three, Address::ZERO] {
        let requests = Validation8004::getValidatorRequestsCall { validatorAddress: validator };
        stage.validation(0, &requests);
    }
}

fn upgrades(stage: &mut Stage) {
    stage.part("upgrades");
    let on = stage.on;
    for (who, code) in
        [(1, on.identity_code), (0, on.identity_code), (0, on.identity), (0, account(1)), (0, Address::ZERO)]
    {
        let upgrade = (code, Bytes::new());
        stage.identity(who, &Proxy8004::upgradeToAndCallCall::new(upgrade.clone()));
        stage.act(who, on.identity_code, &Proxy8004::upgradeToAndCallCall::new(upgrade));
    }
    for (who, owner) in [(1, account(1)), (0, Address::ZERO), (0, account(1))] {
        stage.reputation(who, &Proxy8004::transferOwnershipCall { newOwner: owner });
    }
    for who in [0, 1] {
        stage.reputation(who, &Proxy8004::renounceOwnershipCall {});
    }
    stage.reputation(0, &Proxy8004::ownerCall {});
}
