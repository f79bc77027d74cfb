//! Tenants as they are written into configuration files.

use std::net::SocketAddr;

use toml::{Table, Value};

use crate::support::process::{free_port, own_ip};

/// What is written of one tenant.
#[derive(Debug, Clone)]
pub(crate) struct Tenant(Table);

impl Tenant {
    /// A tenant of one host and one upstream.
    pub(crate) fn new(id: &str, host: &str, upstream: SocketAddr) -> Self {
        Self::of(id, &[host], &[&upstream.to_string()])
    }

    /// A tenant that other gateways alone ask for.
    pub(crate) fn asked(id: &str) -> Self {
        Self(Table::new()).set("id", id)
    }

    /// The first tenant of a whole configuration.
    pub(crate) fn first_of(text: &str) -> Self {
        Self(text.parse::<Table>().unwrap()["tenants"][0].as_table().unwrap().clone())
    }

    pub(crate) fn of(id: &str, hosts: &[&str], upstreams: &[&str]) -> Self {
        let tenant = Self(Table::new()).set("id", id).set("hosts", hosts.to_vec());
        tenant.set("upstreams", upstreams.to_vec()).set("timeouts.connect", "10s")
    }

    /// Waits half a second for an upstream that says or takes nothing.
    pub(crate) fn impatient(self) -> Self {
        self.set("timeouts.read", "500ms").set("timeouts.write", "500ms").set("health.eject_after", 0)
    }

    /// Adds an upstream of HTTP/2 at which nobody listens. So all requests leave by the library, and those that try it first
    /// go to another one.
    pub(crate) fn by_library(mut self) -> Self {
        let silent = format!("h2c://{}", free_port(own_ip()));
        self.0["upstreams"].as_array_mut().unwrap().push(silent.into());
        self
    }

    /// Sets a key by its path with dots.
    pub(crate) fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let mut table = &mut self.0;
        let mut names: Vec<&str> = path.split('.').collect();
        let last = names.pop().unwrap();
        for name in names {
            let below = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
            table = below.as_table_mut().unwrap();
        }
        table.insert(last.to_owned(), value.into());
        self
    }

    /// One more route: a path pattern, and the rest of it as TOML.
    pub(crate) fn route(mut self, path: &str, rest: &str) -> Self {
        let mut route: Table = rest.parse().unwrap();
        route.insert("path".to_owned(), path.into());
        let routes = self.0.entry("routes").or_insert_with(|| Value::Array(Vec::new()));
        routes.as_array_mut().unwrap().push(Value::Table(route));
        self
    }

    /// Everything under `/public/` is open to everybody.
    pub(crate) fn public(self) -> Self {
        self.route("/public/*", r#"access = "public""#)
    }

    /// The name of a file of its own.
    pub(crate) fn file(&self) -> String {
        format!("{}.toml", self.0["id"].as_str().unwrap())
    }

    /// What stands in a file of its own.
    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }

    pub(crate) fn value(&self) -> Value {
        Value::Table(self.0.clone())
    }
}
