//! What the cases stand on: upstreams that misbehave on command, clients that do, and gateways between them.

pub(crate) mod abuse;
pub(crate) mod authz;
pub(crate) mod behind;
pub(crate) mod beside;
pub(crate) mod case;
pub(crate) mod certificates;
pub(crate) mod checks;
pub(crate) mod credentials;
pub(crate) mod crowd;
pub(crate) mod entry_points;
pub(crate) mod frames;
pub(crate) mod framing;
pub(crate) mod gateway;
pub(crate) mod h2c;
pub(crate) mod identity;
pub(crate) mod listeners;
pub(crate) mod messages;
pub(crate) mod refusals;
pub(crate) mod scope;
pub(crate) mod scripts;
pub(crate) mod site;
pub(crate) mod stage;
pub(crate) mod tenants;
pub(crate) mod tunnels;
pub(crate) mod upstream;
