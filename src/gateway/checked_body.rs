//! The body of a signed request, which is compared with its digest on its way.
//!
//! The upstream never gets the end of another body: what completes it waits until the digest is known to be right.

use std::mem;

use bytes::{Bytes, BytesMut};

use crate::gateway::{failure::Failure, held::HeldBytes};
use crate::message_signature::BodyDigest;

/// A body that has to match its digest.
pub(super) struct CheckedBody {
    pub(super) digest: BodyDigest,
    /// Memory for all of it, if it waits as a whole, and not only its end.
    pub(super) held: Option<HeldBytes>,
    /// The bytes so far: pieces of a byte take no more memory than one.
    whole: BytesMut,
    /// Else the last piece.
    last: Bytes,
}

/// A whole body. Its room is free when nobody has it any more.
struct Held {
    whole: BytesMut,
    _held: HeldBytes,
}

impl CheckedBody {
    pub(super) fn new(digest: BodyDigest, held: Option<HeldBytes>) -> Self {
        Self { digest, held, whole: BytesMut::new(), last: Bytes::new() }
    }

    /// Takes the next piece, and gives what goes on: maybe nothing, and all that waits behind the last.
    pub(super) fn pass(&mut self, piece: Option<Bytes>, is_last: bool) -> Result<Bytes, Failure> {
        let (piece, mut goes_on) = (piece.unwrap_or_default(), Bytes::new());
        self.digest.update(&piece);
        if let Some(held) = &mut self.held {
            held.grow_to((self.whole.len() + piece.len()) as u64)?;
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
        let last = match self.held.take() {
            Some(held) => Bytes::from_owner(Held { whole: self.whole.split(), _held: held }),
            None => mem::take(&mut self.last),
        };
        Ok(if goes_on.is_empty() { last } else { [goes_on, last].concat().into() })
    }

    /// The body comes once more, from its beginning.
    pub(super) fn restart(&mut self) {
        self.digest.restart();
        self.whole.clear();
        self.last.clear();
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.whole
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use http::HeaderMap;

    use super::{BodyDigest, CheckedBody, Failure, HeldBytes};

    fn body(is_held: bool) -> CheckedBody {
        announced(is_held, "sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:")
    }

    fn announced(is_held: bool, digest: &str) -> CheckedBody {
        let digest = digest.parse().unwrap();
        let headers = HeaderMap::from_iter([("content-digest".parse().unwrap(), digest)]);
        CheckedBody::new(BodyDigest::of(&headers).unwrap().unwrap(), is_held.then(HeldBytes::unshared))
    }

    /// The bytes that went on before the end, and what became of the end.
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
            let mut streamed = body(false);
            let (before, end) = passed(&mut streamed, right, has_last_piece);
            assert!(before > 0 && before < right.len());
            assert_eq!(end, Ok(right.len() - before));
            let mut streamed = body(false);
            let (before, end) = passed(&mut streamed, other, has_last_piece);
            assert!(before < other.len() && end == Err(Failure::OtherBody));
            let mut held = body(true);
            assert_eq!(passed(&mut held, right, has_last_piece), (0, Ok(right.len())));
            let mut held = body(true);
            assert_eq!(passed(&mut held, other, has_last_piece), (0, Err(Failure::OtherBody)));
        }
        assert_eq!(body(false).pass(None, true), Err(Failure::OtherBody));
    }

    #[test]
    fn a_body_that_is_sent_again_is_compared_from_its_beginning() {
        let sha512 = "sha-512=:+PtokCNHosgo04ww4cNhd4yJxhMjLzWjDAKtKwQZDT4Ef9v/PrS/+BQLX4IX5dZkUMK/tQo7Uyc68RkhNyCZVg==:";
        for digest in ["sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:", sha512] {
            for (is_held, expected) in [(false, (12, Ok(5))), (true, (0, Ok(17)))] {
                let mut body = announced(is_held, digest);
                for piece in ["{\"hel", "lo\":"] {
                    body.pass(Some(piece.into()), false).unwrap();
                }
                body.restart();
                assert_eq!(passed(&mut body, "{\"hello\":\"world\"}", true), expected, "{digest}");
            }
        }
    }

    #[test]
    fn the_room_of_a_body_is_free_when_nobody_has_it_any_more() {
        let mut body = body(true);
        let memory = Arc::clone(&body.held.as_ref().unwrap().memory);
        body.pass(Some("{\"hello\":".into()), false).unwrap();
        assert_eq!(memory.taken(), 9);
        let whole = body.pass(Some("\"world\"}".into()), true).unwrap();
        drop((body, whole.clone().slice(3..)));
        assert_eq!(memory.taken(), 17);
        drop(whole);
        assert_eq!(memory.taken(), 0);
        let mut left = self::body(true);
        let memory = Arc::clone(&left.held.as_ref().unwrap().memory);
        left.pass(Some("{\"hello\":".into()), false).unwrap();
        drop(left);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn a_piece_of_nothing_lets_no_end_go_on() {
        let mut body = body(false);
        assert_eq!(body.pass(Some("{\"hello\":\"world\"}".into()), false), Ok(Bytes::new()));
        for nothing in [Some(Bytes::new()), None] {
            assert_eq!(body.pass(nothing, false), Ok(Bytes::new()));
        }
        assert_eq!(body.pass(None, true).unwrap().len(), 17);
    }
}
