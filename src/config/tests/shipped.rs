//! The files that are shipped.

use std::{path::Path, time::Duration};

use super::{MINIMAL, load, parse};
use crate::config::store::StoreSettings;

pub(super) const TEXT: &str = include_str!("../../../conf/tiergate.toml");

#[test]
fn the_shipped_file_loads_and_says_what_an_absent_key_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/tiergate.toml");
    let shipped = load(&path).unwrap();
    assert_eq!(shipped, parse(MINIMAL, &[]).unwrap());
}

#[test]
fn the_file_for_replicas_names_a_redis() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/replicas.toml");
    let settings = load(&path).unwrap();
    let StoreSettings::Redis(redis) = settings.fixed.store else { panic!("{:?}", settings.fixed.store) };
    assert_eq!(redis.url.to_string(), "redis://127.0.0.1:6379");
    assert_eq!((redis.timeout, redis.wait_replicas), (Duration::from_millis(250), 0));
    assert_eq!(settings.live.tenants.len(), 1);
}
