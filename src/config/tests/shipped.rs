//! The file that is shipped: it shows every key with its default, and every key of it is strict.

use std::path::{Path, PathBuf};
use std::time::Duration;

use alloy::primitives::{U256, address};
use toml::{Table, Value};

use super::{
    MINIMAL, load, parse, problems, remove, set, shipped_file, shipped_file_for, shipped_keys,
    shipped_keys_and_sections,
};
use crate::config::location::Location;
use crate::config::log::{LogFormat, LogSettings};
use crate::config::notes::Notes;
use crate::config::reader::Reader;
use crate::config::shutdown::ShutdownSettings;
use crate::config::store::StoreSettings;
use crate::config::{Settings, tenants, tree};
use crate::domain::freshness::Freshness;
use crate::domain::log_rules::LogRules;
use crate::domain::quota::Quota;
use crate::domain::signature::SignatureFormat;
use crate::domain::tier::PerTier;
use crate::domain::tiers::TierSources;

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

#[test]
fn the_defaults_are_what_is_documented() {
    let settings = parse(MINIMAL, &[]).unwrap();
    assert!(!settings.keys_end_with_signer() && !settings.fixed.signature.agent_wallet);
    assert_eq!(settings.fixed.listen.api, "127.0.0.1:8080".parse().unwrap());
    assert!(settings.fixed.listen.gateway.is_empty() && settings.fixed.listen.owners.is_empty());
    assert!(settings.fixed.listen.authz.is_empty() && !settings.fixed.authz.tls);
    assert_eq!(settings.fixed.authz.timeout, Duration::from_secs(1));
    assert_eq!((settings.fixed.listen.max_connections, settings.fixed.listen.tls), (4_096, false));
    assert_eq!(settings.fixed.listen.max_connections_per_network, 0);
    assert_eq!(settings.fixed.listen.idle, Duration::from_secs(130));
    assert!(settings.fixed.listen.proxy_protocol.is_empty());
    assert!(settings.live.tenants.is_empty());
    assert_eq!(settings.fixed.listen.admin, "127.0.0.1:8082".parse().unwrap());
    assert!(settings.fixed.listen.trusted_proxies.is_empty());
    let urls: Vec<_> = settings.fixed.chain.pool.urls.iter().map(|url| url.reveal().as_str()).collect();
    assert_eq!(urls, ["http://127.0.0.1:8545/"]);
    assert_eq!(settings.fixed.chain.pool.chain_id, 8004);
    assert_eq!(settings.fixed.chain.reading.lifetimes.poll_interval, Duration::from_secs(1));
    assert_eq!(settings.fixed.chain.pool.request_timeout, Duration::from_secs(2));
    assert_eq!(settings.fixed.chain.reading.lifetimes.max_staleness, Duration::from_secs(5));
    assert_eq!(settings.fixed.chain.reading.max_head_age, Some(Duration::from_secs(600)));
    assert_eq!(settings.fixed.chain.reading.lifetimes.reread_after, Some(Duration::from_secs(3_600)));
    assert_eq!(settings.fixed.chain.reading.gas_cap, 50_000_000);
    assert_eq!((settings.fixed.chain.pool.calls_per_second, &settings.fixed.chain.pool.proxy), (None, &None));
    assert!(settings.fixed.chain.rpc_headers.is_empty());
    assert_eq!(settings.fixed.chain.reading.multicall, address!("cA11bde05977b3631167028862bE2a173976CA11"));
    let contracts = settings.fixed.chain.reading.registries;
    assert_eq!(contracts.identity, address!("5FbDB2315678afecb367f032d93F642f64180aa3"));
    assert_eq!(contracts.stake_vault, Some(address!("e7f1725E7734CE288F8367e1Bb143E90bb3F0512")));
    assert_eq!((contracts.reputation, contracts.validation, contracts.organization()), (None, None, None));
    let token = U256::from(10).pow(U256::from(18));
    let stake = [1_000, 10_000, 100_000, 500_000].map(|tokens| U256::from(tokens) * token);
    assert_eq!(settings.fixed.tiers.token_decimals, 18);
    let stakes = Some(PerTier(stake));
    assert_eq!(settings.fixed.tiers.sources, TierSources { stakes, ..TierSources::default() });
    let quotas = [1, 16, 166, 2_700].map(Quota::per_minute);
    assert_eq!(settings.fixed.tiers.requests_per_minute, PerTier(quotas));
    assert_eq!(settings.fixed.signature.domain_name, "Service Verification");
    assert_eq!(settings.fixed.signature.domain_version, "1");
    assert_eq!(settings.fixed.signature.chain_id, 8004);
    assert_eq!(settings.fixed.signature.format, SignatureFormat::Keys);
    assert_eq!(settings.fixed.signature.freshness, Freshness { max_age_secs: 300, max_ahead_secs: 60 });
    assert_eq!(settings.fixed.signature.nonce_retention, Duration::from_secs(900));
    assert_eq!(settings.fixed.keys.format.prefix(), "svc_live_v1_");
    assert_eq!(settings.fixed.keys.requests_per_hour, Quota::per_hour(10));
    assert_eq!(settings.fixed.store, StoreSettings::Embedded { path: PathBuf::from("./data") });
    assert!(!settings.live.store.create);
    assert_eq!(settings.fixed.abuse.failures_per_minute, Some(Quota::per_minute(300)));
    let [delay, grace] = [5, 20].map(Duration::from_secs);
    assert_eq!(settings.fixed.shutdown, ShutdownSettings { delay, grace });
    let LogSettings { format, audit, audit_required } = settings.fixed.log;
    assert_eq!((format, settings.live.log, audit), (LogFormat::Text, LogRules::default(), None));
    assert!(!audit_required);
}

#[test]
fn the_shipped_file_shows_every_key_and_no_other() {
    let notes = Notes::default();
    let mut reader = Reader::new(Location::default(), tree::Table::new(), std::iter::empty(), notes);
    let _ = Settings::read(&mut reader);
    let [of_tenant, of_route] = tenants::known();
    let in_place = |place: &str, known: &[&str]| -> Vec<String> {
        known.iter().map(|path| format!("{place}{path}")).collect()
    };
    let mut known = in_place("", &reader.scope.known);
    known.retain(|path| {
        !["tenants", "tenants_rules", "chain.rpc_headers", "tiers.sources"].contains(&path.as_str())
    });
    known.extend(in_place("tenants[1].", &of_tenant).into_iter().filter(|path| !path.ends_with("routes")));
    known.extend(in_place("tenants[1].routes[1].", &of_route));
    known.sort_unstable();
    let mut shown: Vec<String> = shipped_keys().into_iter().map(|(path, _)| path).collect();
    shown.sort_unstable();
    assert_eq!(shown, known);
}

#[test]
fn the_optional_registries_are_read_where_they_are_given() {
    let contracts = parse(&shipped_file().to_string(), &[]).unwrap().fixed.chain.reading.registries;
    assert_eq!(contracts.reputation, Some(address!("9fE46736679d2D9a65F0992F2272dE9f3c7fa6e0")));
    assert_eq!(contracts.validation, Some(address!("Cf7Ed3AccA5a467e9e704C703E8D87F634fB0Fc9")));
    assert_eq!(contracts.organization(), Some(address!("Dc64a140Aa3E981100a9becA4E685f962f0cF6C9")));
}

// threat: A wrong configuration runs quietly
#[test]
fn every_key_and_section_is_refused_by_name_under_another_name() {
    let (keys, sections) = shipped_keys_and_sections();
    let sections =
        sections.into_iter().filter(|path| !path.ends_with(']')).map(|path| (path, Table::new().into()));
    for (path, value) in keys.into_iter().chain(sections) {
        for renamed in [format!("{path}s"), format!("{path}_renamed"), path.to_uppercase()] {
            let mut file = shipped_file_for(&path);
            remove(&mut file, &path);
            set(&mut file, &renamed, value.clone());
            let found = problems(&file.to_string(), &[]);
            // A section in upper case is unknown as a whole.
            let section = renamed.split(['.', '[']).next().unwrap();
            let is_named = |line: &String| {
                [&renamed, section].iter().any(|name| line.starts_with(&format!("{name}: is ")))
            };
            assert!(found.iter().any(is_named), "{renamed}: {found:?}");
        }
    }
}

// threat: A wrong configuration runs quietly
#[test]
fn every_key_and_section_is_refused_by_its_path_with_every_wrong_type() {
    let (keys, sections) = shipped_keys_and_sections();
    for path in sections.into_iter().filter(|path| !path.ends_with(']')) {
        for wrong in wrong_types("a table") {
            let mut file = shipped_file_for(&path);
            set(&mut file, &path, wrong.clone());
            let found = problems(&file.to_string(), &[]);
            let start = format!("{path}: is ");
            assert!(found.iter().any(|line| line.starts_with(&start)), "{path} = {wrong}: {found:?}");
        }
    }
    for (path, value) in keys {
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let wrong_items = wrong_types(items.first().map_or("", type_of)).into_iter();
        let wrong_lists =
            wrong_items.filter(|_| !items.is_empty()).map(|item| Value::from(vec![item; items.len()]));
        for wrong in wrong_types(type_of(&value)).into_iter().chain(wrong_lists) {
            let mut file = shipped_file_for(&path);
            set(&mut file, &path, wrong.clone());
            let found = problems(&file.to_string(), &[]);
            let start = format!("{path}: ");
            assert!(!found.is_empty(), "{path} = {wrong} is accepted");
            assert!(found.iter().all(|line| line.starts_with(&start)), "{path} = {wrong}: {found:?}");
        }
    }
}

/// A value of every type of TOML but one.
fn wrong_types(right: &str) -> Vec<Value> {
    ["\"text\"", "7", "1.5", "true", "1979-05-27", "[[]]", "{ inside = 1 }"]
        .into_iter()
        .map(|literal| literal.parse().unwrap())
        .filter(|value| type_of(value) != right)
        .collect()
}

fn type_of(value: &Value) -> &'static str {
    crate::config::written::type_of(value)
}
