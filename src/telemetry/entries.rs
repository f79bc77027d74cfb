//! How many entries the maps in memory hold that clients can make grow: counted when somebody looks, and never before.

use std::sync::{Arc, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};

/// The entries of one map, as `tiergate_entries{kind}`.
pub(super) struct Entries<T> {
    gauge: IntGauge,
    /// Does not keep the map.
    map: Weak<T>,
    len: fn(&T) -> usize,
}

impl<T> Entries<T> {
    pub(super) fn of(kind: &str, map: &Arc<T>, len: fn(&T) -> usize) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("tiergate_entries", "Entries held in memory.").const_label("kind", kind);
        Ok(Self { gauge: IntGauge::with_opts(opts)?, map: Arc::downgrade(map), len })
    }
}

impl<T: Send + Sync> Collector for Entries<T> {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let count = self.map.upgrade().map_or(0, |map| (self.len)(&map));
        self.gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.gauge.collect()
    }
}
