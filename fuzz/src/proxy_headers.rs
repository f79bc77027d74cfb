//! Headers of the PROXY protocol, read as a connection reads them, beside a naive reader that has all bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::proxy_header::{Found, parse};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header: the client that it names, and its length.
type Read = (Option<SocketAddr>, usize);

/// Both readers find the same header in front of these bytes.
pub fn check(input: &[u8]) {
    let expected = if input.starts_with(b"PROXY ") { naive_v1(input) } else { naive_v2(input) };
    assert_eq!(step_by_step(input), expected);
}

/// Takes as many bytes as are said to be missing, and no more.
fn step_by_step(input: &[u8]) -> Option<Read> {
    let mut end = 0;
    loop {
        match parse(input.get(..end)?)? {
            Found::More(count) => {
                assert!(count > 0);
                end += count;
            }
            Found::Whole(client) => return Some((client, end)),
        }
    }
}

fn naive_v1(input: &[u8]) -> Option<Read> {
    let end = input.iter().position(|byte| *byte == b'\n')? + 1;
    let line = input[..end].strip_suffix(b"\r\n").filter(|line| end <= 107 && !line.contains(&b'\r'))?;
    let line = std::str::from_utf8(line).ok()?;
    let words: Vec<&str> = line.split(' ').collect();
    if words[1] == "UNKNOWN" {
        return Some((None, end));
    }
    let [_, family, client, server, port, to] = words.try_into().ok()?;
    let of_family = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        _ => None,
    };
    // A port is written as the number is shown.
    let of_port = |text: &str| text.parse::<u16>().ok().filter(|port| port.to_string() == text);
    let (client, _, port, _) = (of_family(client)?, of_family(server)?, of_port(port)?, of_port(to)?);
    Some((Some((client, port).into()), end))
}

fn naive_v2(input: &[u8]) -> Option<Read> {
    let [command, family] = input.strip_prefix(SIGNATURE)?.get(..2)?.try_into().ok()?;
    let length = usize::from(u16::from_be_bytes(input.get(14..16)?.try_into().ok()?));
    let rest = input.get(16..16 + length).filter(|_| length <= 2_048)?;
    let end = 16 + length;
    let (client, extensions): (IpAddr, &[u8]) = match (command, family) {
        (0x20, _) => return Some((None, end)),
        (0x21, 0x11) => (<[u8; 4]>::try_from(rest.get(..4)?).ok()?.into(), rest.get(12..)?),
        (0x21, 0x21) => (<[u8; 16]>::try_from(rest.get(..16)?).ok()?.into(), rest.get(36..)?),
        _ => return None,
    };
    let port = if client.is_ipv4() { &rest[8..10] } else { &rest[32..34] };
    let mut left = extensions;
    while !left.is_empty() {
        let length = u16::from_be_bytes(left.get(1..3)?.try_into().ok()?);
        left = left.get(3 + usize::from(length)..)?;
    }
    Some((Some((client, u16::from_be_bytes(port.try_into().ok()?)).into()), end))
}
