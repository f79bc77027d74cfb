//! Signs for many requests at once, for measuring: `sign_many KEY REGISTRY AGENTS COUNT`. Each line is agent, signature,
//! nonce and timestamp; the agents take turns, and each nonce is a random number plus the line's.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;

use alloy::primitives::{Address, U256, hex};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use tiergate::domain::{AgentId, Eip712Domain, Nonce, SigningDomain, UnixSeconds};
use tiergate::os::Os;
use tiergate::ports::{Clock, Entropy};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [key, registry, agents, count] = words.as_slice() else {
        return Err("usage: sign_many KEY REGISTRY AGENTS COUNT".into());
    };
    let (signer, registry) = (key.parse::<PrivateKeySigner>()?, registry.parse::<Address>()?);
    let (agents, count) = (agents.parse::<u64>()?, count.parse::<u64>()?);
    let domain = SigningDomain::new(Eip712Domain {
        name: "Service Verification".into(),
        version: "1".into(),
        chain_id: 8004,
        verifying_contract: registry,
    });
    let os = Os::new();
    let first = U256::from_be_bytes(os.key_bytes()?) >> 1;
    for line in 0..count {
        let (agent, nonce) =
            (AgentId::new(U256::from(line % agents + 1)), Nonce::new(first + U256::from(line)));
        let signed_at = os.unix_seconds();
        let signature = signer.sign_hash_sync(&domain.digest(agent, nonce, UnixSeconds(signed_at)))?;
        println!("{agent} {} {nonce} {signed_at}", hex::encode_prefixed(signature.as_bytes()));
    }
    Ok(())
}
