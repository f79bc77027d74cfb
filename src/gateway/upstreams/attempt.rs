//! The upstreams and addresses that one request has tried.

/// The upstreams that a request has tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    tried: u64,
    pub(super) current: Option<usize>,
    tries: u32,
    /// The turn of its upstream's addresses.
    pub(super) turn: usize,
    /// The marks of those that it has tried.
    pub(super) tried_addresses: u32,
    pub(super) addresses_left: usize,
}

impl Attempt {
    pub(in crate::gateway) const fn new() -> Self {
        Self { tried: 0, current: None, tries: 0, turn: 0, tried_addresses: 0, addresses_left: 0 }
    }

    /// How many upstreams were tried, one that was tried again once more.
    pub(in crate::gateway) const fn count(self) -> u32 {
        self.tries
    }

    /// True if the upstream that was tried last has another address.
    pub(in crate::gateway) const fn has_address_left(self) -> bool {
        self.addresses_left > 0
    }

    /// Goes to no other address of its upstream.
    pub(in crate::gateway) const fn leave_upstream(&mut self) {
        self.addresses_left = 0;
    }

    /// True if both are at one upstream.
    pub(in crate::gateway) fn is_at_upstream_of(self, other: Self) -> bool {
        self.current == other.current
    }

    /// Upstreams that were tried may be tried again. The number of tries stays.
    pub(in crate::gateway) const fn begin_anew(&mut self) {
        self.tried = 0;
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
