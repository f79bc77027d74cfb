//! Facts for the operator's page: tenants and upstreams as they are now, certificates and configuration as they are in
//! force, and the last reload. Secrets are blanked in what it is given.

use std::collections::{BTreeMap, HashMap};
use std::{cmp::Reverse, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::admin::Facts;
use crate::app::tenants::{Applied, Certificate, Tenants};
use crate::config::{DEFAULT, Loaded, RefusedFile, VALUES_SHOWN_MAX, Value};
use crate::files;
use crate::gateway::Site;

/// How many tenants are shown.
const TENANTS_SHOWN_MAX: usize = 100;

/// How many hosts of a tenant, certificates, and changes or problems of a reload are shown.
const ITEMS_SHOWN_MAX: usize = 100;

pub(super) struct Overview {
    tenants: Arc<Tenants>,
    in_force: Mutex<InForce>,
}

/// The configuration that is in force.
struct InForce {
    /// Sections as they were at the start, tenants as of the last reload that was applied.
    values: Vec<Value>,
    /// True if there may be more values than these.
    is_cut: bool,
    /// Grows with each applied reload.
    version: u64,
    /// Those in force; the next one to expire first.
    certificates: Json,
    /// The last reload, applied or not; null before the first one.
    last_reload: Json,
}

impl Overview {
    /// Begins with the configuration of the start.
    pub(super) fn new(tenants: Arc<Tenants>, loaded: &Loaded) -> Self {
        let certificates = shown_certificates(&tenants.certificates_in_force());
        let values = in_force_now(&[], loaded.values.clone(), &loaded.refused);
        let is_cut = loaded.values.len() >= VALUES_SHOWN_MAX;
        let last_reload = if loaded.refused.is_empty() {
            Json::Null
        } else {
            let (at, problems) = (tenants.now().0, problems(&loaded.refused));
            json!({ "at": at, "why": "start", "applied": false, "problems": problems, "tenants": [] })
        };
        let in_force = InForce { values, is_cut, version: 0, certificates, last_reload };
        Self { tenants, in_force: Mutex::new(in_force) }
    }

    /// A reload was applied, but for the files that it refuses.
    pub(super) fn applied(&self, why: &str, applied: Applied) {
        let Applied { loaded, tenants, has_other_certificates, .. } = applied;
        let tenants = tenants.iter().map(|(tenant, change)| json!({ "tenant": tenant, "change": change }));
        let tenants = shown(tenants);
        let certificates = shown_certificates(&self.tenants.certificates_in_force());
        let is_cut = loaded.values.len() >= VALUES_SHOWN_MAX;
        let mut in_force = self.in_force.lock();
        let values = in_force_now(&in_force.values, loaded.values, &loaded.refused);
        in_force.last_reload = json!({
            "at": self.tenants.now().0, "why": why, "applied": loaded.refused.is_empty(),
            "problems": problems(&loaded.refused), "tenants": tenants,
            "values": changes(&in_force.values, &values, is_cut || in_force.is_cut),
            "certificates": has_other_certificates,
        });
        in_force.certificates = certificates;
        in_force.is_cut = is_cut;
        in_force.version += 1;
        in_force.values.retain(|value| !value.is_live);
        let of_reload = values.into_iter().filter(|value| value.is_live);
        in_force.values.extend(of_reload);
    }

    /// A reload was refused: everything stays in force.
    pub(super) fn refused(&self, why: &str, problems: &[String]) {
        self.in_force.lock().last_reload = json!({
            "at": self.tenants.now().0, "why": why, "applied": false, "problems": shown(problems.iter()),
        });
    }
}

/// The problems of files that are refused, or null.
fn problems(refused: &[RefusedFile]) -> Json {
    if refused.is_empty() { Json::Null } else { shown(refused.iter().flat_map(|refused| &refused.problems)) }
}

/// The values that were read, without those of files and tenants that are left out, and those of files whose former version stays in
/// force.
fn in_force_now(former: &[Value], read: Vec<Value>, refused: &[RefusedFile]) -> Vec<Value> {
    let places: HashMap<&str, bool> = refused.iter().map(|file| (&*file.place, file.is_kept)).collect();
    let is_kept = |of: fn(&RefusedFile) -> bool| refused.iter().any(|file| file.is_kept && of(file));
    let (main, folder) = (is_kept(|file| file.is_main), is_kept(RefusedFile::is_folder));
    // The configuration file's keys have no file in front.
    let keeps = |value: &Value| match value.key.split_once(": ") {
        Some((file, _)) => places.get(file).copied().or(folder.then_some(true)),
        None if main => Some(true),
        None => value.key.split('.').next().and_then(|tenant| places.get(tenant).copied()),
    };
    let former = former.iter().filter(|value| keeps(value) == Some(true)).cloned();
    let values = former.chain(read.into_iter().filter(|value| keeps(value).is_none()));
    values.take(VALUES_SHOWN_MAX).collect()
}

impl Facts for Overview {
    fn status(&self) -> Json {
        let table = self.tenants.table.load();
        let now = self.tenants.facts.clock.monotonic_micros();
        let mut busiest: Vec<&Arc<Site>> = table.sites.iter().collect();
        busiest.sort_by_cached_key(|site| Reverse(site.requests()));
        let tenants = busiest.into_iter().take(TENANTS_SHOWN_MAX).map(|site| {
            let hosts = shown(site.tenant.hosts.iter().map(ToString::to_string));
            let upstreams = site.own_upstreams().into_iter().map(|member| {
                let state = &member.state;
                let upstream = state.upstream.to_string();
                json!({ "upstream": upstream, "state": state.condition(now), "inFlight": state.in_flight() })
            });
            json!({ "id": site.tenant.id, "hosts": hosts, "upstreams": upstreams.collect::<Json>() })
        });
        let tenants: Json = tenants.collect();
        let in_force = self.in_force.lock();
        json!({
            "now": self.tenants.facts.clock.unix_millis(),
            "tenants": tenants,
            "tenantsInAll": table.sites.len(),
            "certificates": in_force.certificates,
            "lastReload": in_force.last_reload,
            "configuration": in_force.version,
        })
    }

    fn configuration(&self) -> Json {
        let in_force = self.in_force.lock();
        json!({ "values": in_force.values, "isCut": in_force.is_cut })
    }
}

fn shown<T: serde::Serialize>(items: impl Iterator<Item = T>) -> Json {
    items.take(ITEMS_SHOWN_MAX).map(|item| json!(item)).collect()
}

/// The values that are not as they were, but for defaults that came or went with a tenant. Of lists that are
/// cut only keys in both count: the others may be behind the cut.
fn changes(former: &[Value], now: &[Value], are_cut: bool) -> Json {
    let mut gone: BTreeMap<&str, &Value> = former.iter().map(|value| (&*value.key, value)).collect();
    let changed = now.iter().map(|value| (gone.remove(&*value.key), Some(value))).collect::<Vec<_>>();
    let all = changed.into_iter().chain(gone.into_values().map(|value| (Some(value), None)));
    let known = all.filter(|(before, after)| !are_cut || (before.is_some() && after.is_some()));
    let changes = known.filter_map(|(before, after)| {
        let text = |value: Option<&Value>| value.map(|value| value.value.clone());
        let (old, new) = (text(before), text(after));
        let is_default = [before, after].into_iter().flatten().all(|value| value.origin == DEFAULT);
        let Value { key, is_live, .. } = before.or(after)?;
        let waits = !is_live;
        (old != new && !is_default)
            .then(|| json!({ "key": key, "before": old, "after": new, "waits": waits }))
    });
    shown(changes)
}

/// Each file with its users.
fn shown_certificates(certificates: &[Certificate]) -> Json {
    let mut by_file: BTreeMap<(i64, String), Vec<String>> = BTreeMap::new();
    for Certificate { file, kind, tenant, expiry } in certificates {
        let user = match (tenant, *kind) {
            (None, "authz") => "other gateways".to_owned(),
            (None, _) => "listeners".to_owned(),
            (Some(tenant), "upstream") => format!("upstreams of {tenant}"),
            (Some(tenant), _) => format!("tenant {tenant}"),
        };
        by_file.entry((*expiry, files::shown(file))).or_default().push(user);
    }
    shown(by_file.into_iter().map(|((expiry, file), used_by)| {
        json!({ "file": file, "usedBy": shown(used_by.into_iter()), "expiresAt": expiry })
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{RefusedFile, changes, in_force_now};
    use crate::config::{DEFAULT, Value};

    fn values(pairs: &[(&str, &str)]) -> Vec<Value> {
        let value = |(key, value): &(&str, &str)| Value {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            origin: if key.starts_with('d') { DEFAULT } else { "a.toml:1" }.to_owned(),
            is_live: *key == "log.level",
        };
        pairs.iter().map(value).collect()
    }

    #[test]
    fn values_of_what_is_left_out_are_not_shown_and_those_of_what_is_kept_are_the_former_ones() {
        let keys =
            ["log.level", "tenants[1].id", "tenants[2].id", "tenants.d/a.toml: id", "tenants.d/b.toml: id"];
        let [former, read] = ["former", "read"].map(|text| values(&keys.map(|key| (key, text))));
        let refused =
            |place, is_kept, is_main| RefusedFile { is_main, ..RefusedFile::new(place, ["x"], is_kept) };
        for (refusal, [read_shown, former_shown]) in [
            (refused("tenants[1]", false, false), [[0, 2, 3, 4].as_slice(), &[]]),
            (refused("tenants.d/a.toml", false, false), [&[0, 1, 2, 4], &[]]),
            (refused("tenants.d/a.toml", true, false), [&[0, 1, 2, 4], &[3]]),
            (refused("tenants.d", true, false), [&[0, 1, 2], &[3, 4]]),
            (refused("tiergate.toml", true, true), [&[3, 4], &[0, 1, 2]]),
        ] {
            let shown = in_force_now(&former, read.clone(), &[refusal]);
            let of = |text| {
                shown.iter().filter(|value| value.value == text).map(|value| &*value.key).collect::<Vec<_>>()
            };
            let at = |places: &[usize]| places.iter().map(|at| keys[*at]).collect::<Vec<_>>();
            assert_eq!([of("read"), of("former")], [at(read_shown), at(former_shown)]);
        }
    }

    #[test]
    fn keys_on_one_side_of_a_cut_are_no_change() {
        let former =
            values(&[("log.level", "1"), ("x", "1"), ("c", "1"), ("b", "1"), ("a", "1"), ("d", "1")]);
        let now = values(&[("log.level", "2"), ("x", "2"), ("y", "2"), ("e", "2"), ("default", "2")]);
        let change = |key, before: Option<&str>, after: Option<&str>, waits| json!({ "key": key, "before": before, "after": after, "waits": waits });
        let both =
            [change("log.level", Some("1"), Some("2"), false), change("x", Some("1"), Some("2"), true)];
        assert_eq!(changes(&former, &now, true), json!(both));
        let one = ["y", "e"].map(|key| change(key, None, Some("2"), true));
        let gone = ["a", "b", "c"].map(|key| change(key, Some("1"), None, true));
        assert_eq!(changes(&former, &now, false), json!([&both[..], &one, &gone].concat()));
    }
}
