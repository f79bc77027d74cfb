//! The upstreams and addresses that one request has tried.

/// The upstreams that a request has tried.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attempt {
    /// A bit for each; without them those that were tried may be tried again.
    pub(in crate::gateway) tried: u64,
    pub(in crate::gateway) current: Option<usize>,
    /// How many were tried, one that was tried again once more.
    pub(in crate::gateway) tries: u32,
    /// The turn of its upstream's addresses.
    pub(super) turn: usize,
    /// The marks of those that it has tried.
    pub(super) tried_addresses: u32,
    /// How many others its upstream has.
    pub(in crate::gateway) addresses_left: usize,
}

impl Attempt {
    /// True if the upstream that was tried last has another address.
    pub(in crate::gateway) const fn has_address_left(self) -> bool {
        self.addresses_left > 0
    }

    pub(super) const fn has_tried(self, at: usize) -> bool {
        self.tried >> at & 1 == 1
    }

    pub(super) const fn try_one(&mut self, at: usize, turn: usize) {
        self.tried |= 1 << at;
        self.current = Some(at);
        self.tries += 1;
        self.turn = turn;
        self.tried_addresses = 0;
    }
}
