//! Tenants and their routes, from outside: text in, tenants or problems out.

mod folder;
mod meaning;
mod mistakes;
mod rules;
mod shipped;
mod unreached;

use std::sync::Arc;

use toml::{Table, Value};

use super::{minimal_with, parse, problems, set};
use crate::domain::Tenant;

/// The shortest tenant that is accepted, with further keys, each a path and its value as TOML writes it.
fn tenant_with(keys: &[(&str, &str)]) -> Table {
    let required =
        [("id", "\"acme\""), ("hosts", "[\"api.acme.example\"]"), ("upstreams", "[\"127.0.0.1:9000\"]")];
    let mut tenant = Table::new();
    for (path, literal) in required.iter().chain(keys) {
        set(&mut tenant, path, literal.parse().unwrap_or_else(|error| panic!("{literal}: {error}")));
    }
    tenant
}

/// A tenant with one route that has these keys.
fn route_with(keys: &[(&str, &str)]) -> Table {
    let mut route = Table::new();
    for (path, literal) in [("path", "\"/v1\"")].iter().chain(keys) {
        set(&mut route, path, literal.parse().unwrap());
    }
    let mut tenant = tenant_with(&[]);
    tenant.insert("routes".to_owned(), Value::from(vec![route]));
    tenant
}

/// A file with these tenants, whose listeners speak TLS.
fn file_of(tenants: Vec<Table>) -> String {
    let tls = [("listen.tls.cert", "\"cert.pem\""), ("listen.tls.key", "\"key.pem\"")];
    let mut file: Table = minimal_with(&tls).parse().unwrap();
    file.insert("tenants".to_owned(), Value::from(tenants));
    file.to_string()
}

fn read(tenant: Table) -> Arc<Tenant> {
    let shown = tenant.to_string();
    let settings = parse(&file_of(vec![tenant]), &[]).unwrap_or_else(|problems| panic!("{shown}{problems}"));
    let [tenant] = settings.live.tenants.as_slice() else { panic!("{settings:?}") };
    Arc::clone(tenant)
}
