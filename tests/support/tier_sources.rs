//! Contracts whose numbers give tiers, and the tables that name them as sources.

use alloy::primitives::{Address, U256};
use alloy::sol;
use toml::Table;

use crate::support::signing::{Account, DEPLOYER};
use crate::support::{chain::Chain, client::Answer, settings::Settings};

sol! {
    interface Fungible {
        function mint(address to, uint256 amount) external;
        function burn(address from, uint256 amount) external;
        function transfer(address to, uint256 amount) external returns (bool);
    }

    interface Collection {
        function mint(address to, uint256 id) external;
        function burn(uint256 id) external;
        function transferFrom(address from, address to, uint256 id) external;
    }

    interface Numbers {
        function set(uint256 agentId, uint256 value) external;
        function setQuietly(uint256 agentId, uint256 value) external;
        function setBroken(bool isBroken) external;
    }
}

/// A kind of token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Erc20,
    Erc721,
}

/// A token of a test's own.
#[derive(Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) address: Address,
    kind: Kind,
}

impl<'a> Token<'a> {
    pub(crate) fn new(chain: &'a Chain, kind: Kind) -> Self {
        let address = chain.deploy(match kind {
            Kind::Erc20 => "TierToken",
            Kind::Erc721 => "TierCollection",
        });
        Self { chain, address, kind }
    }

    /// The numbers at which tiers 1 to 4 begin.
    pub(crate) const fn thresholds(self) -> [u64; 4] {
        match self.kind {
            Kind::Erc20 => UNITS,
            Kind::Erc721 => [1, 2, 3, 4],
        }
    }

    /// The source of tiers that this is, by the tokens of `owner` or `agent_wallet`.
    pub(crate) fn source(self, of: &str) -> Table {
        let address = self.address.to_checksum(None);
        let mut source = Table::new();
        source.insert("contract".into(), address.into());
        source.insert("of".into(), of.into());
        let (name, thresholds) = match self.kind {
            Kind::Erc20 => ("erc20", WITH_THREE_DECIMALS),
            Kind::Erc721 => ("erc721", ["1", "2", "3", "4"]),
        };
        source.insert("source".into(), name.into());
        source.insert("thresholds".into(), thresholds.to_vec().into());
        if self.kind == Kind::Erc20 {
            source.insert("decimals".into(), 3.into());
        }
        source
    }

    /// Has a holder of `from` tokens hold `to`.
    pub(crate) fn change(self, holder: Account, from: u64, to: u64) {
        match self.kind {
            Kind::Erc20 => {
                let (to_mint, to_burn) = (to.saturating_sub(from), from.saturating_sub(to));
                if to_mint > 0 {
                    self.send(&Fungible::mintCall { to: holder.address, amount: U256::from(to_mint) });
                }
                if to_burn > 0 {
                    self.send(&Fungible::burnCall { from: holder.address, amount: U256::from(to_burn) });
                }
            }
            Kind::Erc721 => {
                for place in from..to {
                    self.send(&Collection::mintCall { to: holder.address, id: id(holder, place) });
                }
                for place in to..from {
                    self.send(&Collection::burnCall { id: id(holder, place) });
                }
            }
        }
    }

    /// Hands over so many of the tokens that `from` was given, the last ones first.
    pub(crate) fn transfer(self, (from, has): (Account, u64), to: Account, count: u64) {
        match self.kind {
            Kind::Erc20 => {
                let call = Fungible::transferCall { to: to.address, amount: U256::from(count) };
                self.chain.send(from, self.address, &call);
            }
            Kind::Erc721 => {
                for place in has - count..has {
                    let id = id(from, place);
                    let call = Collection::transferFromCall { from: from.address, to: to.address, id };
                    self.chain.send(from, self.address, &call);
                }
            }
        }
    }

    pub(crate) fn set_broken(self, is_broken: bool) {
        set_broken(self.chain, self.address, is_broken);
    }

    fn send(self, call: &impl alloy::sol_types::SolCall) {
        self.chain.send(DEPLOYER, self.address, call);
    }
}

/// A token that no number of an agent equals: in a log it names nobody.
fn id(holder: Account, place: u64) -> U256 {
    (U256::from_be_slice(holder.address.as_slice()) << 64_usize) + U256::from(place)
}

/// Scores of agents.
#[derive(Clone, Copy)]
pub(crate) struct Scores<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) address: Address,
}

impl<'a> Scores<'a> {
    pub(crate) fn new(chain: &'a Chain) -> Self {
        Self { chain, address: chain.deploy("Scores") }
    }

    pub(crate) fn source(self) -> Table {
        let mut source = Table::new();
        source.insert("source".into(), "call".into());
        source.insert("contract".into(), self.address.to_checksum(None).into());
        source.insert("function".into(), "score(uint256)".into());
        source.insert("decimals".into(), 3.into());
        source.insert("thresholds".into(), WITH_THREE_DECIMALS.to_vec().into());
        source
    }

    pub(crate) fn set(self, agent: U256, value: u64) {
        self.set_to(agent, U256::from(value));
    }

    /// Has the function revert about this agent.
    pub(crate) fn break_for(self, agent: U256) {
        self.set_to(agent, U256::MAX);
    }

    fn set_to(self, agent: U256, value: U256) {
        self.chain.send(DEPLOYER, self.address, &Numbers::setCall { agentId: agent, value });
    }

    pub(crate) fn set_broken(self, is_broken: bool) {
        set_broken(self.chain, self.address, is_broken);
    }
}

fn set_broken(chain: &Chain, contract: Address, is_broken: bool) {
    chain.send(DEPLOYER, contract, &Numbers::setBrokenCall { isBroken: is_broken });
}

/// The units at which tiers 1 to 4 begin, and the same with three decimals.
pub(crate) const UNITS: [u64; 4] = [10, 20, 30, 40];
const WITH_THREE_DECIMALS: [&str; 4] = ["0.01", "0.02", "0.03", "0.04"];

/// Sources beside others, by their names alone.
pub(crate) fn named(source: &str) -> Table {
    Table::from_iter([("source".to_owned(), source.into())])
}

/// Has these sources give tiers, and no stake unless they name it: one in `[tiers]`, several in tables.
pub(crate) fn with_sources(settings: Settings, sources: &[Table]) -> Settings {
    let has_vault = sources.iter().any(|source| source.get("source") == Some(&"stake_vault".into()));
    let settings = if has_vault { settings } else { settings.without("chain.contracts.stake_vault") };
    match sources {
        [source] => source
            .iter()
            .fold(settings, |settings, (key, value)| settings.set(&format!("tiers.{key}"), value.clone())),
        several => settings.set("tiers.sources", several.to_vec()),
    }
}

/// The tier that an answer tells, of who is admitted and who is not.
pub(crate) fn tier(answer: &Answer) -> Option<u64> {
    match answer.status {
        200 => answer.json()["trustTier"].as_u64(),
        403 => answer.json()["details"]["currentTier"].as_u64(),
        _ => None,
    }
}
