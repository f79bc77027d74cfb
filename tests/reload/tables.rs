//! The tenants that follow each other: which host belongs to whom, and where its requests go, in every version.
//!
//! From an even version to the next the tenants' upstreams change, from an odd one their hosts, and one host comes and
//! goes. No two hosts share an upstream in a version, and no host keeps its upstream from one version to the next.

use std::path::{Path, PathBuf};
use std::{fmt::Write as _, fs, net::SocketAddr, os::unix::fs::symlink};

/// How many tenants, and as many hosts, there always are.
const TENANTS: usize = 6;

/// How many upstreams the tables need.
pub(crate) const UPSTREAMS: usize = 8;

/// After how many versions the first comes again.
const PERIOD: usize = 48;

/// The host that even versions know and odd ones don't.
const BLINKING: usize = TENANTS;

/// How many hosts there are to ask, the one that comes and goes included.
pub(crate) const HOSTS: usize = TENANTS + 1;

/// A part of a tenant with upstreams of its own, and the rest of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// Below `/own`.
    Own,
    /// Everywhere else.
    Rest,
}

/// A configuration whose folder of tenants is exchanged as a whole.
pub(crate) struct Tables {
    folder: PathBuf,
}

impl Tables {
    /// Writes every version beside the configuration, and puts version 0 in place.
    pub(crate) fn write(folder: &Path, upstreams: &[SocketAddr]) -> Self {
        for version in 0..PERIOD {
            let into = folder.join(format!("version-{version}"));
            fs::create_dir(&into).unwrap();
            for tenant in 0..TENANTS {
                let text = tenant_file(tenant, version, upstreams);
                fs::write(into.join(format!("tenant-{tenant}.toml")), text).unwrap();
            }
        }
        let tables = Self { folder: folder.to_owned() };
        tables.put_in_place(0);
        tables
    }

    /// Makes a version the one that is read from now on. There is no moment without one.
    pub(crate) fn put_in_place(&self, version: usize) {
        let (next, place) = (self.folder.join("next"), self.folder.join("tenants.d"));
        symlink(self.folder.join(format!("version-{}", version % PERIOD)), &next).unwrap();
        fs::rename(&next, &place).unwrap();
    }

    /// Takes the tenants away: the folder is gone, or empty, as that of a volume that is not mounted.
    pub(crate) fn take_away(&self, is_empty: bool) {
        let place = self.folder.join("tenants.d");
        fs::remove_file(&place).unwrap();
        if is_empty {
            fs::create_dir_all(self.folder.join("empty")).unwrap();
            symlink(self.folder.join("empty"), &place).unwrap();
        }
    }
}

pub(crate) fn host(at: usize) -> String {
    format!("host-{at}.example")
}

/// Which upstream answers for a host in a version; nothing when the host is nobody's.
pub(crate) fn answering(host: usize, part: Part, version: usize) -> Option<usize> {
    let tenant = if host == BLINKING {
        version.is_multiple_of(2).then_some(0)?
    } else {
        (host + TENANTS - version / 2 % TENANTS) % TENANTS
    };
    Some(upstream(tenant, part, version))
}

fn upstream(tenant: usize, part: Part, version: usize) -> usize {
    let turn = 3 * version.div_ceil(2);
    match part {
        Part::Rest => (tenant + turn) % UPSTREAMS,
        Part::Own => (tenant + turn + 1) % UPSTREAMS,
    }
}

fn tenant_file(tenant: usize, version: usize, upstreams: &[SocketAddr]) -> String {
    let mut hosts = vec![host((tenant + version / 2) % TENANTS)];
    if tenant == 0 && version.is_multiple_of(2) {
        hosts.push(host(BLINKING));
    }
    let at = |part| upstreams[upstream(tenant, part, version)];
    let mut text =
        format!("id = \"tenant-{tenant}\"\nhosts = {hosts:?}\nupstreams = [\"{}\"]\n", at(Part::Rest));
    let _ = write!(
        text,
        "[[routes]]\npath = \"/own\"\naccess = \"public\"\nupstreams = [\"{}\"]\n\
         [[routes]]\npath = \"/*\"\naccess = \"public\"\n",
        at(Part::Own)
    );
    text
}

#[test]
fn every_version_differs_from_the_one_before_for_every_host() {
    for version in 0..PERIOD {
        for host in 0..HOSTS {
            for part in [Part::Own, Part::Rest] {
                let next = answering(host, part, (version + 1) % PERIOD);
                assert_ne!(answering(host, part, version), next, "version {version}, host {host}");
            }
        }
    }
}
