//! Header lines as they are written, whether into bytes of HTTP/1 or into the HTTP library's map.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Takes header lines.
pub(crate) trait Lines {
    /// Writes one header; `write` gets where its value goes. In a map it replaces what stands there.
    fn line(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>));

    /// Writes one header with this value.
    fn set(&mut self, name: &'static str, value: &[u8]) {
        self.line(name, |out| out.extend_from_slice(value));
    }
}

impl Lines for Vec<u8> {
    fn line(&mut self, name: &'static str, write: impl FnOnce(&mut Self)) {
        self.extend_from_slice(name.as_bytes());
        self.extend_from_slice(b": ");
        write(self);
        self.extend_from_slice(b"\r\n");
    }
}

/// The names alone.
impl Lines for Vec<&'static str> {
    fn line(&mut self, name: &'static str, _: impl FnOnce(&mut Vec<u8>)) {
        self.push(name);
    }
}

impl Lines for HeaderMap {
    fn line(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        let mut text = Vec::new();
        write(&mut text);
        // Our names and values are always valid: they are made of header values, addresses, hosts and digits.
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::try_from(text))
        {
            self.insert(name, value);
        }
    }
}

pub(crate) fn write_decimal(mut number: u64, out: &mut Vec<u8>) {
    let begin = out.len();
    loop {
        // The remainder of ten is a digit.
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(begin..) {
        digits.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::{HeaderMap, Lines, write_decimal};

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in [0, 9, 10, 59, 100, 2_700, u64::from(u32::MAX), u64::MAX] {
            let mut out = b"x".to_vec();
            write_decimal(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{number}"));
        }
    }

    #[test]
    fn a_line_of_bytes_is_a_line_of_http_1_and_one_in_a_map_replaces_the_one_before() {
        let mut bytes = Vec::<u8>::new();
        bytes.set("X-Agent-Id", b"4");
        assert_eq!(bytes, b"X-Agent-Id: 4\r\n");
        let mut map = HeaderMap::new();
        map.append("x-agent-id", "1".parse().unwrap());
        map.append("x-agent-id", "2".parse().unwrap());
        map.set("X-Agent-Id", b"4");
        let left: Vec<_> = map.get_all("x-agent-id").iter().collect();
        assert_eq!(left, ["4"]);
    }
}
