//! The upstreams and addresses that one request has tried.

/// The upstreams that a request has tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    tried: u64,
    pub(super) current: Option<usize>,
    tries: u32,
    address: usize,
    addresses_left: usize,
}

impl Attempt {
    pub(in crate::gateway) const fn new() -> Self {
        Self { tried: 0, current: None, tries: 0, address: 0, addresses_left: 0 }
    }

    /// How often it was tried to connect.
    pub(in crate::gateway) const fn count(self) -> u32 {
        self.tries
    }

    /// True if the upstream that was tried last has another address.
    pub(in crate::gateway) const fn has_address_left(self) -> bool {
        self.addresses_left > 0
    }

    /// Upstreams that were tried may be tried again. The number of tries stays.
    pub(in crate::gateway) const fn begin_anew(&mut self) {
        self.tried = 0;
    }

    pub(super) const fn has_tried(self, at: usize) -> bool {
        self.tried >> at & 1 == 1
    }

    pub(super) const fn try_one(&mut self, at: usize, address: usize, addresses: usize) {
        self.tried |= 1 << at;
        self.current = Some(at);
        self.tries += 1;
        self.address = address;
        self.addresses_left = addresses.saturating_sub(1);
    }

    pub(super) fn try_next_address(&mut self) -> Option<usize> {
        self.addresses_left = self.addresses_left.checked_sub(1)?;
        self.tries += 1;
        self.address = self.address.wrapping_add(1);
        Some(self.address)
    }
}
