//! `[abuse]`: protection against guessing.

use crate::config::written::unless_zero;
use crate::domain::Quota;

settings! {
    /// Protection against guessing.
    #[derive(Copy)]
    AbuseSettings(reader) {
        /// How many refused credentials one client IP may present in any 60 seconds before it is limited, up to 1000000; 0 = off.
        /// It may ask GET /keys/status as often.
        failures_per_minute: Option<Quota> = {
            let failures = reader.integer("abuse.failures_per_minute", 300, &(0..=1_000_000));
            failures.map(|failures| unless_zero(failures).map(Quota::per_minute))
        },
    }
}
