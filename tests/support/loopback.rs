//! Loopback addresses that no other process of this machine hands out, so that no two servers race for a port.
//!
//! A process claims a network of 254 addresses by listening in it for as long as the process lives. It claims another
//! one when all of them are used up, and never hands out an address twice.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// The first second byte that is claimed, and how many of them. Those below and above are for addresses that tests name.
const SECOND_BYTES: (u32, u32) = (16, 232);

/// How many networks there are.
const NETWORKS: u32 = SECOND_BYTES.1 * 256;

/// How many addresses of a network are handed out: all but the first, and the last, which the claim listens on.
const ADDRESSES: u8 = 254;

/// The port of the claim.
const CLAIM_PORT: u16 = 7_411;

/// A claimed network.
struct Network {
    number: u32,
    used: u8,
    claim: TcpListener,
}

/// An address that nobody else uses.
pub(super) fn own_ip() -> Ipv4Addr {
    static CURRENT: Mutex<Option<Network>> = Mutex::new(None);
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    let network = match current.take() {
        Some(network) if network.used < ADDRESSES => network,
        Some(full) => {
            // Its claim stays until the process ends.
            std::mem::forget(full.claim);
            claim(full.number + 1)
        }
        None => claim(std::process::id()),
    };
    let network = current.insert(network);
    network.used += 1;
    address(network.number, network.used)
}

/// The first network from `start` on that no process has claimed.
fn claim(start: u32) -> Network {
    let numbers = (0..NETWORKS).map(|step| (start + step) % NETWORKS);
    let mut claims = numbers.filter_map(|number| {
        let claim = TcpListener::bind((address(number, u8::MAX), CLAIM_PORT)).ok()?;
        Some(Network { number, used: 0, claim })
    });
    claims.next().unwrap()
}

fn address(network: u32, last: u8) -> Ipv4Addr {
    let byte = |number: u32| u8::try_from(number).unwrap();
    Ipv4Addr::new(127, byte(SECOND_BYTES.0 + network / 256), byte(network % 256), last)
}

#[test]
fn an_address_is_handed_out_once() {
    let mut seen = std::collections::BTreeSet::new();
    assert!((0..600).all(|_| seen.insert(own_ip())), "more than two networks");
    // As another process does that begins at the same network.
    let other = claim(std::process::id());
    assert!((0..=u8::MAX).all(|last| !seen.contains(&address(other.number, last))));
}
