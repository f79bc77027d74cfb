//! A reload is one step for whoever asks for several parts of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{collections::HashMap, fmt::Write as _, fs, sync::Arc, thread};

use alloy::primitives::{Address, U256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::Tenants;
use crate::config::{ConfigSource, no_probe};
use crate::domain::{AgentId, Holders, Texts, Tier, TrustProfile};
use crate::os::Os;
use crate::ports::Clock;
use crate::telemetry::Metrics;
use crate::tls::fixture::{Folder, SelfSigned, shown};
use crate::tls::{FileLoader, LoadedFiles};

#[path = "../../../tests/support/whole.rs"]
mod whole;

/// How often everything is exchanged, at each change and before a release.
const RELOADS: [usize; 2] = [100, 300];

/// Of so many readings of certificates one shakes hands, and of signers one has an assertion signed.
const WHOLE_EVERY: usize = 64;

const HOST: &str = "a.example";

/// Writes everything that a reload reads, each part as it is in one generation. The files of certificates and keys are written
/// before, and a generation names its own.
fn write(folder: &Folder, generation: usize) {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let agents = (0..=generation).fold(String::new(), |mut list, id| {
        let _ = writeln!(list, "{id} 1");
        list
    });
    folder.write("agents", &agents);
    let text = format!(
        r#"
        [chain]
        chain_id = 8004
        contracts.identity = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
        [tiers]
        source = "list"
        file = "{agents}"
        [listen]
        gateway = ["127.0.0.1:8081"]
        tls.cert = "{cert}"
        tls.key = "{key}"
        [assertion]
        issuer = "tiergate"
        key_file = "{key}"
        [[tenants]]
        id = "a"
        hosts = ["{HOST}"]
        upstreams = ["127.0.0.1:9000"]
        assertion = true
        max_body_bytes = {number}
        "#,
        agents = at("agents"),
        cert = at(&format!("{generation}.crt")),
        key = at(&format!("{generation}.key")),
        number = generation + 1,
    );
    folder.write("tiergate.toml", &text);
}

fn tenants_of(folder: &Folder) -> Tenants {
    let source = ConfigSource::alone(&folder.path().join("tiergate.toml"));
    let settings = source.read(0, None, &mut no_probe).whole().unwrap().settings;
    let clock: Arc<dyn Clock> = Arc::new(Os::new());
    Tenants::new(source, &settings, &clock, &Metrics::new().unwrap()).unwrap()
}

#[test]
fn a_signer_that_stays_with_a_refused_tenant_is_read_again() {
    let folder = Folder::new();
    let [first, second, shown] = ["a", "b", "c"].map(|_| SelfSigned::new(HOST));
    folder.pair_of("0", &shown.cert_pem, &shown.key_pem);
    folder.write("signer.key", &first.key_pem);
    write(&folder, 0);
    let text = fs::read_to_string(folder.path().join("tiergate.toml")).unwrap();
    let (main, tenant) = text.split_once("[[tenants]]").unwrap();
    let (without_signer, _) = main.split_once("[assertion]").unwrap();
    let signer = folder.path().join("signer.key");
    let signer = format!("[assertion]\nissuer = \"tiergate\"\nkey_file = \"{}\"\n", signer.display());
    folder.write("tiergate.toml", &format!("{without_signer}{signer}"));
    fs::create_dir(folder.path().join("tenants.d")).unwrap();
    folder.write("tenants.d/a.toml", tenant);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let tenants = tenants_of(&folder);
    let key_set = || tenants.table.load().issuer.as_ref().unwrap().key_set.clone();
    let of_first = key_set();
    folder.write("tiergate.toml", without_signer);
    assert_eq!(tenants.load_and_replace().0.unwrap().loaded.refused.len(), 1, "the tenant needs a signer");
    let before = tenants.fingerprint();
    assert_eq!(key_set(), of_first);
    folder.write("signer.key", &second.key_pem);
    assert!(tenants.fingerprint() != before, "its file is watched");
    assert!(tenants.load_and_replace().0.is_ok() && key_set() != of_first);
}

#[test]
fn a_chain_is_refused_where_the_store_of_the_start_is_of_another_whatever_was_read_meanwhile() {
    let folder = Folder::new();
    let write = |store: &str, chain: u32| {
        let identity = "0x5FbDB2315678afecb367f032d93F642f64180aa3";
        let chain = format!("[chain]\nchain_id = {chain}\ncontracts.identity = \"{identity}\"");
        let rest =
            format!("[store.embedded]\npath = \"{store}\"\n[tiers]\nsource = \"everyone\"\ntier = 1\n");
        folder.write("tiergate.toml", &format!("{chain}\n{rest}"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    write("first", 8004);
    let tenants = tenants_of(&folder);
    for (store, chain, is_refused) in [
        ("second", 8005, false),
        ("first", 8005, true),
        // No process has begun with the second one.
        ("second", 8006, false),
        ("first", 8004, false),
    ] {
        write(store, chain);
        let refused = tenants.load_and_replace().0.unwrap().loaded.refused;
        assert_eq!(!refused.is_empty(), is_refused, "{store} {chain} {refused:?}");
    }
}

#[test]
fn a_reload_says_which_key_names_a_file_that_cant_be_used() {
    let (folder, own) = (Folder::new(), SelfSigned::new(HOST));
    folder.pair_of("0", &own.cert_pem, &own.key_pem);
    write(&folder, 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let tenants = tenants_of(&folder);
    // It names files that are not there.
    write(&folder, 1);
    fs::create_dir(folder.path().join("tenants.d")).unwrap();
    let tenant = "id = \"b\"\nhosts = [\"b.example\"]\nupstreams = [\"https://127.0.0.1:9000\"]\n";
    folder.write("tenants.d/b.toml", &format!("{tenant}upstream_tls.ca = \"/absent\"\n"));
    let refused = tenants.load_and_replace().0.unwrap().loaded.refused;
    let lines: Vec<&String> = refused.iter().flat_map(|file| &file.problems).collect();
    for (key, place) in [
        ("listen.tls.cert", "tiergate.toml:"),
        ("assertion.key_file", "tiergate.toml:"),
        ("tenants.d/b.toml: upstream_tls.ca", "tenants.d/b.toml:4:19)"),
    ] {
        let key = format!("{key}: /");
        assert!(lines.iter().any(|line| line.starts_with(&key) && line.contains(place)), "{key} {lines:?}");
    }
}

// threat: A half-applied reload, a broken next start
#[test]
fn certificates_keys_agents_and_tenants_change_in_one_step() {
    let (folder, generations) = (Folder::new(), whole::reloads(RELOADS) + 1);
    let pairs: Vec<SelfSigned> = (0..generations).map(|_| SelfSigned::new(HOST)).collect();
    for (number, own) in pairs.iter().enumerate() {
        folder.pair_of(&number.to_string(), &own.cert_pem, &own.key_pem);
    }
    write(&folder, 0);
    let tenants = tenants_of(&folder);
    // By the key's id.
    let signers: HashMap<String, usize> = (0..generations)
        .map(|number| {
            let key = folder.pair(&number.to_string()).key;
            let keys = FileLoader::new(&LoadedFiles::default()).signing_keys(&key).unwrap();
            (keys.published[0].kid.clone(), number)
        })
        .collect();
    let of_certificate = |der: &[u8]| pairs.iter().position(|own| *own.cert_der == *der).unwrap();

    let site = || Arc::clone(tenants.table.load().find(HOST).unwrap());
    let by_table = |_| usize::try_from(site().tenant.proxy.body_bytes_max.unwrap()).unwrap() - 1;
    let by_certificate =
        |_| of_certificate(&tenants.table.load().certificates.as_ref().unwrap().find(Some(HOST)).cert[0]);
    let resolver = tenants.certificates(|table| table.certificates.as_ref()).unwrap();
    let (issuer, tiers) = (tenants.issuer(), tenants.tiers());
    let by_handshake = |_| of_certificate(&shown(resolver.clone(), Some(HOST)));
    let by_key_set = |_| {
        let key_set: Value = serde_json::from_str(&issuer().unwrap().key_set).unwrap();
        signers[key_set["keys"][0]["kid"].as_str().unwrap()]
    };
    let by_assertion = |_| {
        let assertion = site().issuer.as_ref().unwrap().sample();
        let header = URL_SAFE_NO_PAD.decode(assertion.split('.').next().unwrap()).unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        signers[header["kid"].as_str().unwrap()]
    };
    let (holders, texts) = (Holders::owned_by(Address::ZERO), Texts::default());
    let profile = TrustProfile { holders, stake: None, measured: None, details: None, texts };
    // The last one that is listed, of those from the generation on that was seen before.
    let by_agents = |seen: usize| {
        let is_listed =
            |id: &usize| tiers.grade(AgentId::new(U256::from(*id)), &profile).tier == Tier::Bronze;
        (seen..generations).take_while(is_listed).last().unwrap_or(seen.saturating_sub(1))
    };
    // As it is read at most times, and now and then.
    let parts: [[&(dyn Fn(usize) -> usize + Sync); 2]; 4] = [
        [&by_certificate, &by_handshake],
        [&by_key_set, &by_assertion],
        [&by_agents, &by_agents],
        [&by_table, &by_table],
    ];

    let (is_over, counts) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 2]);
    let mixed: Vec<String> = thread::scope(|scope| {
        let readers = (0..2_usize).map(|reader| {
            let (is_over, parts, counts) = (&is_over, &parts, &counts);
            scope.spawn(move || {
                let mut mixed = Vec::new();
                let mut seen = 0;
                for turn in reader.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // Any two parts, one after the other: the later one is never older.
                    let is_whole = usize::from((turn / 16).is_multiple_of(WHOLE_EVERY));
                    for at in [turn % 4, turn / 4 % 4] {
                        let now = parts[at][is_whole](seen);
                        if now < seen {
                            mixed.push(format!("part {at} is of {now} after {seen}"));
                        }
                        seen = seen.max(now);
                        counts[is_whole].fetch_add(1, Ordering::Relaxed);
                    }
                }
                mixed
            })
        });
        let readers: Vec<_> = readers.collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        for generation in 1..generations {
            write(&folder, generation);
            let applied = tenants.load_and_replace().0;
            assert!(applied.is_ok_and(|applied| applied.loaded.refused.is_empty()));
            // A busy machine may give the readers no turn.
            let readings = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
            let before = readings();
            while readings() == before && !readers.iter().any(|reader| reader.is_finished()) {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    let [plain, whole] = counts.map(AtomicUsize::into_inner);
    println!("{} reloads, {plain} plain readings, {whole} with a handshake or an assertion", generations - 1);
    assert_eq!(mixed, Vec::<String>::new(), "of {} reloads", generations - 1);
    assert_eq!(parts.map(|[part, _]| part(generations - 1)), [generations - 1; 4]);
    assert_eq!([by_handshake(0), by_assertion(0)], [generations - 1; 2]);
}
