//! Signatures over requests: whatever stands there is judged, and one that may count is over this request and no other.

use std::collections::BTreeSet;

use alloy::primitives::B256;

use crate::domain::UnixSeconds;
use crate::http1::{SpanFields, Spans, head::head_from_parts};
use crate::message_signature::{BodyDigest, Content, ERC_8128, ERC_8128_UNTAGGED, Message, Terms};

/// Those of the vectors, which are among the seeds.
const TERMS: Terms = Terms { chain_id: 1, validity_secs_max: 60, ahead_secs_max: 30 };
const NOW: UnixSeconds = UnixSeconds(1_700_000_001);

#[derive(Clone)]
struct Asked<'a> {
    scheme: &'a str,
    content: Content,
    method: Vec<u8>,
    target: Vec<u8>,
    host: Vec<u8>,
    fields: Vec<(&'a [u8], Vec<u8>)>,
}

/// A byte for scheme and content, then parts with 0xff in between: method, target, host, body, then names and values.
pub fn check(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let mut parts = rest.split(|byte| *byte == 0xff);
    let mut next = || parts.next().unwrap_or_default();
    let [method, target, host, body] = [next(), next(), next(), next()];
    let rest: Vec<&[u8]> = parts.collect();
    let content = [Content::Empty, Content::Follows, Content::Unseen][usize::from(mode / 2 % 3)];
    let asked = Asked {
        scheme: if mode % 2 == 0 { "https" } else { "http" },
        content,
        method: method.to_vec(),
        target: target.to_vec(),
        host: host.to_vec(),
        fields: rest.chunks_exact(2).map(|pair| (pair[0], pair[1].to_vec())).collect(),
    };
    let Some(digests) = asked.digests(body) else { return };
    let count = digests.len();
    assert!((1..=8).contains(&count));

    // Parts that are not signed change nothing.
    let mut more = asked.clone();
    more.fields.insert(0, (b"x-unsigned", b"1".to_vec()));
    assert!(more.digests(body).is_none_or(|others| digests.is_subset(&others)));

    // A changed part that is signed makes it another request.
    let others: [fn(&mut Asked<'_>); 5] = [
        |asked| asked.method.push(b'X'),
        |asked| asked.host.push(b'x'),
        |asked| drop(asked.target.splice(0..0, *b"/x")),
        |asked| asked.target.extend_from_slice(if asked.target.contains(&b'?') { &b"&"[..] } else { b"?x" }),
        |asked| {
            let agents = asked.fields.iter_mut().filter(|(name, _)| name.eq_ignore_ascii_case(b"x-agent-id"));
            agents.for_each(|(_, value)| value.push(b'1'));
        },
    ];
    for alter in others {
        let mut other = asked.clone();
        alter(&mut other);
        assert!(other.digests(body).is_none_or(|others| others.is_disjoint(&digests)));
    }
}

impl Asked<'_> {
    /// The digests that accounts must have signed for this request: one for each signature that may count.
    fn digests(&self, body: &[u8]) -> Option<BTreeSet<B256>> {
        let mut spans = Spans::default();
        let fields = self.fields.iter().map(|(name, value)| (*name, value.as_slice()));
        let line = [&self.method, &self.target, &self.host].map(Vec::as_slice);
        let (text, _) = head_from_parts(line, fields, &mut spans).ok()?;
        let fields = SpanFields { head: &text, spans: &spans };
        let message = Message {
            method: str::from_utf8(&self.method).ok()?,
            scheme: Some(self.scheme),
            authority: str::from_utf8(&self.host).ok()?,
            hosts: None,
            target: &self.target,
            fields: &fields,
            content: self.content,
        };
        ERC_8128.asked_for(&message);
        let digest = BodyDigest::of(&fields);
        if let Some(Ok(mut whole)) = digest {
            let Some(Ok(mut pieces)) = BodyDigest::of(&fields) else { panic!("read twice") };
            whole.update(body);
            body.chunks(3).for_each(|piece| pieces.update(piece));
            assert_eq!(whole.matches(), pieces.matches());
        }
        let found = message.candidates(&[&ERC_8128, &ERC_8128_UNTAGGED], &TERMS, NOW)?.ok()?;
        // A body that follows is compared with a digest.
        assert!(self.content != Content::Follows || matches!(BodyDigest::of(&fields), Some(Ok(_))));
        Some(found.messages.iter().map(|message| message.digest).collect())
    }
}
