//! `CheckRequest` as gateways send it, beside a naive reader of protobuf; what it tells is read as a request then.

use std::collections::HashMap;

use prost::Message;

use crate::ext_authz::CheckRequest;
use crate::original_parts::check_parts;

/// The fields of a message that have their length in front: number and bytes.
type Fields<'a> = Vec<(u64, &'a [u8])>;

/// Both readers find the same request.
pub fn check(input: &[u8]) {
    let Ok(request) = CheckRequest::decode(input) else { return };
    let Some(asked) = request.asked() else { return };
    let http = asked.http;
    let fields: Vec<_> = http.fields().collect();
    check_parts([http.method.as_bytes(), http.path.as_bytes(), http.host.as_bytes()], &fields);

    let Some(found) = naive(input) else { return };
    let parts = [&*http.method, &*http.path, &*http.host, &*http.scheme, asked.tenant].map(str::as_bytes);
    assert_eq!(parts.map(<[u8]>::to_vec), found.parts);
    let mut fields: Vec<_> =
        fields.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    fields.sort();
    assert_eq!(fields, found.fields);
}

struct Found {
    parts: [Vec<u8>; 5],
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

fn naive(input: &[u8]) -> Option<Found> {
    let attributes = merged(&read(input)?, 1);
    let attributes = read(&attributes)?;
    let request = merged(&attributes, 4);
    let http = merged(&read(&request)?, 2);
    let http = read(&http)?;
    let parts = [2, 4, 5, 6].map(|field| last(&http, field));
    let [method, path, host, scheme] = parts;
    let tenant = map(&attributes, 10)?.remove(&b"tenant"[..]).unwrap_or_default();
    let header_map = merged(&http, 13);
    let mut fields = Vec::new();
    for (_, header) in read(&header_map)?.into_iter().filter(|(field, _)| *field == 1) {
        let header = read(header)?;
        let raw = last(&header, 3);
        fields.push((last(&header, 1), if raw.is_empty() { last(&header, 2) } else { raw }));
    }
    fields.extend(map(&http, 3)?);
    fields.retain(|(name, _)| !name.starts_with(b":") && !name.eq_ignore_ascii_case(b"host"));
    fields.sort();
    Some(Found { parts: [method, path, host, scheme, tenant], fields })
}

/// A field's messages as one: messages behind each other are merged.
fn merged(fields: &Fields<'_>, field: u64) -> Vec<u8> {
    let all = fields.iter().filter(|(number, _)| *number == field);
    all.flat_map(|(_, bytes)| bytes.to_vec()).collect()
}

fn last(fields: &Fields<'_>, field: u64) -> Vec<u8> {
    let all = fields.iter().rev().find(|(number, _)| *number == field);
    all.map(|(_, bytes)| bytes.to_vec()).unwrap_or_default()
}

fn map(fields: &Fields<'_>, field: u64) -> Option<HashMap<Vec<u8>, Vec<u8>>> {
    let entries = fields.iter().filter(|(number, _)| *number == field);
    entries.map(|(_, entry)| read(entry).map(|entry| (last(&entry, 1), last(&entry, 2)))).collect()
}

/// `None`: the message is broken, or has groups.
fn read(mut rest: &[u8]) -> Option<Fields<'_>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let length = match key & 7 {
            0 => {
                varint(&mut rest)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (bytes, behind) = rest.split_at_checked(length)?;
        if key & 7 == 2 {
            fields.push((key >> 3, bytes));
        }
        rest = behind;
    }
    Some(fields)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}
