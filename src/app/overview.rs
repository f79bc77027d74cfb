//! Facts for the operator's page: tenants and upstreams as they are now, certificates and configuration as they are in
//! force, and the last reload. Secrets are blanked in what it is given.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::admin::Facts;
use crate::app::tenants::{Applied, Tenants};
use crate::config::{DEFAULT, Loaded, Settings, VALUES_SHOWN_MAX, Value};
use crate::domain::tenant::{KeyPair, Tenant};
use crate::gateway::table::TenantState;
use crate::ports::clock::Clock;
use crate::tls::look;

/// How many tenants are shown.
const TENANTS_SHOWN_MAX: usize = 100;

/// How many hosts of a tenant, certificates, and changes or problems of a reload are shown.
const ITEMS_SHOWN_MAX: usize = 100;

/// Facts for the operator's page.
pub(super) struct Overview {
    tenants: Arc<Tenants>,
    clock: Arc<dyn Clock>,
    in_force: Mutex<InForce>,
}

/// The configuration that is in force.
struct InForce {
    /// Sections as they were at the start, tenants as of the last reload that was applied.
    values: Vec<Value>,
    /// How many of them there have been: another number, other values.
    version: u64,
    certificates: Vec<Json>,
    /// The last reload, applied or not; null before the first one.
    last_reload: Json,
}

impl Overview {
    /// Begins with the configuration of the start.
    pub(super) fn new(tenants: Arc<Tenants>, loaded: &Loaded, clock: Arc<dyn Clock>) -> Self {
        let certificates = certificates(&loaded.settings);
        let values = loaded.values.clone();
        let in_force = Mutex::new(InForce { values, version: 0, certificates, last_reload: Json::Null });
        Self { tenants, clock, in_force }
    }

    /// A reload was applied.
    pub(super) fn applied(&self, why: &str, Applied { loaded, tenants, .. }: Applied) {
        let tenants = tenants.iter().map(|(tenant, change)| json!({ "tenant": tenant, "change": change }));
        let tenants = shown(tenants);
        let certificates = certificates(&loaded.settings);
        let mut in_force = self.in_force.lock();
        in_force.last_reload = json!({
            "at": self.clock.unix_seconds(), "why": why, "applied": true, "tenants": tenants,
            "values": changes(&in_force.values, &loaded.values),
            "certificates": certificates != in_force.certificates,
        });
        in_force.certificates = certificates;
        in_force.version += 1;
        in_force.values.retain(|value| Settings::counts_from_start(&value.key));
        let of_reload = loaded.values.into_iter().filter(|value| !Settings::counts_from_start(&value.key));
        in_force.values.extend(of_reload);
    }

    /// A reload was refused: everything stays in force.
    pub(super) fn refused(&self, why: &str, problems: &[String]) {
        self.in_force.lock().last_reload = json!({
            "at": self.clock.unix_seconds(), "why": why, "applied": false, "problems": shown(problems.iter()),
        });
    }
}

impl Facts for Overview {
    fn status(&self) -> Json {
        let table = self.tenants.table().load();
        let busiest = table.busiest(TENANTS_SHOWN_MAX, self.clock.monotonic_micros());
        let tenants = busiest.into_iter().map(|TenantState { tenant, upstreams }| {
            let hosts: Vec<String> =
                tenant.hosts.iter().take(ITEMS_SHOWN_MAX).map(ToString::to_string).collect();
            json!({ "id": tenant.id, "hosts": hosts, "upstreams": upstreams })
        });
        let tenants: Vec<Json> = tenants.collect();
        let in_force = self.in_force.lock();
        json!({
            "now": self.clock.unix_millis(),
            "tenants": tenants,
            "tenantsInAll": table.tenants().count(),
            "certificates": in_force.certificates,
            "lastReload": in_force.last_reload,
            "configuration": in_force.version,
        })
    }

    fn configuration(&self) -> Json {
        let in_force = self.in_force.lock();
        json!({ "values": in_force.values, "isCut": in_force.values.len() >= VALUES_SHOWN_MAX })
    }
}

fn shown<T: serde::Serialize>(items: impl Iterator<Item = T>) -> Json {
    items.take(ITEMS_SHOWN_MAX).map(|item| json!(item)).collect()
}

/// The values that are not as they were, but for defaults that came or went with a tenant.
fn changes(former: &[Value], now: &[Value]) -> Json {
    let mut gone: HashMap<&str, &Value> = former.iter().map(|value| (&*value.key, value)).collect();
    let changed = now.iter().map(|value| (gone.remove(&*value.key), Some(value))).collect::<Vec<_>>();
    let all = changed.into_iter().chain(gone.into_values().map(|value| (Some(value), None)));
    let changes = all.filter_map(|(before, after)| {
        let text = |value: Option<&Value>| value.map(|value| value.value.clone());
        let (old, new) = (text(before), text(after));
        let is_default = [before, after].into_iter().flatten().all(|value| value.origin == DEFAULT);
        let key = &before.or(after)?.key;
        let waits = Settings::counts_from_start(key);
        (old != new && !is_default)
            .then(|| json!({ "key": key, "before": old, "after": new, "waits": waits }))
    });
    shown(changes)
}

/// Certificates of the listeners and toward upstreams, and when they expire; the next one first.
fn certificates(settings: &Settings) -> Vec<Json> {
    let mut expiries: HashMap<&KeyPair, Vec<String>> = HashMap::new();
    let listeners = settings.listen.tls.iter().map(|pair| (pair, "listeners".to_owned()));
    let tenants = settings.tenants.iter().flat_map(|tenant| {
        let Tenant { id, tls, proxy, .. } = &**tenant;
        let shown = tls.iter().map(move |pair| (pair, format!("tenant {id}")));
        shown.chain(proxy.upstream_tls.client.iter().map(move |pair| (pair, format!("upstreams of {id}"))))
    });
    for (pair, user) in listeners.chain(tenants) {
        expiries.entry(pair).or_default().push(user);
    }
    let expiry = |(pair, mut used_by): (&KeyPair, Vec<String>)| {
        used_by.truncate(ITEMS_SHOWN_MAX);
        (look::expiry(pair), pair.cert.display().to_string(), used_by)
    };
    let mut expiries: Vec<_> = expiries.into_iter().map(expiry).collect();
    expiries.sort();
    expiries.truncate(ITEMS_SHOWN_MAX);
    let certificate =
        |(expiry, file, used_by)| json!({ "file": file, "usedBy": used_by, "expiresAt": expiry });
    expiries.into_iter().map(certificate).collect()
}
