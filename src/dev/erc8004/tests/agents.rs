//! The part of the script about agents: each function of the identity registry, by those who may and those who may not.

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::SolCall;

use super::{SAMPLE_ACCOUNTS, Stage, account, id};
use crate::dev::erc8004_rig::{Identity8004, Proxy8004, Strangers};
use crate::dev::fixture::create;

pub(super) fn run(stage: &mut Stage) {
    registration(stage);
    metadata(stage);
    wallets(stage);
    wallets_of_contracts(stage);
    transfers(stage);
}

/// Agents 0 to 2 of account 1, 3 of account 2.
fn registration(stage: &mut Stage) {
    stage.part("registration");
    for registry in [stage.on.identity, stage.on.reputation, stage.on.validation] {
        stage.act(0, registry, &Identity8004::getVersionCall {});
        stage.act(0, registry, &Proxy8004::ownerCall {});
        stage.act(0, registry, &Proxy8004::proxiableUUIDCall {});
        stage.act(0, registry, &Proxy8004::UPGRADE_INTERFACE_VERSIONCall {});
        stage.act(0, registry, &Proxy8004::getIdentityRegistryCall {});
        stage.act(0, registry, &Identity8004::initializeCall {});
        stage.act(0, registry, &Proxy8004::initializeCall { identityRegistry: registry });
    }
    stage.identity(0, &Identity8004::eip712DomainCall {});
    stage.identity(0, &Identity8004::nameCall {});
    stage.identity(0, &Identity8004::symbolCall {});
    for interface in [0x80ac_58cd_u32, 0x4906_4906, 0x01ff_c9a7, 0x5b5e_139f, u32::MAX] {
        let interface = interface.to_be_bytes().into();
        stage.identity(0, &Identity8004::supportsInterfaceCall { interfaceId: interface });
    }
    let entry = |key: &str, value: &[u8]| Identity8004::MetadataEntry {
        metadataKey: key.to_owned(),
        metadataValue: value.to_vec().into(),
    };
    stage.identity(1, &Identity8004::register_0Call {});
    stage.identity(1, &Identity8004::register_1Call { agentURI: "ipfs://a".into() });
    for metadata in
        [vec![entry("k", &[1]), entry("", &[])], vec![entry("k", &[1]), entry("agentWallet", &[2])]]
    {
        stage.identity(1, &Identity8004::register_2Call::new(("ipfs://b".to_owned(), metadata)));
    }
    stage.identity(2, &Identity8004::register_1Call { agentURI: String::new() });
    look_at_agents(stage);
}

fn look_at_agents(stage: &mut Stage) {
    for agent in [0, 1, 2, 3, 4, 99].map(id) {
        stage.identity(0, &Identity8004::ownerOfCall { tokenId: agent });
        stage.identity(0, &Identity8004::tokenURICall { tokenId: agent });
        stage.identity(0, &Identity8004::getAgentWalletCall { agentId: agent });
        stage.identity(0, &Identity8004::getApprovedCall { tokenId: agent });
        for key in ["k", "agentWallet", "name"] {
            stage.identity(0, &Identity8004::getMetadataCall::new((agent, key.to_owned())));
        }
        for spender in [account(0), account(1), account(2), account(3), Address::ZERO] {
            stage.identity(0, &Identity8004::isAuthorizedOrOwnerCall { spender, agentId: agent });
        }
    }
    for owner in [account(1), Address::ZERO] {
        stage.identity(0, &Identity8004::balanceOfCall { owner });
    }
}

fn metadata(stage: &mut Stage) {
    stage.part("metadata");
    for (who, agent) in [(1, 1), (2, 1), (1, 99)] {
        let agent = id(agent);
        stage.identity(who, &Identity8004::setAgentURICall { agentId: agent, newURI: "ipfs://c".repeat(20) });
        for key in ["name", "agentWallet"] {
            let set = (agent, key.to_owned(), Bytes::from([0x12, 0x34]));
            stage.identity(who, &Identity8004::setMetadataCall::new(set));
        }
    }
    look_at_agents(stage);
}

/// Sets a wallet of agent 1, which account 1 owns, by a signature for this owner until so much later.
fn set(stage: &mut Stage, who: usize, (agent, wallet, owner): (u64, Address, usize), later: i64, key: usize) {
    let deadline = (stage.now + 1).checked_add_signed(later).unwrap();
    let key = SAMPLE_ACCOUNTS[key].key;
    let set = stage.on.wallet_set(&stage.chain, (id(agent), wallet, account(owner)), deadline, key);
    stage.identity(who, &set);
}

/// The same with other bytes as signature.
fn set_by(stage: &mut Stage, wallet: Address, signature: Vec<u8>) {
    let deadline = U256::from(stage.now + 100);
    let signature = signature.into();
    let set = Identity8004::setAgentWalletCall { agentId: id(1), newWallet: wallet, deadline, signature };
    stage.identity(1, &set);
}

fn wallets(stage: &mut Stage) {
    stage.part("wallets");
    let (wallet, nobody) = (account(3), Address::ZERO);
    set(stage, 1, (1, wallet, 1), 200, 3);
    look_at_agents(stage);
    for later in [-5, -1, 0, 1, 299, 300, 301, 1_000] {
        set(stage, 1, (1, wallet, 1), later, 3);
        set(stage, 1, (1, nobody, 1), later, 3);
        set(stage, 1, (1, wallet, 1), later, 2);
    }
    for owner in [2, 3] {
        set(stage, 1, (1, wallet, owner), 100, 3);
    }
    set(stage, 2, (1, wallet, 1), 100, 3);
    set(stage, 2, (1, nobody, 1), 1_000, 3);
    set(stage, 1, (99, wallet, 1), 100, 3);
    set(stage, 1, (1, account(1), 1), 100, 1);
    let deadline = stage.now + 100;
    let signed =
        stage.on.wallet_set(&stage.chain, (id(1), wallet, account(1)), deadline, SAMPLE_ACCOUNTS[3].key);
    let order = U256::from_str_radix("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16);
    let (rs, v) = (&signed.signature[..64], signed.signature[64]);
    let high = (order.unwrap() - U256::from_be_slice(&rs[32..])).to_be_bytes::<32>();
    let high = [&rs[..32], &high, &[55 - v]].concat();
    let forms = [high, [rs, &[v - 27]].concat(), [rs, &[29]].concat(), [rs, &[v, 0]].concat(), rs.to_vec()];
    for signature in forms {
        stage
            .identity(1, &Identity8004::setAgentWalletCall { signature: signature.into(), ..signed.clone() });
    }
    for signature in [vec![], vec![1, 2]] {
        set_by(stage, wallet, signature);
    }
    for (who, agent) in [(2, 1), (1, 1), (1, 1), (1, 99)] {
        stage.identity(who, &Identity8004::unsetAgentWalletCall { agentId: id(agent) });
    }
    look_at_agents(stage);
}

fn wallets_of_contracts(stage: &mut Stage) {
    stage.part("wallets of contracts");
    let (key, lying) = (create(&stage.chain, "KeyWallet"), create(&stage.chain, "LyingWallet"));
    for signer in [0, 1] {
        set(stage, 1, (1, key, 1), 100, signer);
        stage.identity(0, &Identity8004::getAgentWalletCall { agentId: id(1) });
    }
    for wallet in [key, stage.on.reputation, stage.on.identity] {
        set_by(stage, wallet, vec![]);
    }
    for mode in (0..=14).filter(|mode| *mode != 12) {
        set_by(stage, lying, vec![mode]);
        set_by(stage, lying, [&[mode][..], &[0; 64]].concat());
    }
    stage.identity(1, &Identity8004::unsetAgentWalletCall { agentId: id(1) });
}

/// Leaves agents 0, 1 and 3 to account 2, and agent 2 to account 0.
fn transfers(stage: &mut Stage) {
    stage.part("transfers");
    stage.identity(1, &Identity8004::approveCall { to: account(2), tokenId: id(0) });
    look_at_agents(stage);
    stage.identity(2, &Identity8004::setAgentURICall { agentId: id(0), newURI: "by an approved".into() });
    set(stage, 2, (0, account(3), 1), 100, 3);
    stage.identity(2, &Identity8004::unsetAgentWalletCall { agentId: id(0) });
    set(stage, 2, (0, account(3), 1), 100, 3);
    stage.identity(2, &Identity8004::approveCall { to: account(3), tokenId: id(0) });
    stage.identity(1, &Identity8004::setApprovalForAllCall { operator: account(3), approved: true });
    stage.identity(3, &Identity8004::setAgentURICall { agentId: id(1), newURI: "by an operator".into() });
    for (who, from, to, agent) in [
        (3, account(1), account(0), 2),
        (2, account(1), account(2), 0),
        (0, account(0), account(0), 2),
        (2, account(2), Address::ZERO, 0),
        (1, account(2), account(1), 0),
        (1, account(2), account(1), 99),
        (2, account(1), account(2), 0),
        (2, account(1), account(2), 3),
    ] {
        stage.identity(who, &Identity8004::transferFromCall { from, to, tokenId: id(agent) });
        look_at_agents(stage);
    }
    let passing = create(&stage.chain, "PassingRegistrant");
    for to in [stage.on.reputation, passing, account(2)] {
        let from = account(1);
        stage.identity(1, &Identity8004::safeTransferFromCall { from, to, tokenId: id(1) });
    }
    for next in [account(2), Address::ZERO] {
        stage.act(0, passing, &Strangers::registerCall { registry: stage.on.identity, next });
    }
    look_at_agents(stage);
    stage.identity(1, &Identity8004::approveCall { to: account(2), tokenId: id(99) });
    stage.identity(1, &Identity8004::setApprovalForAllCall { operator: Address::ZERO, approved: true });
    stage.identity(1, &Identity8004::register_1Call { agentURI: "x".repeat(100) });
}
