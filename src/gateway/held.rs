//! The body of a signed request, which is compared with its digest on its way, and memory for bodies that are held until they are
//! known to be right: bounded in the process, and shared among agents and clients by the law of slots
//! ([`in_flight`](crate::gateway::in_flight)).
//!
//! The upstream never gets the end of another body: what completes it waits until the digest is known to be right.

use std::{collections::HashMap, mem, sync::Arc};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use crate::gateway::{counters::SiteCounters, failure::Failure, in_flight::Caller};
use crate::{message_signature::BodyDigest, sharded::SHARE};

/// The most that all of them take, in bytes.
const HELD_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// The memory that a body of unknown length begins with, in bytes.
const UNKNOWN_BYTES: u64 = 16 * 1024;

/// The memory that is taken.
#[derive(Default)]
pub(super) struct Memory(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: u64,
    /// Bytes by caller; without any it has no entry.
    holders: HashMap<Caller, u64>,
}

/// Memory for one body, given back when it is dropped.
pub(super) struct HeldBytes {
    pub(super) memory: Arc<Memory>,
    holder: Caller,
    counters: Arc<SiteCounters>,
    bytes: u64,
}

impl HeldBytes {
    /// Memory for a body of this holder's that announces so many bytes.
    pub(super) fn new(
        memory: &Arc<Memory>,
        holder: Caller,
        counters: &Arc<SiteCounters>,
        announced: Option<u64>,
    ) -> Result<Self, Failure> {
        let (memory, counters) = (Arc::clone(memory), Arc::clone(counters));
        let mut held = Self { memory, holder, counters, bytes: 0 };
        held.grow_to(announced.unwrap_or(UNKNOWN_BYTES))?;
        Ok(held)
    }

    /// Takes more memory if the body takes more than it has.
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), Failure> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let mut taken = self.memory.0.lock();
        let all = taken.all.saturating_add(more);
        let own = taken.holders.get(&self.holder).map_or(more, |bytes| bytes.saturating_add(more));
        if own > HELD_BYTES_MAX.saturating_sub(all).saturating_mul(SHARE.into()) {
            drop(taken);
            self.counters.overloaded("bodies");
            return Err(Failure::Overloaded);
        }
        taken.all = all;
        taken.holders.insert(self.holder, own);
        drop(taken);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let mut taken = self.memory.0.lock();
        taken.all = taken.all.saturating_sub(self.bytes);
        if let Some(own) = taken.holders.get_mut(&self.holder) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                taken.holders.remove(&self.holder);
            }
        }
    }
}

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

    use alloy::primitives::U256;
    use bytes::Bytes;
    use http::HeaderMap;

    use super::{
        BodyDigest, Caller, CheckedBody, Failure, HELD_BYTES_MAX, HeldBytes, Memory, SiteCounters,
        UNKNOWN_BYTES,
    };
    use crate::{domain::AgentId, telemetry::Metrics};

    const MIB: u64 = 1024 * 1024;

    impl Memory {
        pub(in crate::gateway) fn taken(&self) -> u64 {
            self.0.lock().all
        }
    }

    impl HeldBytes {
        /// Bytes in a memory of its own.
        pub(in crate::gateway) fn unshared() -> Self {
            let counters = Arc::new(SiteCounters::new(&Metrics::new().unwrap(), &"acme".into()));
            Self {
                memory: Arc::default(),
                holder: Caller::Agent(AgentId::new(U256::ONE)),
                counters,
                bytes: 0,
            }
        }
    }

    // threat: Huge or costly heads and bodies
    #[test]
    fn one_agent_gets_three_quarters_and_what_is_dropped_is_there_again() {
        let metrics = Metrics::new().unwrap();
        let (memory, counters) =
            (Arc::<Memory>::default(), Arc::new(SiteCounters::new(&metrics, &"acme".into())));
        let take = |agent: u64, bytes| {
            HeldBytes::new(&memory, Caller::Agent(AgentId::new(U256::from(agent))), &counters, Some(bytes))
        };
        let mut held: Vec<_> = (0..12).map(|_| take(1, 8 * MIB).unwrap()).collect();
        assert_eq!(take(1, 1).err(), Some(Failure::Overloaded));
        let mut other = take(2, 8 * MIB).unwrap();
        assert_eq!(other.grow_to(24 * MIB + 1), Err(Failure::Overloaded), "a body that grows is bounded too");
        other.grow_to(24 * MIB).unwrap();
        assert_eq!(take(3, u64::MAX).err(), Some(Failure::Overloaded));
        assert_eq!(metrics.overload.with_label_values(&["acme", "bodies"]).get(), 3);
        held.pop();
        drop(other);
        take(1, 8 * MIB).unwrap();
        drop(held);
        let taken = memory.0.lock();
        assert_eq!((taken.all, taken.holders.len()), (0, 0));
    }

    #[test]
    fn a_body_of_unknown_length_takes_room_at_once_and_more_as_it_grows() {
        let HeldBytes { memory, holder, counters, .. } = &HeldBytes::unshared();
        let mut held = HeldBytes::new(memory, *holder, counters, None).unwrap();
        for (bytes, expected) in [(1, UNKNOWN_BYTES), (2 * UNKNOWN_BYTES, 2 * UNKNOWN_BYTES)] {
            held.grow_to(bytes).unwrap();
            assert_eq!(memory.taken(), expected);
        }
        assert_eq!(held.grow_to(HELD_BYTES_MAX / 4 * 3 + 1), Err(Failure::Overloaded));
    }

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
