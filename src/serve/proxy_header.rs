//! The header of the PROXY protocol, versions 1 and 2, in which a balancer names the client of a connection. Must not know
//! connections.

use std::net::{IpAddr, SocketAddr};

const V1_BEGIN: &[u8] = b"PROXY ";

/// The longest header of version 1, in bytes.
pub(super) const V1_BYTES_MAX: usize = 107;

const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The part of a header of version 2 that is always there, in bytes.
const V2_HEAD_BYTES: usize = 16;

/// The longest rest of a header of version 2, in bytes: addresses and what balancers add to them.
const V2_REST_BYTES_MAX: usize = 2_048;

/// The first bytes of a connection, classified.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The beginning of a header. At least so many bytes of it are missing.
    More(usize),
    /// A whole header, and the client that it names. `None`: the connection is the balancer's own.
    Whole(Option<SocketAddr>),
}

/// `None` for bytes that can't become a header.
pub(super) fn parse(bytes: &[u8]) -> Option<Found> {
    if bytes.len() < V2_SIGNATURE.len() {
        let begins = |with: &[u8]| bytes.iter().zip(with).all(|(one, other)| one == other);
        let may_be_header = begins(V1_BEGIN) || begins(V2_SIGNATURE);
        return may_be_header.then_some(Found::More(V2_SIGNATURE.len() - bytes.len()));
    }
    match bytes.strip_prefix(V1_BEGIN) {
        Some(rest) => parse_v1(rest),
        None => parse_v2(bytes.strip_prefix(V2_SIGNATURE)?),
    }
}

/// A line of text, behind its first word.
fn parse_v1(rest: &[u8]) -> Option<Found> {
    let Some(line) = rest.strip_suffix(b"\r\n") else {
        // An end of line stands at the end alone, and nothing is read beyond it.
        let missing = if rest.ends_with(b"\r") { 1 } else { 2 };
        let is_open = !rest.contains(&b'\n') && V1_BEGIN.len() + rest.len() + missing <= V1_BYTES_MAX;
        return is_open.then_some(Found::More(missing));
    };
    let line = std::str::from_utf8(line).ok().filter(|line| !line.contains(['\r', '\n']))?;
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Some(Found::Whole(None));
    }
    let mut words = line.split(' ');
    let family = words.next()?;
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse().ok().map(IpAddr::V4),
            "TCP6" => word.parse().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (client, _) = (address()?, address()?);
    let (port, _) = (v1_port(words.next()?)?, v1_port(words.next()?)?);
    words.next().is_none().then_some(Found::Whole(Some((client, port).into())))
}

fn v1_port(word: &str) -> Option<u16> {
    let is_plain = word == "0" || !word.starts_with(['0', '+']);
    word.parse().ok().filter(|_| is_plain)
}

/// A binary header, behind its signature.
fn parse_v2(rest: &[u8]) -> Option<Found> {
    let Some(([command, family, high, low], rest)) = rest.split_first_chunk() else {
        return Some(Found::More(V2_HEAD_BYTES - V2_SIGNATURE.len() - rest.len()));
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    // LOCAL and PROXY are the commands; addresses and ports, each the client's first, count for PROXY, over TCP.
    let counted = match (command, family) {
        (0x20, _) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        _ => return None,
    };
    if !(counted..=V2_REST_BYTES_MAX).contains(&length) {
        return None;
    }
    if rest.len() < length {
        return Some(Found::More(length - rest.len()));
    }
    if counted == 0 {
        return Some(Found::Whole(None));
    }
    let (counted, extensions) = rest.split_at_checked(counted)?;
    let (addresses, [high, low, ..]) = counted.split_last_chunk::<4>()?;
    let (client, _) = addresses.split_at_checked(addresses.len() / 2)?;
    let ipv4 = <[u8; 4]>::try_from(client).map(IpAddr::from);
    let client = ipv4.or_else(|_| <[u8; 16]>::try_from(client).map(IpAddr::from)).ok()?;
    let client = SocketAddr::new(client, u16::from_be_bytes([*high, *low]));
    are_extensions(extensions).then_some(Found::Whole(Some(client)))
}

/// True if these bytes are extensions, each with its type, its length and so many bytes.
fn are_extensions(mut bytes: &[u8]) -> bool {
    while let Some(([_, high, low], rest)) = bytes.split_first_chunk() {
        match rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) {
            Some(next) => bytes = next,
            None => return false,
        }
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::prelude::*;

    use super::{Found, V2_SIGNATURE, parse};

    fn v1(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
        let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
        let (ip, port) = (client.ip(), client.port());
        format!("PROXY {family} {ip} {} {port} {}\r\n", server.ip(), server.port()).into_bytes()
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [V2_SIGNATURE, &[command, family], &length, rest].concat()
    }

    fn v2_of(client: SocketAddr, server: SocketAddr, extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut rest = Vec::new();
        for address in [client, server] {
            match address.ip() {
                IpAddr::V4(ip) => rest.extend(ip.octets()),
                IpAddr::V6(ip) => rest.extend(ip.octets()),
            }
        }
        rest.extend([client.port().to_be_bytes(), server.port().to_be_bytes()].concat());
        for (kind, value) in extensions {
            rest.push(*kind);
            rest.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
            rest.extend(value);
        }
        v2(0x21, if client.is_ipv4() { 0x11 } else { 0x21 }, &rest)
    }

    /// Two addresses of one family.
    fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let ips = prop_oneof![
            any::<[[u8; 4]; 2]>().prop_map(|ips| ips.map(IpAddr::from)),
            any::<[[u8; 16]; 2]>().prop_map(|ips| ips.map(IpAddr::from)),
        ];
        let both = (ips, any::<[u16; 2]>());
        both.prop_map(|([one, other], [port, to])| ((one, port).into(), (other, to).into()))
    }

    fn header() -> impl Strategy<Value = (Vec<u8>, SocketAddr)> {
        let extensions =
            prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..64)), 0..4);
        (addresses(), extensions, any::<bool>()).prop_map(|((client, server), extensions, is_text)| {
            let bytes = if is_text { v1(client, server) } else { v2_of(client, server, &extensions) };
            (bytes, client)
        })
    }

    /// Reads a header as a connection is read. Gives what was found, and how much was read.
    fn read(bytes: &[u8]) -> (Option<Found>, usize) {
        let mut end = 0;
        loop {
            match parse(&bytes[..end]) {
                Some(Found::More(count)) if end + count <= bytes.len() => end += count,
                found => return (found, end),
            }
        }
    }

    proptest! {
        // threat: Forged PROXY headers
        #[test]
        fn a_header_names_its_client_and_not_a_byte_behind_it_is_read(
            (bytes, client) in header(),
            behind in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let all = [bytes.clone(), behind].concat();
            prop_assert_eq!(read(&all), (Some(Found::Whole(Some(client))), bytes.len()));
        }

        #[test]
        fn every_beginning_of_a_header_needs_more_and_never_too_much((bytes, _) in header()) {
            for end in 0..bytes.len() {
                let Some(Found::More(count)) = parse(&bytes[..end]) else { panic!("{end} of {bytes:?}") };
                prop_assert!(count > 0 && end + count <= bytes.len());
            }
        }

        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), text in any::<bool>()) {
            let begin: &[u8] = if text { b"PROXY TCP4 " } else { V2_SIGNATURE };
            read(&bytes);
            read(&[begin, &bytes].concat());
        }
    }

    #[test]
    fn a_balancer_that_speaks_for_itself_names_nobody() {
        let unspecified = v2(0x20, 0, b"");
        let with_rest = v2(0x20, 0x11, &[7; 20]);
        for bytes in [b"PROXY UNKNOWN\r\n".as_slice(), b"PROXY UNKNOWN ff::1 x\r\n", &unspecified, &with_rest]
        {
            assert_eq!(read(bytes), (Some(Found::Whole(None)), bytes.len()), "{bytes:?}");
        }
    }

    // threat: Forged PROXY headers
    #[test]
    fn what_is_no_header_is_refused() {
        let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
        let binary = [
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x00, &[0; 12]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x31, &[0; 216]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x11, &[0; 13]),
            v2(0x21, 0x11, &[0; 12 + 2_048]),
            v2(0x21, 0x11, &[[0; 12].as_slice(), &[1, 0, 2, 9]].concat()),
        ];
        let text = [
            "GET / HTTP/1.1\r\n",
            "PROXX TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.04 1.2.3.4 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            &too_long,
        ];
        for bytes in text.iter().map(|text| text.as_bytes()).chain(binary.iter().map(Vec::as_slice)) {
            assert_eq!(read(&[bytes, b"GET /"].concat()).0, None, "{}", bytes.escape_ascii());
        }
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
        assert_eq!(read(longest.as_bytes()).0, Some(Found::Whole(None)));
    }
}
