//! `[tenants.limits]`: how many of one tenant's requests may be under way.

use std::ops::RangeInclusive;

use crate::config::reader::Reader;
use crate::domain::InFlight;

const COUNT: RangeInclusive<i64> = 1..=1_000_000;

const PUBLIC: &str = "limits.max_in_flight_public";

pub(super) fn read(reader: &mut Reader) -> Option<InFlight> {
    read_all!(reader: InFlight {
        /// All of them.
        all: reader.integer("limits.max_in_flight", 1_024, &COUNT),
        /// Those of strangers on public routes. If this is not less, they may hold every place.
        public: reader.integer(PUBLIC, 512, &COUNT),
        /// Those of one agent.
        per_agent: reader.integer("limits.max_in_flight_per_agent", 128, &COUNT),
        /// WebSockets and event streams of one agent, beside its other requests.
        streams_per_agent: reader.integer("limits.max_streams_per_agent", 16, &COUNT),
        /// How many may wait for a place, up to 10000; strangers are counted apart.
        queue_max: reader.integer("limits.max_queued", 128, &(0..=10_000)),
        // A line that lasts longer than clients wait is of no use.
        /// For how long, 1ms to 10s.
        queue_time: reader.duration("limits.queue_timeout", "500ms", ["1ms", "10s"]),
    })
}

/// Warns where strangers on public routes may hold every place of the tenant's agents.
pub(super) fn check_strangers(reader: &mut Reader, &InFlight { all, public, .. }: &InFlight) {
    // Of one place nobody can be left a part.
    if public >= all && all > 1 {
        let phrase = format!(
            "is {public} and limits.max_in_flight {all}: strangers on public routes may hold every place; write less"
        );
        reader.warn(&[PUBLIC], phrase);
    }
}
