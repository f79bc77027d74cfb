//! A case of the gateway.

use crate::rig::stage::Stage;
use crate::support::harness;

/// One guarantee, to be shown on a stage.
pub(crate) type Case = harness::Case<Stage>;

pub(crate) use crate::support::harness::cases;
