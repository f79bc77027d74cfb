//! The body of a signed request, which is compared with its digest on its way.
//!
//! The upstream never gets the end of another body: what completes it waits until the digest is known to be right.

use std::mem;

use bytes::{Bytes, BytesMut};

use crate::domain::tenant::DigestCheck;
use crate::gateway::failure::Failure;
use crate::message_signature::digest::BodyDigest;

/// A body that has to match its digest.
#[derive(Debug)]
pub(super) struct CheckedBody {
    pub(super) digest: BodyDigest,
    /// True if all of it waits, and not only its end.
    pub(super) holds_all: bool,
    /// All that came, if it waits as a whole: pieces of a byte take no more room than one.
    whole: BytesMut,
    /// Else the last piece.
    last: Bytes,
}

impl CheckedBody {
    pub(super) fn new(digest: BodyDigest, check: DigestCheck) -> Self {
        let (whole, last) = (BytesMut::new(), Bytes::new());
        Self { digest, holds_all: check == DigestCheck::Before, whole, last }
    }

    /// Takes the next piece, and gives what goes on: maybe nothing, and all that waits behind the last.
    pub(super) fn pass(&mut self, piece: Option<Bytes>, is_last: bool) -> Result<Bytes, Failure> {
        let (piece, mut goes_on) = (piece.unwrap_or_default(), Bytes::new());
        self.digest.update(&piece);
        if self.holds_all {
            self.whole.extend_from_slice(&piece);
        } else if !piece.is_empty() {
            goes_on = mem::replace(&mut self.last, piece);
        }
        if !is_last {
            return Ok(goes_on);
        }
        if !self.digest.matches() {
            return Err(Failure::OtherBody);
        }
        let last = if self.holds_all { self.whole.split().freeze() } else { mem::take(&mut self.last) };
        Ok(if goes_on.is_empty() { last } else { [goes_on, last].concat().into() })
    }

    /// The body comes once more, from its beginning.
    pub(super) fn restart(&mut self) {
        self.digest.restart();
        self.whole.clear();
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::{BodyDigest, CheckedBody, DigestCheck, Failure};

    fn body(check: DigestCheck) -> CheckedBody {
        announced(check, "sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:")
    }

    fn announced(check: DigestCheck, digest: &str) -> CheckedBody {
        let digest = digest.parse().unwrap();
        let headers = HeaderMap::from_iter([("content-digest".parse().unwrap(), digest)]);
        CheckedBody::new(BodyDigest::of(&headers).unwrap().unwrap(), check)
    }

    /// All that went on before the end, and what became of the end.
    fn passed(body: &mut CheckedBody, text: &str, has_last_piece: bool) -> (usize, Result<usize, Failure>) {
        let mut pieces: Vec<Bytes> = text.as_bytes().chunks(4).map(Bytes::copy_from_slice).collect();
        let last = if has_last_piece { pieces.pop() } else { None };
        let before = pieces.into_iter().map(|piece| body.pass(Some(piece), false).unwrap().len()).sum();
        (before, body.pass(last, true).map(|end| end.len()))
    }

    #[test]
    fn a_body_goes_on_but_for_its_end_until_its_digest_is_right() {
        let (right, other) = ("{\"hello\":\"world\"}", "{\"hello\":\"earth\"}");
        for has_last_piece in [true, false] {
            let mut streamed = body(DigestCheck::Stream);
            let (before, end) = passed(&mut streamed, right, has_last_piece);
            assert!(before > 0 && before < right.len());
            assert_eq!(end, Ok(right.len() - before));
            let mut streamed = body(DigestCheck::Stream);
            let (before, end) = passed(&mut streamed, other, has_last_piece);
            assert!(before < other.len() && end == Err(Failure::OtherBody));
            let mut held = body(DigestCheck::Before);
            assert_eq!(passed(&mut held, right, has_last_piece), (0, Ok(right.len())));
            let mut held = body(DigestCheck::Before);
            assert_eq!(passed(&mut held, other, has_last_piece), (0, Err(Failure::OtherBody)));
        }
        assert_eq!(body(DigestCheck::Stream).pass(None, true), Err(Failure::OtherBody));
    }

    #[test]
    fn a_body_that_is_sent_again_is_compared_from_its_beginning() {
        let sha512 = "sha-512=:+PtokCNHosgo04ww4cNhd4yJxhMjLzWjDAKtKwQZDT4Ef9v/PrS/+BQLX4IX5dZkUMK/tQo7Uyc68RkhNyCZVg==:";
        for digest in ["sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:", sha512] {
            for (check, expected) in [(DigestCheck::Stream, (12, Ok(5))), (DigestCheck::Before, (0, Ok(17)))]
            {
                let mut body = announced(check, digest);
                for piece in ["{\"hel", "lo\":"] {
                    body.pass(Some(piece.into()), false).unwrap();
                }
                body.restart();
                assert_eq!(passed(&mut body, "{\"hello\":\"world\"}", true), expected, "{digest}");
            }
        }
    }

    #[test]
    fn a_piece_of_nothing_lets_no_end_go_on() {
        let mut body = body(DigestCheck::Stream);
        assert_eq!(body.pass(Some("{\"hello\":\"world\"}".into()), false), Ok(Bytes::new()));
        for nothing in [Some(Bytes::new()), None] {
            assert_eq!(body.pass(nothing, false), Ok(Bytes::new()));
        }
        assert_eq!(body.pass(None, true).unwrap().len(), 17);
    }
}
