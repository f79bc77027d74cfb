//! The image, the units of systemd and the manifests of Kubernetes: each is valid for a tool of its own, is as confined as
//! the pages say, and gives the process the time that it takes to drain.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use yaml_rust2::{Yaml, YamlLoader};

use super::{read, root, tool};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiergate");

const UNITS: [&str; 2] = ["tiergate.service", "tiergate.socket"];

/// The highest exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE_MAX: &str = "20";

/// How long the process takes to end by default.
fn drain() -> Duration {
    let settings: toml::Table = read("conf/tiergate.toml").parse().unwrap();
    let shutdown = settings.get("shutdown").unwrap();
    let of = |key: &str| humantime::parse_duration(shutdown.get(key).unwrap().as_str().unwrap()).unwrap();
    of("delay") + of("grace")
}

fn passes(name: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let output = tool(name, arguments, folder)?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stdout}{stderr}");
    Some(stdout)
}

#[test]
fn the_image_is_built_from_the_lock_file_and_its_linter_finds_nothing() {
    assert!(read("Dockerfile").contains("cargo build --release --locked"));
    passes("hadolint", &["Dockerfile"], &root());
}

#[test]
fn the_units_of_systemd_are_valid_and_confined() {
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let text = read(&format!("deploy/systemd/{unit}")).replace("/usr/local/bin/tiergate", PROGRAM);
        fs::write(folder.path().join(unit), text).unwrap();
    }
    passes("systemd-analyze", &["verify", "./tiergate.service", "./tiergate.socket"], folder.path());
    let security =
        ["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX, "tiergate.service"];
    passes("systemd-analyze", &security, folder.path());
}

#[test]
fn systemd_waits_longer_than_the_process_drains() {
    let unit = read("deploy/systemd/tiergate.service");
    let wait = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    assert!(Duration::from_secs(wait.parse().unwrap()) > drain(), "{wait}");
}

/// The chart as it is rendered with these further arguments; `None` without Helm.
fn rendered(arguments: &[&str]) -> Option<String> {
    let base = ["template", "agents", "tiergate", "--values", "examples/shared.yaml"];
    passes("helm", &[&base, arguments].concat(), &root().join("deploy/helm"))
}

/// All that is shipped for Kubernetes.
fn manifests() -> Vec<String> {
    let variants = [&[][..], &["--set", "autoscaling.enabled=false,tlsSecret=tls"]];
    let rendered = variants.into_iter().filter_map(rendered);
    rendered.chain([read("deploy/kubernetes/sidecar.yaml")]).collect()
}

/// True if the manifests are valid for Kubernetes; `None` without its schemas.
fn is_valid(manifests: &str) -> Option<bool> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("all.yaml"), manifests).unwrap();
    let output = tool("kubernetes-validate", &["--strict", "all.yaml"], folder.path())?;
    Some(output.status.success())
}

fn find<'a>(objects: &'a [Yaml], kind: &str) -> &'a Yaml {
    objects.iter().find(|object| object["kind"].as_str() == Some(kind)).unwrap()
}

/// The container of Tiergate, in which place it may be.
fn container(deployment: &Yaml) -> &Yaml {
    let pod = &deployment["spec"]["template"]["spec"];
    let containers = ["containers", "initContainers"].into_iter().flat_map(|key| pod[key].as_vec()).flatten();
    containers.into_iter().find(|container| container["name"].as_str() == Some("tiergate")).unwrap()
}

fn text(yaml: &Yaml) -> &str {
    yaml.as_str().unwrap()
}

#[test]
fn the_chart_has_no_fault_that_helm_finds() {
    let arguments = ["lint", "--strict", "tiergate", "--values", "examples/shared.yaml"];
    passes("helm", &arguments, &root().join("deploy/helm"));
    let chart = YamlLoader::load_from_str(&read("deploy/helm/tiergate/Chart.yaml")).unwrap().remove(0);
    assert_eq!(text(&chart["appVersion"]), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_manifests_are_valid_for_kubernetes() {
    for manifests in manifests() {
        assert_ne!(is_valid(&manifests), Some(false), "{manifests}");
        let broken = manifests.replace("readOnlyRootFilesystem:", "readOnlyRoot:");
        assert_ne!(is_valid(&broken), Some(true));
    }
}

#[test]
fn the_manifests_confine_the_process_probe_it_and_wait_until_it_has_drained() {
    for manifests in manifests() {
        let objects = YamlLoader::load_from_str(&manifests).unwrap();
        let deployment = find(&objects, "Deployment");
        let pod = &deployment["spec"]["template"]["spec"];
        let grace = u64::try_from(pod["terminationGracePeriodSeconds"].as_i64().unwrap()).unwrap();
        assert!(Duration::from_secs(grace) > drain(), "{grace}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
        let container = container(deployment);
        let security = &container["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"].as_bool(), Some(true));
        assert_eq!(security["allowPrivilegeEscalation"].as_bool(), Some(false));
        assert_eq!(text(&security["capabilities"]["drop"][0]), "ALL");
        for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            assert_eq!(text(&container[probe]["httpGet"]["path"]), path);
        }
    }
}

/// Writes the files that a pod sees in `/etc/tiergate`.
fn mount(objects: &[Yaml], folder: &Path) {
    let data = find(objects, "ConfigMap")["data"].as_hash().unwrap();
    let data: BTreeMap<&str, &str> = data.iter().map(|(key, value)| (text(key), text(value))).collect();
    let volume = &find(objects, "Deployment")["spec"]["template"]["spec"]["volumes"][0]["configMap"];
    let paths = volume["items"].as_vec().into_iter().flatten();
    let paths: BTreeMap<&str, &str> = paths.map(|item| (text(&item["key"]), text(&item["path"]))).collect();
    for (key, value) in data {
        let file = folder.join(paths.get(key).unwrap_or(&key));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, value).unwrap();
    }
}

#[test]
fn the_configurations_in_the_manifests_are_good() {
    for manifests in manifests() {
        let objects = YamlLoader::load_from_str(&manifests).unwrap();
        let folder = tempfile::tempdir().unwrap();
        mount(&objects, folder.path());
        let environment = container(find(&objects, "Deployment"))["env"].as_vec().into_iter().flatten();
        let environment = environment
            .map(|variable| (text(&variable["name"]), text(&variable["value"])))
            .filter(|(name, _)| !name.contains("TLS"));
        let output = Command::new(PROGRAM)
            .args(["check", "--strict", "--config"])
            .arg(folder.path().join("tiergate.toml"))
            .envs(environment)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
