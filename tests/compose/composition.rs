//! Reads `compose.yaml`: the command, mounts, secrets and ports of each service.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fs, net::IpAddr};

use yaml_rust2::{Yaml, YamlLoader};

/// The services of `compose.yaml`.
pub(crate) struct Composition {
    pub(crate) folder: PathBuf,
    pub(crate) services: BTreeMap<String, Service>,
    /// Of networks that say it, by name.
    pub(crate) subnets: BTreeMap<String, ipnet::IpNet>,
    yaml: Yaml,
}

/// One service.
pub(crate) struct Service {
    pub(crate) image: String,
    pub(crate) builds_at: Option<PathBuf>,
    /// The Dockerfile's stage that is built; empty for its last.
    pub(crate) target: String,
    /// As the shell of the container sees it.
    pub(crate) command: Vec<String>,
    /// Files from here and where they are inside, secrets too.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// Names of volumes and where they are inside.
    pub(crate) volumes: Vec<(String, String)>,
    /// Ports of this machine and those inside.
    pub(crate) ports: Vec<(u16, u16)>,
    /// Names of variables and their values.
    pub(crate) environment: Vec<(String, String)>,
    /// Networks, and its address in each that gives it one.
    pub(crate) networks: BTreeMap<String, Option<IpAddr>>,
    pub(crate) is_read_only: bool,
    pub(crate) has_health_check: bool,
}

impl Composition {
    /// The one that is shipped.
    pub(crate) fn shipped() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/compose");
        let text = fs::read_to_string(folder.join("compose.yaml")).unwrap();
        let documents = YamlLoader::load_from_str(&text).unwrap();
        assert_eq!(documents.len(), 1, "one document");
        let yaml = merged(&documents[0]);
        let subnets = yaml["networks"].as_hash().unwrap().iter();
        let subnets = subnets.filter_map(|(name, network)| {
            let subnet = network["ipam"]["config"][0]["subnet"].as_str()?.parse().unwrap();
            Some((name.as_str().unwrap().to_owned(), subnet))
        });
        let subnets = subnets.collect();
        let services = yaml["services"].as_hash().unwrap().iter();
        let services = services.map(|(name, service)| {
            (name.as_str().unwrap().to_owned(), Service::read(service, &folder, &yaml["secrets"]))
        });
        Self { services: services.collect(), subnets, folder, yaml: yaml.clone() }
    }

    /// Names under a key of the file, such as `volumes`.
    pub(crate) fn names(&self, key: &str) -> Vec<&str> {
        self.yaml[key].as_hash().unwrap().keys().map(|name| name.as_str().unwrap()).collect()
    }

    /// A file of this folder, as text.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }
}

impl Service {
    fn read(yaml: &Yaml, folder: &Path, secrets: &Yaml) -> Self {
        let mut files = Vec::new();
        let mut volumes = Vec::new();
        for mount in texts(&yaml["volumes"]) {
            let (from, inside) = mount.split_once(':').unwrap();
            match from.strip_prefix("./") {
                Some(file) => {
                    let read_only = inside.strip_suffix(":ro");
                    let inside = read_only.unwrap_or_else(|| panic!("{mount} could be written to"));
                    files.push((folder.join(file), inside.to_owned()));
                }
                None => volumes.push((from.to_owned(), inside.to_owned())),
            }
        }
        for secret in texts(&yaml["secrets"]) {
            let file = secrets[secret.as_str()]["file"].as_str().unwrap();
            let file = folder.join(file.strip_prefix("./").unwrap());
            files.push((file, format!("/run/secrets/{secret}")));
        }
        let ports = texts(&yaml["ports"]);
        Self {
            image: yaml["image"].as_str().unwrap().to_owned(),
            builds_at: yaml["build"].as_str().or(yaml["build"]["context"].as_str()).map(|at| folder.join(at)),
            target: yaml["build"]["target"].as_str().unwrap_or_default().to_owned(),
            command: texts(&yaml["command"]).into_iter().map(|word| word.replace("$$", "$")).collect(),
            files,
            volumes,
            ports: ports.iter().map(|port| published(port)).collect(),
            environment: yaml["environment"].as_hash().into_iter().flatten().map(pair).collect(),
            networks: yaml["networks"].as_hash().unwrap().iter().map(network).collect(),
            is_read_only: yaml["read_only"].as_bool().unwrap_or(false),
            has_health_check: yaml["healthcheck"]["disable"].as_bool() != Some(true),
        }
    }
}

fn pair((name, value): (&Yaml, &Yaml)) -> (String, String) {
    (name.as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned())
}

fn network((name, value): (&Yaml, &Yaml)) -> (String, Option<IpAddr>) {
    let address = value["ipv4_address"].as_str().map(|ip| ip.parse().unwrap());
    (name.as_str().unwrap().to_owned(), address)
}

/// `127.0.0.1:OUTSIDE:INSIDE`: nothing is opened to others.
fn published(port: &str) -> (u16, u16) {
    let ports = port.strip_prefix("127.0.0.1:").unwrap_or_else(|| panic!("{port} is open to everybody"));
    let (outside, inside) = ports.split_once(':').unwrap();
    (outside.parse().unwrap(), inside.parse().unwrap())
}

fn texts(yaml: &Yaml) -> Vec<String> {
    let items = yaml.as_vec().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// The same with everything in place that `<<` brings in.
fn merged(yaml: &Yaml) -> Yaml {
    match yaml {
        Yaml::Hash(hash) => {
            let base = hash.get(&Yaml::String("<<".to_owned())).map(merged);
            let mut all = base.map(|base| base.into_hash().unwrap()).unwrap_or_default();
            for (key, value) in hash.iter().filter(|(key, _)| key.as_str() != Some("<<")) {
                all.insert(key.clone(), merged(value));
            }
            Yaml::Hash(all)
        }
        Yaml::Array(items) => Yaml::Array(items.iter().map(merged).collect()),
        Yaml::Real(_)
        | Yaml::Integer(_)
        | Yaml::String(_)
        | Yaml::Boolean(_)
        | Yaml::Alias(_)
        | Yaml::Null
        | Yaml::BadValue => yaml.clone(),
    }
}
