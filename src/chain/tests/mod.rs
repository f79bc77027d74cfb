//! What tests of several parts share and the development chain is needed for.

pub(super) mod development;
