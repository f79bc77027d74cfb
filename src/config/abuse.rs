//! `[abuse]`: protection against guessing.

use crate::config::written::unless_zero;
use crate::domain::quota::Quota;

settings! {
    /// Protection against guessing.
    #[derive(Copy)]
    AbuseSettings(reader) {
        /// How many refused credentials one client IP may present before it is limited; nothing when that is off.
        failures_per_minute: Option<Quota> = {
            let failures = reader.integer("abuse.failures_per_minute", 300, &(0..=1_000_000));
            failures.map(|failures| unless_zero(failures).map(Quota::per_minute))
        },
    }
}
