//! `tiergate init`: a configuration to begin with.

use std::io::{IsTerminal as _, Write as _, stdin};
use std::{fs::File, path::PathBuf};

use crate::cli::{Failure, complain, say};
use crate::config::chain::contract;
use crate::domain::chain::facts;
use crate::os::Os;
use crate::ports::Entropy;

/// The part of the template that names the registries, and the same for ERC-8004's.
const CONTRACTS: [&str; 2] = [
    "\
# The addresses of your registries. Remove the # and fill them in; both are required.
[chain.contracts]
",
    "\
# The registries of ERC-8004. Their addresses are known on most chains that have them.
registries = \"erc8004\"

# Remove the # and fill in identity on another chain, and stake_vault where stakes give agents their tiers.
[chain.contracts]
",
];

/// The part of the template that says what gives agents their tiers, and the same for agents without stakes.
const TIERS: [&str; 2] = [
    "\
# The stake that opens tiers 1 to 4, in whole tokens.
stake = [\"1000\", \"10000\", \"100000\", \"500000\"]
",
    "\
# Each registered agent has tier 1. A registration costs next to nothing: let it reach only what anybody may.
source = \"everyone\"
tier = 1
",
];

/// Write a small configuration file to begin with.
#[derive(clap::Args)]
pub(super) struct Init {
    /// The file. One that exists is left alone.
    #[arg(default_value = "tiergate.toml")]
    file: PathBuf,
    /// The id of the chain [default: to be filled in].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=i64::MAX.cast_unsigned()))]
    chain_id: Option<u64>,
    /// Which registries hold the agents. Those of ERC-8004 have no stakes: without a stake vault each agent has tier 1.
    #[arg(long, value_name = "SET", value_parser = ["documented", "erc8004"], default_value = "documented")]
    registries: String,
    /// The address of the identity registry [default: to be filled in].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    identity: Option<String>,
    /// The address of the stake vault [default: to be filled in].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    stake_vault: Option<String>,
    /// The service's own name, which owners see when they sign [default: asked for at a terminal, or a random one].
    #[arg(long)]
    name: Option<String>,
}

impl Init {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut text = include_str!("init.toml").to_owned();
        if self.registries == "erc8004" {
            text = text.replace(CONTRACTS[0], CONTRACTS[1]);
            if let Some(remark) = self.chain_id.and_then(|id| facts(id).remark) {
                text = text.replace("[chain.contracts]\n", &format!("# {remark}\n[chain.contracts]\n"));
            }
            if self.stake_vault.is_none() {
                text = text.replace(TIERS[0], TIERS[1]);
            }
        }
        if let Some(chain_id) = self.chain_id {
            text = text.replace("# chain_id = ...", &format!("chain_id = {chain_id}"));
        }
        for (key, address) in [("identity", &self.identity), ("stake_vault", &self.stake_vault)] {
            if let Some(address) = address {
                text = text.replace(&format!("# {key} = \"0x...\""), &format!("{key} = \"{address}\""));
            }
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            // The default is a name that no other service has: a signature for one service must not be good at another.
            // Everybody may read it.
            None => {
                let [first, second, third, fourth, ..] = Os::new().key_bytes()?;
                let otherwise = format!("Tiergate {first:02x}{second:02x}{third:02x}{fourth:02x}");
                let mut typed = String::new();
                if stdin().is_terminal() {
                    complain(format_args!(
                        "Name of the service, which owners see when they sign [{otherwise}]: "
                    ));
                    stdin().read_line(&mut typed)?;
                }
                let typed = typed.trim();
                if typed.is_empty() { otherwise } else { typed.to_owned() }
            }
        };
        text = text.replace("\"NAME\"", &toml::Value::from(name).to_string());
        let file = self.file.display();
        let written = File::create_new(&self.file).and_then(|mut file| file.write_all(text.as_bytes()));
        let next = "one that exists is left alone: name another";
        written.map_err(|cause| format!("cannot create {file}: {cause}; {next}"))?;
        say(format_args!("{file}: written. Look through it, and try it with: tiergate check --config {file}"))
    }
}

/// An address that `check` takes, as it is written: to write its checksum anew would hide a typing error.
fn address(text: &str) -> Result<String, String> {
    contract(text).map(|_| text.to_owned())
}
