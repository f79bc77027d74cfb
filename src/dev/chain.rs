//! The development chain as the rest of the process holds it: one lock around the ledger, and time from the clock.

use std::sync::Arc;

use alloy::primitives::{Address, Bytes, U256};
use parking_lot::Mutex;
use revm::context::result::ExecutionResult;

use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::evm::{self, ExecutionError, GAS_MAX, Message};
use crate::dev::ledger::Ledger;
use crate::ports::clock::Clock;

/// What every sample account owns at the start: 10,000 whole coins of 18 decimals.
const SAMPLE_BALANCE: u128 = 10_000 * 10_u128.pow(18);

/// An EVM chain in memory. One transaction is one block; gas costs nothing.
pub(crate) struct DevChain {
    clock: Arc<dyn Clock>,
    pub(super) ledger: Mutex<Ledger>,
}

impl DevChain {
    /// A chain with one empty block, where the sample accounts own some coins.
    pub(crate) fn new(chain_id: u64, clock: Arc<dyn Clock>) -> Self {
        let mut ledger = Ledger::new(chain_id, clock.unix_seconds());
        for account in *SAMPLE_ACCOUNTS {
            ledger.state.set_balance(account.address, 0, U256::from(SAMPLE_BALANCE));
        }
        Self { clock, ledger: Mutex::new(ledger) }
    }

    /// Sends a transaction; without `to` it creates a contract. Anybody can be the sender. Returns how it succeeded.
    /// [`ExecutionError::Rejected`] says that there is no new block. The others say that the transaction failed: it is in a
    /// block all the same, and its receipt has status 0.
    pub(crate) fn send(
        &self,
        from: Address,
        to: Option<Address>,
        data: Bytes,
    ) -> Result<ExecutionResult, ExecutionError> {
        let message = Message { from, to, value: U256::ZERO, data, gas_limit: GAS_MAX, nonce: None };
        let (_, result) = self.ledger.lock().mine(self.now(), message)?;
        evm::output(result.clone()).map(|_| result)
    }

    /// Calls a contract at the newest block.
    #[cfg(test)]
    pub(crate) fn call(&self, to: Address, data: Bytes) -> Result<Bytes, ExecutionError> {
        let from = Address::ZERO;
        let message =
            Message { from, to: Some(to), value: U256::ZERO, data, gas_limit: GAS_MAX, nonce: None };
        let ledger = self.ledger.lock();
        evm::output(ledger.call(ledger.head(), &message)?)
    }

    /// Puts code at an address, as of the newest block. There is no new block.
    pub(crate) fn set_code(&self, address: Address, code: Bytes) {
        let mut ledger = self.ledger.lock();
        let head = ledger.head().number;
        ledger.state.set_code(address, head, code);
    }

    /// Seconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        self.clock.unix_seconds()
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, Bytes, U256};
    use alloy::sol_types::SolCall;

    use crate::dev::accounts::SAMPLE_ACCOUNTS;
    use crate::dev::chain::DevChain;
    use crate::dev::evm::ExecutionError;
    use crate::dev::fixture::{Identity, Multicall, START_SECONDS, chain, create, deployed, read, send};

    /// The revert data of a call that must revert.
    fn reverted(chain: &DevChain, to: Address, call: &impl SolCall) -> Bytes {
        match chain.call(to, call.abi_encode().into()) {
            Err(ExecutionError::Reverted(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    fn owner_of(id: u64) -> Identity::ownerOfCall {
        Identity::ownerOfCall { id: U256::from(id) }
    }

    #[test]
    fn a_token_can_be_minted_moved_and_burnt() {
        let (chain, on) = deployed();
        let [alice, bob] = [SAMPLE_ACCOUNTS[0].address, SAMPLE_ACCOUNTS[9].address];
        send(
            &chain,
            on.identity,
            &Identity::mintWithIdCall { to: alice, id: U256::from(6), uri: "u".into() },
        );
        send(&chain, on.identity, &Identity::mintCall { to: alice, uri: "v".into() });
        assert_eq!(read(&chain, on.identity, &owner_of(7)), alice, "mint passes over an id that is taken");
        assert_eq!(read(&chain, on.identity, &Identity::balanceOfCall { owner: alice }), U256::from(2));

        let theft = Identity::transferFromCall { from: alice, to: bob, id: U256::from(6) };
        assert!(chain.send(bob, Some(on.identity), theft.abi_encode().into()).is_err());
        send(&chain, on.identity, &Identity::approveCall { to: bob, id: U256::from(6) });
        chain.send(bob, Some(on.identity), theft.abi_encode().into()).unwrap();
        assert_eq!(read(&chain, on.identity, &owner_of(6)), bob);
        let approved = read(&chain, on.identity, &Identity::getApprovedCall { id: U256::from(6) });
        assert_eq!(approved, Address::ZERO, "a transfer ends the approval");

        let into_contract =
            Identity::safeTransferFromCall { from: alice, to: on.stake_vault, id: U256::from(7) };
        assert!(chain.send(alice, Some(on.identity), into_contract.abi_encode().into()).is_err());
        send(
            &chain,
            on.identity,
            &Identity::safeTransferFromCall { from: alice, to: bob, id: U256::from(7) },
        );
        assert_eq!(read(&chain, on.identity, &Identity::balanceOfCall { owner: bob }), U256::from(2));

        let burn = Identity::burnCall { id: U256::from(6) };
        assert!(chain.send(alice, Some(on.identity), burn.abi_encode().into()).is_err());
        chain.send(bob, Some(on.identity), burn.abi_encode().into()).unwrap();
        assert!(reverted(&chain, on.identity, &owner_of(6)).starts_with(&[0x7e, 0x27, 0x32, 0x89]));
        let erc721 = Identity::supportsInterfaceCall { interfaceId: [0x80, 0xac, 0x58, 0xcd].into() };
        assert!(read(&chain, on.identity, &erc721));
    }

    #[test]
    fn what_is_sent_is_in_the_next_block_and_its_logs_and_output_come_back() {
        let (chain, on) = deployed();
        let from = SAMPLE_ACCOUNTS[0].address;
        let mint = Identity::mintCall { to: from, uri: String::new() }.abi_encode();
        let hash = || chain.ledger.lock().head().transaction.as_ref().unwrap().hash();
        chain.send(from, Some(on.identity), mint.clone().into()).unwrap();
        let (first, number) = (hash(), chain.ledger.lock().head().number);
        let second = chain.send(from, Some(on.identity), mint.into()).unwrap();
        assert_eq!(chain.ledger.lock().head().number, number + 1);
        assert_ne!(hash(), first);
        assert_eq!(second.created_address(), None);
        assert_eq!(Identity::mintCall::abi_decode_returns(second.output().unwrap()).unwrap(), U256::from(7));
        assert_eq!(second.logs()[0].topics()[3], B256::with_last_byte(7));
    }

    #[test]
    fn a_block_is_never_older_than_its_parent() {
        let (chain, clock) = chain();
        let multicall = create(&chain, "Multicall3");
        clock.set(START_SECONDS - 1_000);
        create(&chain, "LoneStake");
        let number = read(&chain, multicall, &Multicall::getBlockNumberCall {});
        let timestamp = read(&chain, multicall, &Multicall::getCurrentBlockTimestampCall {});
        assert_eq!((number, timestamp), (U256::from(2), U256::from(START_SECONDS)));
        clock.set(START_SECONDS + 1_000);
        create(&chain, "LoneStake");
        let timestamp = read(&chain, multicall, &Multicall::getCurrentBlockTimestampCall {});
        assert_eq!(timestamp, U256::from(START_SECONDS + 1_000));
    }
}
